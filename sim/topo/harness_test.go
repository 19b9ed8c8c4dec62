package topo

import (
	"testing"
	"time"

	"github.com/loomfabric/loom/config/fabric"
	"github.com/loomfabric/loom/config/vocab"
	"github.com/loomfabric/loom/internal/units"
	"github.com/loomfabric/loom/overlay"
	"github.com/loomfabric/loom/reorder"
	"github.com/loomfabric/loom/sim/engine"
	"github.com/loomfabric/loom/sim/network"
	"github.com/loomfabric/loom/sim/node"
)

const (
	gbit = 1_000_000_000
	us   = engine.Microsecond
)

// leafSpine is a fabric with ten hosts' worth of everything.
func leafSpine(leaves, spines, hosts, parallel int) Spec {
	s := wires()
	s.Kind, s.Leaves, s.Spines, s.Hosts.PerLeaf, s.Links.Parallel = LeafSpine, leaves, spines, hosts, parallel
	return s
}

// wires has links of 10 Gbit/s to hosts, and of 40 Gbit/s between switches.
func wires() Spec {
	return Spec{
		NIC:   link(10 * gbit),
		Hosts: fabric.Hosts{Link: link(10 * gbit)},
		Links: vocab.Links{Link: link(40 * gbit)},
	}
}

func link(r units.Rate) vocab.Link {
	return vocab.Link{Rate: r, Egress: vocab.Egress{Delay: time.Microsecond}}
}

func rate(r units.Rate) *units.Rate { return &r }

// fail takes a link down.
func fail(at engine.Time, link string) vocab.Fault {
	return vocab.Fault{At: at.Duration(), Fail: link}
}

// restore brings it up again.
func restore(at engine.Time, link string) vocab.Fault {
	return vocab.Fault{At: at.Duration(), Restore: link}
}

func mustBuild(t testing.TB, s Spec, c node.Config) *Topology {
	t.Helper()
	top, err := Build(network.New(engine.New()), s, c)
	if err != nil {
		t.Fatal(err)
	}
	if err := top.Network.Validate(); err != nil {
		t.Fatal(err)
	}
	return top
}

// settle lets time pass until all that hosts have sent is at its end, long before the
// leaves' next HELLO.
func (t *Topology) settle(tb testing.TB) {
	tb.Helper()
	e := t.Network.Engine
	e.Run(e.Now() + 47*engine.Millisecond) // HELLOs begin at multiples of 100
	if l := t.Network.Ledger(); l.Queued+l.Flying+l.Held != 0 {
		tb.Errorf("packets are still under way: %+v", l)
	}
}

// silence lets time pass without a HELLO from anybody.
func (t *Topology) silence(d engine.Time) {
	for _, l := range t.Leaves {
		l.Brain().SetHello(reorder.Never)
	}
	e := t.Network.Engine
	e.At(e.Now()+d, e.Register(nothing{}), 0)
	e.Run(e.Now() + d)
}

type nothing struct{}

func (nothing) Handle(engine.Time, uint64) {}

// sink is the receiver of a flow.
type sink struct {
	pool  *network.Pool
	got   int
	last  engine.Time
	bytes uint64
	seen  []network.Packet
	keep  bool
}

func (s *sink) Receive(now engine.Time, p *network.Packet) {
	s.got++
	s.last = now
	s.bytes += uint64(p.Size)
	if s.keep {
		s.seen = append(s.seen, *p)
	}
	s.pool.Put(p)
}

// flowHash stands for the dissector's.
func flowHash(f network.FlowID) uint32 {
	var frame [overlay.EthernetLen]byte
	frame[0], frame[1], frame[2], frame[3], frame[6] = 2, byte(f>>16), byte(f>>8), byte(f), 2
	var m overlay.Meta
	overlay.Dissect(frame[:], 1, &m)
	return m.Hash
}

// packet makes a packet of a flow.
func (t *Topology) packet(f network.FlowID, src, dst network.HostID, size uint32) *network.Packet {
	p := t.Network.Pool.Get()
	p.Flow, p.Src, p.Dst, p.Size, p.Len, p.Hash, p.ECT = f, src, dst, size, size, flowHash(f), true
	return p
}

// checkBalance fails the test if packets came from nowhere or went there.
func (t *Topology) checkBalance(tb testing.TB) network.Ledger {
	tb.Helper()
	l := t.Network.Ledger()
	if err := l.Check(); err != nil {
		tb.Error(err)
	}
	return l
}
