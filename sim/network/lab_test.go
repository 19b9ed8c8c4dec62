package network

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/loomfabric/loom/sim/engine"
)

// hub is a switch that knows a port for each host.
type hub struct {
	net    *Network
	buffer *Buffer
	ports  []*Port
	route  []*Port // by HostID
	told   []string
}

func (s *hub) Receive(now engine.Time, p *Packet, _ *Port) {
	if int(p.Dst) >= len(s.route) || s.route[p.Dst] == nil {
		s.net.Drop(p, NoRoute)
		return
	}
	s.route[p.Dst].Send(now, p, p.Class)
}

func (s *hub) LinkChanged(now engine.Time, p *Port, up bool) {
	s.told = append(s.told, fmt.Sprintf("%v %s %v", now, p.Name, up))
}

// port gives the switch a port with its buffer.
func (s *hub) port(name string, c PortConfig) *Port {
	c.Buffer = s.buffer
	p := s.net.NewPort(name, len(s.ports), s, c, nil)
	s.ports = append(s.ports, p)
	return p
}

// to makes p the way to hosts.
func (s *hub) to(p *Port, hosts ...HostID) {
	for _, h := range hosts {
		for int(h) >= len(s.route) {
			s.route = append(s.route, nil)
		}
		s.route[h] = p
	}
}

// lab is a network of hubs under construction.
type lab struct {
	*Network
	hubs  []*hub
	sinks []*sink // by flow
}

func newLab() *lab { return &lab{Network: New(engine.New())} }

func (l *lab) hub(b *Buffer) *hub {
	s := &hub{net: l.Network, buffer: b}
	l.hubs = append(l.hubs, s)
	return s
}

// attach adds a host to a switch.
func (l *lab) attach(s *hub, c PortConfig) *Host {
	h := l.NewHost()
	p := s.port(fmt.Sprintf("s->h%d", h.ID), c)
	Connect(l.NewPort(fmt.Sprintf("h%d", h.ID), 0, h, PortConfig{Rate: c.Rate, Delay: c.Delay}, nil), p)
	s.to(p, h.ID)
	return h
}

// link joins two switches.
func (l *lab) link(a, b *hub, c PortConfig) (ab, ba *Port) {
	ab, ba = a.port("ab", c), b.port("ba", c)
	Connect(ab, ba)
	return ab, ba
}

// flow starts a source from a to b.
func (l *lab) flow(a, b *Host, size uint32, left int) (*testSource, *sink) {
	at := &sink{net: l.Network}
	s := &testSource{host: a, flow: FlowID(len(l.sinks)), dst: b.ID, size: size, left: left}
	l.sinks = append(l.sinks, at)
	l.Bind(s.flow, at, at)
	return s, at
}

func (l *lab) start(s *testSource) { s.host.Ready(l.Engine.Now(), s) }

func (l *lab) run(t engine.Time) { l.Engine.Run(t) }

// check is what holds in every network at any time.
func (l *lab) check(t *testing.T) {
	t.Helper()
	checkLedger(t, l.Network)
	for i, s := range l.hubs {
		if s.buffer == nil {
			continue
		}
		var waits, accounts, shared uint64
		for _, p := range s.ports {
			waits += p.QueuedIn(DataClass)
			accounts += p.account.bytes + p.account.excess
			shared += p.account.bytes
			if p.account.excess > p.account.headroom {
				t.Fatalf("switch %d, port %d: %d bytes in a headroom of %d", i, p.Index, p.account.excess, p.account.headroom)
			}
		}
		b := s.buffer
		accounts += b.own.bytes
		shared += b.own.bytes
		if waits != b.used || accounts != b.used || shared != b.shared {
			t.Fatalf("switch %d: %d bytes wait and %d are in accounts, but the buffer has %d; %d shared, counted as %d", i, waits, accounts, b.used, shared, b.shared)
		}
	}
}

// poisson sends packets into a port at random times of a rate, as a switch that
// makes them would.
type poisson struct {
	port *Port
	id   engine.ID
	r    *rand.Rand
	mean engine.Time
	size uint32
	left int
	dst  HostID
}

func newPoisson(port *Port, mean engine.Time, size uint32, n int, seed uint64) *poisson {
	a := &poisson{port: port, r: rand.New(rand.NewPCG(seed, 7)), mean: mean, size: size, left: n}
	a.id = port.net.Engine.Register(a)
	port.net.Engine.At(0, a.id, 0)
	return a
}

func (a *poisson) Handle(now engine.Time, _ uint64) {
	if a.left == 0 {
		return
	}
	a.left--
	p := a.port.net.Pool.Get()
	p.Size, p.Dst, p.Sent = a.size, a.dst, now
	a.port.Send(now, p, DataClass)
	a.port.net.Engine.At(now+engine.Time(a.r.ExpFloat64()*float64(a.mean)), a.id, 0)
}
