// Package reorder keeps frames back until they may go on in order. It has what every
// receiving side of a scheme decides by and with ([Arrival], [Verdict]), bounded queues
// for what is held ([Holds]), and the destination side of ConWeave ([ConWeave]), which
// puts rerouted flows back in order. It does no I/O, reads no clock and does not know
// what a frame is.
//
// # What a driver of ConWeave does
//
// Package leaf is this driver. For each vector of tenants' packets that came out of the
// fabric, once their egress ports are known, it calls [ConWeave.Receive], sends the
// messages of [ConWeave.Outbox] with the headers of the packets that caused them, and
// then acts on each verdict in turn: it drains, keeps or sends on. What a queue held
// goes into the egress queue that the packet goes to. One FIFO for all of them is what
// keeps the order: the flow's earlier packets, the TAIL among them, may still stand in
// the port's data queue. The paper's hardware drains from a queue of higher priority,
// but starts to only when the TAIL has been transmitted (§3.3.1); a drain that starts
// earlier must not overtake that queue.
//
// When [ConWeave.Deadline] has come it calls [ConWeave.Expire] until there is nothing
// more, and drains each queue before it looks at anything else.
//
// All packets of a flow, whatever path they took, must come to one ConWeave: where
// several workers read an uplink, the flow's hash, not the outer headers', has to choose
// among them. Packets for several ports (floods) have one more port, which stands for
// all of them: their sources wait for answers, too.
//
// At the source leaf all packets of one uplink have to leave from one FIFO. ConWeave
// counts on each path's being one; spines choose by the path's selector only, and keep
// packets of equal headers in order.
package reorder
