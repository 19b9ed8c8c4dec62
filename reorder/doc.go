// Package reorder keeps frames back until they may go on in order: the bounded
// queues that this takes ([Holds]), and the destination side of ConWeave
// ([ConWeave]), which puts rerouted flows back in order. It does no I/O, reads
// no clock and does not know what a frame is.
//
// # What a driver of ConWeave does
//
// At the source leaf, with a balance.Signaller as policy, and one time now for
// all of it:
//
//  1. Set View.Capable, fill the vector, call Choose(now, ...). For each packet
//     to a capable leaf, put Packet.Marks into its header with
//     Marks.Stamp(now, uplink, &fabric) after congestion.Exchange.Depart. Now has
//     to be Choose's: the time in the uplink's queue is part of the path's delay
//     (Appendix A). With Marks.Shim the header is 4 bytes longer.
//  2. Send all packets of one uplink from one FIFO. ConWeave counts on each
//     path's being one; spines choose by Path.Selector only, and keep packets of
//     equal headers in order.
//  3. Call Hear(now, leaf, hash, &fabric) for each RTT_REPLY, CLEAR and NOTIFY that
//     comes in: leaf is the one that sent it, hash that of the inner headers it
//     carries, with the seed that the flow's own packets are hashed with. The
//     control packet may come to any worker, the flow is known to one: tell all,
//     those that do not know it ignore it.
//
// At the destination leaf, for each capable header with OpData or OpRTTRequest,
// once the tenant's frame is decapsulated and its egress port is known:
//
//	v, q := c.Arrive(now, leaf, hash, &fabric, outerCE, item, bytes, port)
//	for _, m := range c.Outbox() { answer(m, item) }
//	if v.DrainBefore() { drain(q) }
//	if !v.Held() { send(item) }
//	if v.DrainAfter() { drain(q) }
//
// and when [ConWeave.Deadline] has come, which each Arrive, Expire and Flush may
// change:
//
//	for q, ok := c.Expire(now); ok; q, ok = c.Expire(now) {
//		first, _ := c.Peek(q)
//		for _, m := range c.Outbox() { answer(m, first) }
//		drain(q)
//	}
//
// drain pops the whole queue, before the next call of Arrive, into the egress
// queue that send uses:
//
//	for item, ok := c.Pop(q); ok; item, ok = c.Pop(q) { send(item) }
//
// One FIFO for all of them is what keeps the order: the flow's earlier packets,
// the TAIL among them, may still stand in the port's data queue. The paper's
// hardware drains from a queue of higher priority, but starts to only when the
// TAIL has been transmitted (§3.3.1); a drain that starts earlier must not
// overtake that queue.
//
// answer sends a packet with the fabric's header filled in by [Control.Mark],
// the inner headers of item without payload, at the highest priority, to
// Control.Leaf over any path; and tells [ConWeave.Account] its size. All packets
// of a flow, whatever path they took, must come to one ConWeave: where several
// workers read an uplink, the flow's hash, not the outer headers', has to choose
// among them. Packets for several ports (floods) go through Arrive under one more
// port, which stands for all of them: their sources wait for answers, too.
package reorder
