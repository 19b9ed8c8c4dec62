package tcp

import (
	"fmt"

	"github.com/loomfabric/loom/sim/engine"
	"github.com/loomfabric/loom/sim/network"
)

// Done handles the ends of flows.
type Done interface {
	// FlowDone is called when the receiver has all bytes of a flow, or of a
	// message on a persistent connection. It may start others.
	FlowDone(now engine.Time, id network.FlowID)
}

// Flow describes a flow, or a persistent connection.
type Flow struct {
	network.Flow
	Bytes uint64 // at least 1; Endless: no end
}

// Endless is a flow's size that it does not reach.
const Endless = 1 << 60

// Stack is the TCP of all hosts of a run: it keeps connections and their timers.
// Like its engine it is one goroutine's.
type Stack struct {
	cfg     Config
	net     *network.Network
	seats   []seat // by part of the network
	control control
	done    Done
	ended   func(id network.FlowID, c *Counters) // nil: nobody asks when connections end

	conns []*Conn
	free  map[[2]*seat][]*Conn // by where its ends were: events of their timers may be pending
	// Connections of MPTCP that are not in use.
	freeMulti []*Multi
	sum       Counters // of connections that are closed
}

// seat is what a stack has in a part of the network.
type seat struct {
	net     *network.Network
	engine  *engine.Engine
	id      engine.ID
	closing []*Conn // that Settle is to deal with
}

// New returns a stack. done may be nil.
func New(net *network.Network, cfg Config, done Done) *Stack {
	s := &Stack{cfg: cfg, net: net, done: done, control: controls[cfg.Control], free: map[[2]*seat][]*Conn{}}
	for _, part := range net.Parts() {
		s.seats = append(s.seats, seat{net: part, engine: part.Engine, id: part.Engine.Register(s)})
	}
	return s
}

// Config returns the configuration.
func (s *Stack) Config() Config { return s.cfg }

// Counters returns the sum over all connections so far. It looks at every one.
func (s *Stack) Counters() Counters {
	s.Settle()
	sum := s.sum
	for _, c := range s.conns {
		if c.state != closed {
			sum.Add(&c.counters)
		}
	}
	return sum
}

// Start sends a flow over a new connection, which ends with it.
func (s *Stack) Start(now engine.Time, f Flow) {
	c := s.OpenFor(f)
	c.Announce(f.ID, f.Bytes)
	c.Begin(now)
}

// OpenFor opens a connection for one message, with which it is closed.
func (s *Stack) OpenFor(f Flow) *Conn {
	c := s.Open(f)
	c.oneShot = true
	return c
}

// Open makes a persistent connection; f.Bytes is not looked at. Nothing is sent
// before the first message, which waits for the handshake if there is one.
func (s *Stack) Open(f Flow) *Conn {
	if f.Src == nil || f.Dst == nil || f.Src == f.Dst {
		panic(fmt.Sprintf("tcp: flow %d is not between two hosts", f.ID))
	}
	var c *Conn
	ends := [2]*seat{&s.seats[f.Src.Net().Index], &s.seats[f.Dst.Net().Index]}
	if free := s.free[ends]; len(free) > 0 {
		c = free[len(free)-1]
		s.free[ends] = free[:len(free)-1]
	} else {
		c = &Conn{stack: s, index: uint64(len(s.conns)), near: ends[0], far: ends[1], rto: engine.NewTimer()}
		c.recv.conn = c
		c.recv.timer = engine.NewTimer()
		s.conns = append(s.conns, c)
	}
	c.reset(f)
	s.net.Bind(f.ID, c, &c.recv)
	return c
}

// release ends a connection. Its timers' events stay in the engine's queue; the
// connection's next use takes them over.
func (s *Stack) release(now engine.Time, c *Conn) {
	c.src.Leave(c)
	c.rto.Off()
	c.state = closed
	if s.net.Split() {
		c.near.closing = append(c.near.closing, c)
	} else {
		s.forget(c)
	}
}

// forget makes a closed connection ready to be used again.
func (s *Stack) forget(c *Conn) {
	s.net.Unbind(c.flow)
	c.recv.timer.Off()
	s.sum.Add(&c.counters)
	if s.ended != nil {
		s.ended(c.flow, &c.counters)
	}
	ends := [2]*seat{c.near, c.far}
	s.free[ends] = append(s.free[ends], c)
}

// Settle deals with the connections that were closed while the parts of the network ran
// side by side. Until then their receivers answer.
func (s *Stack) Settle() {
	for i := range s.seats {
		seat := &s.seats[i]
		for _, c := range seat.closing {
			s.forget(c)
		}
		seat.closing = seat.closing[:0]
	}
}

// The timers of a connection: the lowest bit of an event's argument; above it
// stands the connection's index.
const (
	timerRTO uint64 = iota
	timerAck
)

// timerArg is the argument of a connection's timer's events.
func timerArg(index, timer uint64) uint64 { return index<<1 | timer }

// Handle is the engine's to call.
func (s *Stack) Handle(now engine.Time, arg uint64) {
	c := s.conns[arg>>1]
	switch arg & 1 {
	case timerRTO:
		if c.rto.Due(c.near.engine, now, c.near.id, arg) {
			c.timeout(now)
		}
	case timerAck:
		if c.recv.timer.Due(c.far.engine, now, c.far.id, arg) {
			c.recv.ack(now)
		}
	}
}
