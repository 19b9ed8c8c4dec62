package reorder

import (
	"cmp"
	"fmt"
	"math"

	"github.com/loomfabric/loom/internal/flowtable"
	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/overlay"
)

// SchemeID is the number under which ConWeave's marks and messages travel.
const SchemeID overlay.SchemeID = 1

// ConWeave is the destination side of ConWeave (§3.3, §3.4.2, Appendix A): it
// puts the packets of rerouted flows back in order, and answers their sources.
// It knows nothing of packets but their header, size and egress port, and decides
// which of its queues a packet waits in; its driver keeps the packets.
//
// It is owned by one worker, to which all packets of a flow come, whatever path
// they took; not safe for concurrent use. Nothing is allocated after [New].
type ConWeave struct {
	params Params
	table  flowtable.Table[flowFields]
	queues []queue
	free   int32 // first of the list of free queues
	timers timers
	ports  []PortUse

	notified []mono.Time // by leaf and path: the last NOTIFY

	unknown int // packets of flows that nothing was known of, of the present vector

	out   []overlay.Message
	cause int16 // index of the packet that is being decided about

	stats Stats
}

const paths = 256 // values of a PathID

// longAgo is a time that every interval has passed since.
const longAgo = mono.Time(math.MinInt64 / 2)

// maxVector is the number of packets in a vector that the outbox has room for
// from the start.
const maxVector = 64

// queue is one reordering FIFO, whose packets the driver keeps.
type queue struct {
	deadline mono.Time // T_resume
	estimate mono.Time // T_resume without θ_resume_extra
	since    mono.Time // arrival of the first packet
	bytes    uint64    // of the packets in it
	packets  int32
	flow     int32
	index    int32 // in the heap of deadlines
	port     int32
	next     int32          // free list
	path     overlay.PathID // of the first packet
	measured bool           // estimate rests on a packet from the OLD path
}

// New returns a destination side. It reports parameters that make no sense.
func New(p Params) (*ConWeave, error) {
	if err := p.Validate(); err != nil {
		return nil, fmt.Errorf("ConWeave's destination side: %w", err)
	}
	c := &ConWeave{
		params:   p,
		table:    flowtable.New[flowFields](p.Flows, 2*mono.Time(p.Inactive)),
		queues:   make([]queue, p.Queues),
		free:     none,
		timers:   timers{heap: make([]uint16, 0, p.Queues)},
		ports:    make([]PortUse, p.Ports),
		notified: make([]mono.Time, p.Leaves*paths),
		out:      make([]overlay.Message, 0, 3*maxVector), // REPLY, CLEAR and NOTIFY: more a packet cannot cause
	}
	for i := len(c.queues) - 1; i >= 0; i-- {
		c.queues[i].next = c.free
		c.free = int32(i)
	}
	for i := range c.notified {
		c.notified[i] = longAgo
	}
	return c, nil
}

// Receive decides about packets of tenants that came out of the fabric, in their
// order. Packets for a port that is not below Params.Ports are not held.
//
// If many flows of the last packets were unknown there may be more than fit the
// cache. Then it touches the entries of all first: one by one each packet would
// wait for memory.
func (c *ConWeave) Receive(now mono.Time, pkts []Arrival) {
	c.out = c.out[:0]
	if c.table.Cold() {
		for i := range pkts {
			c.table.Touch(pkts[i].Hash)
		}
	}
	c.unknown = 0
	for i := range pkts {
		p := &pkts[i]
		c.cause = int16(i)
		c.arrive(now, p)
	}
	c.table.Seen(len(pkts), c.unknown)
}

// Forged reports whether no source marks a packet so: the request of an epoch goes by
// the path that the epoch begins with, and the TAIL ends that path when the reply to the
// request is late (§3.2.2). Two answers to one packet are two for the price of one.
func Forged(f *overlay.Fabric) bool {
	return f.Tail && f.Opcode == overlay.OpRTTRequest && f.Scheme == SchemeID
}

// MayHold reports whether Receive might hold such a packet: one of a NEW path.
func (c *ConWeave) MayHold(p *Arrival) bool { return p.Fabric.Rerouted }

// Expire returns a queue whose T_resume has passed; ok is false if there is
// none. The driver sends it on, and calls again. The Outbox has a CLEAR, which
// carries the headers of the queue's first packet. A queue whose time is further away
// than any can be is as due: the clock was set back.
func (c *ConWeave) Expire(now mono.Time) (q int, ok bool) {
	c.out = c.out[:0]
	if len(c.timers.heap) == 0 {
		return 0, false
	}
	i := c.timers.heap[0]
	due := &c.queues[i]
	if now < due.deadline && due.deadline.Sub(now) <= c.params.MaxHold {
		return 0, false
	}
	e := c.table.At(due.flow)
	e.V.flags |= flowFlushed
	c.stats.Expiries++
	c.stats.Clears++
	c.cause = overlay.NoCause
	c.say(overlay.OpClear, e.Leaf(), e.Hash(), e.V.epoch, due.path, e.V.tail, int(due.port))
	return int(c.drain(now, i)), true
}

// Flush is Expire for any queue, whatever its T_resume, and without a CLEAR: for
// a driver that stops.
func (c *ConWeave) Flush(now mono.Time) (q int, ok bool) {
	c.out = c.out[:0]
	if len(c.timers.heap) == 0 {
		return 0, false
	}
	i := c.timers.heap[0]
	c.stats.Flushed++
	c.table.At(c.queues[i].flow).V.flags |= flowGaveUp
	return int(c.drain(now, i)), true
}

// Deadline returns when Expire is to be called next; [Never] if nothing is held.
func (c *ConWeave) Deadline() mono.Time { return c.timers.deadline(c.queues) }

// Outbox returns what the last Receive or Expire has to say to sources. It is
// valid until the next call.
func (c *ConWeave) Outbox() []overlay.Message { return c.out }

// Queues returns the number of queues and how many packets they hold at most, in
// one and in all.
func (c *ConWeave) Queues() (queues, perQueue, packets int) {
	return c.params.Queues, c.params.PortPackets, c.params.Packets
}

// Grace returns θ_resume_extra: T_resume allows for that much anyway, so a driver
// that was not scheduled reads what waits for it first, the TAIL perhaps among it.
func (c *ConWeave) Grace() mono.Time { return mono.Time(c.params.ResumeExtra) }

// Counters returns what happened so far, and the state now.
func (c *ConWeave) Counters() Stats { return c.stats }

// Stats returns a pointer to a copy of Counters.
func (c *ConWeave) Stats() any { s := c.stats; return &s }

// Params returns the parameters in use.
func (c *ConWeave) Params() Params { return c.params }

// Port returns what waits for an egress port, and the most that ever did.
func (c *ConWeave) Port(port int) PortUse { return c.ports[port] }

// Retime changes θ_resume_extra, θ_resume_default and the longest hold to those of
// t that are not 0, and makes the others fit them. Queues that are held keep the
// T_resume that they have, unless that is further away than the new longest hold:
// those are due at once. It reports times that make no sense, and then changes
// nothing.
func (c *ConWeave) Retime(_ mono.Time, t *Times) error {
	if t.ResumeExtra == 0 && t.ResumeDefault == 0 && t.MaxHold == 0 {
		return nil
	}
	p := c.params
	p.MaxHold = cmp.Or(t.MaxHold, p.MaxHold)
	p.ResumeExtra, p.ResumeDefault = cmp.Or(t.ResumeExtra, p.ResumeExtra), cmp.Or(t.ResumeDefault, p.ResumeDefault)
	if t.MaxHold == 0 {
		p.ResumeExtra, p.ResumeDefault = min(p.ResumeExtra, p.MaxHold), min(p.ResumeDefault, p.MaxHold)
	}
	p.MaxHold = max(p.MaxHold, p.ResumeExtra, p.ResumeDefault)
	if err := p.Validate(); err != nil {
		return fmt.Errorf("ConWeave's destination side: %w", err)
	}
	c.params = p
	return nil
}
