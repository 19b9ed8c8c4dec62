package reorder

import (
	"fmt"

	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/overlay"
)

// Verdict is what a driver does with a packet that [ConWeave.Arrive] saw.
type Verdict uint8

// The verdicts. A queue is drained with [ConWeave.Pop], whole, before anything
// else arrives, into the same egress queue that the packet goes to: there stand
// the flow's packets that came before.
const (
	Pass      Verdict = iota // send the packet on
	Hold                     // keep the packet: it is in a queue now
	PassDrain                // send the packet on, and behind it what the queue held
	DrainPass                // send on what the queue held, and behind it the packet
	DrainHold                // send on what the queue held; the packet is in another queue now
)

// Held reports whether the packet is in a queue.
func (v Verdict) Held() bool { return v == Hold || v == DrainHold }

// DrainBefore reports whether a queue goes before the packet.
func (v Verdict) DrainBefore() bool { return v == DrainPass || v == DrainHold }

// DrainAfter reports whether a queue goes behind the packet.
func (v Verdict) DrainAfter() bool { return v == PassDrain }

// Control is a control packet that the driver is to send (ConWeave Table 2).
type Control struct {
	Leaf   uint16 // where to
	Opcode overlay.Opcode
	Epoch  overlay.Epoch
	Path   overlay.PathID // that the packet took which is the cause: what a NOTIFY is about
	Refuse bool           // the leaf is to send no more rerouted packets (§5)
	Hash   uint32         // of the flow, as Arrive was told it
	// Echo is the TX_TSTAMP of the RTT_REQUEST that a REPLY answers, or the
	// TAIL_TX_TSTAMP of the reroute that a CLEAR ends. Round trips go through two
	// bits of epoch within microseconds; with it the source can tell an answer
	// from a copy, or from one that is four epochs late.
	Echo overlay.Tstamp
}

// Mark puts the message into a header, and leaves LBTag and feedback as they
// are. RTT_REPLY and CLEAR have a shim, whose TAIL_TX_TSTAMP is the echo.
func (c *Control) Mark(f *overlay.Fabric) {
	f.Capable, f.Opcode, f.Epoch, f.Path = true, c.Opcode, c.Epoch, c.Path
	f.Rerouted, f.Tail = c.Refuse, false
	f.Shim, f.TxTstamp, f.TailTxTstamp = c.Opcode != overlay.OpNotify, 0, c.Echo
}

// queue is one reordering FIFO, the packets of which are in Holds.
type queue struct {
	deadline mono.Time // T_resume
	estimate mono.Time // T_resume without θ_resume_extra
	since    mono.Time // arrival of the first packet
	flow     int32
	place    int32 // in the heap of deadlines
	port     int32
	next     int32          // free list
	path     overlay.PathID // of the first packet
	measured bool           // estimate rests on a packet from the OLD path
	draining bool           // no longer a flow's; what is left is the driver's to pop
}

// ConWeave is the destination side of ConWeave (§3.3, §3.4.2, Appendix A): it
// puts the packets of rerouted flows back in order, and answers their sources.
// It knows nothing of packets but their header, size and egress port; T is what
// the driver holds them by.
//
// It is owned by one worker, to which all packets of a flow come, whatever path
// they took; not safe for concurrent use. Nothing is allocated after [New].
type ConWeave[T any] struct {
	core
	items *Holds[T]
}

// New returns a destination side. It reports parameters that make no sense.
func New[T any](p Params) (*ConWeave[T], error) {
	if err := p.Validate(); err != nil {
		return nil, fmt.Errorf("ConWeave's destination side: %w", err)
	}
	c := &ConWeave[T]{items: NewHolds[T](p.Queues, p.Packets, p.PortPackets)}
	c.init(&p)
	return c, nil
}

// Arrive takes a tenant's packet that came out of the fabric: who sent it, the
// flow's hash, the fabric's header, whether the outer IP header had CE set, what
// the driver holds the packet by, its size in bytes and its egress port. Packets
// for more than one port, or for one of no number below Params.Ports, are not
// held. It returns what to do, and the queue to drain if one is.
//
// What it has to say to the source is in [ConWeave.Outbox] until the next call;
// such control packets carry this packet's headers, whatever becomes of it.
func (c *ConWeave[T]) Arrive(now mono.Time, leaf uint16, hash uint32, f *overlay.Fabric, ce bool, item T, bytes uint32, port int) (Verdict, int) {
	v, drain, hold := c.arrive(now, leaf, hash, f, ce, bytes, port)
	if v.Held() {
		c.items.Push(hold, item, bytes)
	}
	return v, drain
}

// Cold reports whether many packets since the last call were of flows that nothing
// was known of. Then there are more flows than fit the cache, and Touch pays.
func (c *ConWeave[T]) Cold() bool {
	packets, strangers := c.stats.Packets-c.counted, c.strangers
	c.counted, c.strangers = c.stats.Packets, 0
	return 4*strangers > packets
}

// Touch brings a flow's entry into the cache. A driver with a burst calls it for all
// packets before it calls Arrive for the first: one by one each would wait for memory.
// It changes nothing.
func (c *ConWeave[T]) Touch(hash uint32) { c.table.touch(hash) }

// Expire returns a queue whose T_resume has passed; ok is false if there is
// none. The driver drains it, and calls again. The Outbox has a CLEAR, which
// carries the headers of the queue's first packet ([ConWeave.Peek]).
func (c *ConWeave[T]) Expire(now mono.Time) (q int, ok bool) { return c.expire(now) }

// Flush is Expire for any queue, whatever its T_resume, and without a CLEAR: for
// a driver that stops.
func (c *ConWeave[T]) Flush(now mono.Time) (q int, ok bool) {
	c.outbox = 0
	if len(c.timers.heap) == 0 {
		return 0, false
	}
	i := c.timers.heap[0]
	c.stats.Flushed++
	c.table.at(c.queues[i].flow).flags |= flowGaveUp
	return c.drain(now, i), true
}

// Peek returns the oldest packet of a queue that is to be drained.
func (c *ConWeave[T]) Peek(q int) (T, bool) { return c.items.Peek(q) }

// Pop removes and returns the oldest packet of a queue that is to be drained;
// ok is false when there are no more.
func (c *ConWeave[T]) Pop(q int) (item T, ok bool) {
	if !c.queues[q].draining {
		return item, false
	}
	before := c.items.Bytes(q)
	item, ok = c.items.Pop(q)
	if ok {
		c.popped(q, before-c.items.Bytes(q), c.items.Len(q) == 0)
	}
	return item, ok
}

// Deadline returns when Expire is to be called next; [Never] if nothing is held.
func (c *ConWeave[T]) Deadline() mono.Time { return c.timers.deadline(c.queues) }

// Outbox returns what the last Arrive or Expire has to say to sources. It is
// valid until the next call.
func (c *ConWeave[T]) Outbox() []Control { return c.out[:c.outbox] }

// Stats returns what happened so far, and the state now.
func (c *ConWeave[T]) Stats() Stats { return c.stats }

// Params returns the parameters in use.
func (c *ConWeave[T]) Params() Params { return c.params }

// Port returns what waits for an egress port, and the most that ever did.
func (c *ConWeave[T]) Port(port int) PortUse { return c.ports[port] }

// Account notes that a control packet of so many bytes was sent.
func (c *ConWeave[T]) Account(op overlay.Opcode, bytes uint32) {
	c.stats.ControlBytes[op&overlay.OpExtension] += uint64(bytes)
}
