package rdma

import (
	"github.com/loomfabric/loom/sim/engine"
	"github.com/loomfabric/loom/sim/network"
)

// Message is a WRITE that was posted to a queue pair.
type Message struct {
	ID    network.FlowID // whatever the poster wanted it to be known by
	Bytes uint64
	// Posted is when, Received when the receiver had all of it and of what was
	// posted before, Acked when the sender knew: the completion.
	Posted, Received, Acked engine.Time
}

// Listener handles the ends of messages.
type Listener interface {
	// Completed is called when a message is complete. It may post further
	// messages, and close the queue pair.
	Completed(now engine.Time, q *QP, m Message)
}

// Stack is all queue pairs of a run. Owned by the run's engine; not safe for
// concurrent use.
//
// In a network with parts, the ends of a queue pair work side by side, each with what it
// has to itself. What concerns both is done while all parts stand still: Open,
// [QP.Announce] and [Stack.Settle].
type Stack struct {
	net    *network.Network
	seats  []seat // by part of the network
	c      Config
	window uint64 // IRN's, packets
	listen Listener

	qps    []*QP    // by number; closed ones are used again
	closed Counters // of queue pairs that are no more
}

// seat is what a stack has in a part of the network.
type seat struct {
	net     *network.Network
	engine  *engine.Engine
	id      engine.ID
	free    []uint32 // queue pairs whose sender was here: an event of their timers may be pending
	closing []*QP    // that Settle is to deal with
}

// New returns a stack without queue pairs.
func New(n *network.Network, c Config, l Listener) *Stack {
	s := &Stack{net: n, c: c, listen: l}
	if c.Recovery == IRN {
		s.window = c.window()
	}
	for _, part := range n.Parts() {
		s.seats = append(s.seats, seat{net: part, engine: part.Engine, id: part.Engine.Register(s)})
	}
	return s
}

// Config returns what the stack runs with.
func (s *Stack) Config() *Config { return &s.c }

// Open makes a queue pair, whose rate is its source's line rate. Its FlowID is
// bound in the network until it is closed.
func (s *Stack) Open(f network.Flow) *QP {
	var q *QP
	src := &s.seats[f.Src.Net().Index]
	if n := len(src.free); n > 0 {
		q = s.qps[src.free[n-1]]
		src.free = src.free[:n-1]
	} else {
		q = &QP{stack: s, number: uint32(len(s.qps)), timer: engine.NewTimer()}
		s.qps = append(s.qps, q)
	}
	q.src, q.dst = src, &s.seats[f.Dst.Net().Index]
	q.open(f)
	s.net.Bind(f.ID, q, (*receiver)(q))
	return q
}

// Start sends a message over a queue pair of its own, which is closed when the message
// is complete.
func (s *Stack) Start(now engine.Time, f network.Flow, bytes uint64) {
	q := s.OpenFor(f)
	q.Announce(f.ID, bytes)
	q.Begin(now)
}

// OpenFor makes a queue pair for one message, with which it is closed.
func (s *Stack) OpenFor(f network.Flow) *QP {
	q := s.Open(f)
	q.oneShot = true
	return q
}

// Close ends a queue pair, and with it what it has not sent yet. Packets on
// their way are the network's to drop.
func (s *Stack) Close(q *QP) {
	if q.closed {
		return
	}
	q.closed = true
	q.timer.Off()
	q.flow.Src.Leave(q)
	if s.net.Split() {
		q.src.closing = append(q.src.closing, q)
	} else {
		s.forget(q)
	}
}

// forget makes a closed queue pair ready to be used again.
func (s *Stack) forget(q *QP) {
	s.net.Unbind(q.flow.ID)
	c := q.Counters()
	s.closed.Add(&c)
	q.src.free = append(q.src.free, q.number)
}

// Settle deals with the queue pairs that were closed while the parts of the network ran
// side by side. Until then their receivers answer.
func (s *Stack) Settle() {
	for i := range s.seats {
		seat := &s.seats[i]
		for _, q := range seat.closing {
			s.forget(q)
		}
		seat.closing = seat.closing[:0]
	}
}

// Counters returns the sums over all queue pairs, those that are closed
// included.
func (s *Stack) Counters() Counters {
	s.Settle()
	sum := s.closed
	for _, q := range s.qps {
		if !q.closed {
			c := q.Counters()
			sum.Add(&c)
		}
	}
	return sum
}

// Handle is the engine's to call: a queue pair's retransmission timer.
func (s *Stack) Handle(now engine.Time, arg uint64) {
	if q := s.qps[arg]; q.timer.Due(q.src.engine, now, q.src.id, arg) {
		q.timeout(now)
	}
}

// Counters are what happened to a queue pair, or to many.
type Counters struct {
	// The sender's.
	Packets       uint64 // data packets sent, those that were sent before included
	Bytes         uint64 // of them, with headers
	Retransmitted uint64 `stat:"retransmits"` // data packets sent again
	Nacks         uint64 // received
	Timeouts      uint64
	CNPs          uint64 `stat:"cnps"`      // received, and ACKs and NACKs that are as good as one
	Cuts          uint64 `stat:"rate_cuts"` // of the rate
	Messages      uint64 // complete

	// The receiver's.
	Received    uint64 `stat:"-"`             // data packets
	Delivered   uint64 `stat:"goodput_bytes"` // payload, each once and in order
	Duplicates  uint64 // packets that it had
	OutOfOrder  uint64 // packets that came with a gap before them
	Discarded   uint64 // of these, those that Go-Back-N dropped
	Distance    uint64 `stat:"-"` // of all of these together: packets between the expected one and them
	MaxDistance uint64 `stat:"max_gap,max"`
	// Reordered are packets, sent for the first time, that came after a later
	// one (RFC 4737 §3.3); Extent is their distances behind the latest one.
	Reordered uint64
	Extent    uint64 `stat:"-"`
	MaxExtent uint64 `stat:"max_reordered_distance,max"`
}

// Add adds o to c, as stat.Add does, which is not for the end of every flow.
func (c *Counters) Add(o *Counters) {
	c.Packets += o.Packets
	c.Bytes += o.Bytes
	c.Retransmitted += o.Retransmitted
	c.Nacks += o.Nacks
	c.Timeouts += o.Timeouts
	c.CNPs += o.CNPs
	c.Cuts += o.Cuts
	c.Messages += o.Messages
	c.Received += o.Received
	c.Delivered += o.Delivered
	c.Duplicates += o.Duplicates
	c.OutOfOrder += o.OutOfOrder
	c.Discarded += o.Discarded
	c.Distance += o.Distance
	c.MaxDistance = max(c.MaxDistance, o.MaxDistance)
	c.Reordered += o.Reordered
	c.Extent += o.Extent
	c.MaxExtent = max(c.MaxExtent, o.MaxExtent)
}
