package rdma

import (
	"math/rand/v2"
	"testing"

	"github.com/loomfabric/loom/sim/engine"
	"github.com/loomfabric/loom/sim/network"
)

// lab is hosts around one switch, and what the tests want to see of it.
type lab struct {
	t     testing.TB
	e     *engine.Engine
	n     *network.Network
	s     *Stack
	hosts []*network.Host
	sw    *testSwitch
	flows network.FlowID
	done  []completion
	after func(now engine.Time, q *QP, m Message)
}

type completion struct {
	flow network.FlowID
	Message
}

func (l *lab) Completed(now engine.Time, q *QP, m Message) {
	l.done = append(l.done, completion{q.flow.ID, m})
	if l.after != nil {
		l.after(now, q, m)
	}
}

// testSwitch sends packets on to their host. It marks as RED does, by the queue
// that a packet finds, and does to packets whatever a test wants.
type testSwitch struct {
	l          *lab
	ports      []*network.Port
	kmin, kmax uint64
	pmax       float64
	rand       *rand.Rand
	// meddle says what happens to a packet: it is dropped, or kept for a while.
	meddle func(now engine.Time, p *network.Packet) (drop bool, keep engine.Time)
	id     engine.ID
	kept   []*network.Packet
	drops  int
}

const (
	gig  = 1_000_000_000
	usec = engine.Microsecond
	nsec = engine.Nanosecond
)

// newLab makes hosts with links of the given rates, 1 µs each way.
func newLab(t testing.TB, c Config, rates ...uint64) *lab {
	t.Helper()
	return newLabOf(t, c, network.PortConfig{}, rates...)
}

// newLabOf is newLab with a switch whose ports are like the given one.
func newLabOf(t testing.TB, c Config, port network.PortConfig, rates ...uint64) *lab {
	t.Helper()
	e := engine.New()
	l := &lab{t: t, e: e, n: network.New(e)}
	l.sw = &testSwitch{l: l, rand: rand.New(rand.NewPCG(1, 2))}
	l.sw.id = e.Register(l.sw)
	for i, r := range rates {
		h := l.n.NewHost()
		port.Rate, port.Delay = r, usec
		h.Port = l.n.NewPort("host", 0, h, network.PortConfig{Rate: r, Delay: usec}, nil)
		p := l.n.NewPort("switch", i, l.sw, port, nil)
		network.Connect(h.Port, p)
		l.sw.ports = append(l.sw.ports, p)
		l.hosts = append(l.hosts, h)
	}
	if err := l.n.Validate(); err != nil {
		t.Fatal(err)
	}
	l.s = New(l.n, c, l)
	return l
}

func (l *lab) open(src, dst int) *QP {
	l.flows++
	return l.s.Open(network.Flow{ID: l.flows, Src: l.hosts[src], Dst: l.hosts[dst], Hash: uint32(l.flows), ReverseHash: ^uint32(l.flows)})
}

// Post sends a message that tag is the number of.
func (q *QP) Post(now engine.Time, bytes, tag uint64) { q.Send(now, network.FlowID(tag), bytes) }

func (s *testSwitch) Receive(now engine.Time, p *network.Packet, _ *network.Port) {
	if s.meddle != nil {
		drop, keep := s.meddle(now, p)
		if drop {
			s.drops++
			s.l.n.Drop(p, network.Unwanted)
			return
		}
		if keep > 0 {
			s.kept = append(s.kept, p)
			s.l.e.At(now+keep, s.id, uint64(len(s.kept)-1))
			return
		}
	}
	s.forward(now, p)
}

func (s *testSwitch) Handle(now engine.Time, arg uint64) { s.forward(now, s.kept[arg]) }

func (s *testSwitch) forward(now engine.Time, p *network.Packet) {
	out := s.ports[p.Dst]
	c := network.ControlClass
	if p.Kind == network.Data {
		c = network.DataClass
		if q := out.Queued(); p.ECT && s.kmax > 0 && q > s.kmin {
			p.CE = p.CE || q > s.kmax || s.rand.Float64() < s.pmax*float64(q-s.kmin)/float64(s.kmax-s.kmin)
		}
	}
	out.Send(now, p, c)
}

// run lets everything happen and expects the network to be empty then.
func (l *lab) run() {
	l.t.Helper()
	l.e.Run(engine.Never - 1)
	if n := l.n.Pool.Out(); n != 0 {
		l.t.Fatalf("%d packets are somewhere at the end", n)
	}
	g := l.n.Ledger()
	if err := g.Check(); err != nil {
		l.t.Fatal(err)
	}
}

func quiet(r Recovery) Config {
	c := Defaults()
	c.Recovery = r
	c.Control = Uncontrolled
	return c
}

// base is what the model says about a message of a queue pair in the lab.
func (l *lab) base(q *QP, bytes uint64) (received, acked engine.Time) {
	out := []hop{{Rate: q.flow.Src.Port.Rate, Delay: usec}, {Rate: q.flow.Dst.Port.Rate, Delay: usec}}
	back := []hop{out[1], out[0]}
	return l.s.c.ideal(bytes, out, back)
}

// rate returns the present sending rate, bit/s.
func (q *QP) rate(now engine.Time) uint64 {
	if q.stack.c.Control == DCQCN {
		q.rp.catchUp(now)
	}
	return uint64(q.rp.rate)
}

// inFlight returns how many packets were sent, or sent again after a rewind,
// and are not acknowledged.
func (q *QP) inFlight() uint64 { return q.next - q.una }

// pending returns how many messages are posted and not complete.
func (q *QP) pending() int { return q.messages.n() }

// fct returns the completion time: from being posted to the last ACK, with the
// wait behind earlier messages of the queue pair.
func (m *Message) fct() engine.Time { return m.Acked - m.Posted }
