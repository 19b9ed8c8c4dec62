package node

import (
	"testing"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/overlay"
	"github.com/loomfabric/loom/reorder"
	"github.com/loomfabric/loom/sim/engine"
	"github.com/loomfabric/loom/sim/network"
)

// relay forwards by one port: what a hop costs without a switch.
type relay struct{ out *network.Port }

func (r *relay) Receive(now engine.Time, p *network.Packet, _ *network.Port) {
	r.out.Send(now, p, p.Class)
}

// end takes packets for good.
type end struct{ pool *network.Pool }

func (e *end) Receive(_ engine.Time, p *network.Packet, _ *network.Port) { e.pool.Put(p) }

// hop is a node with packets that come to it one by one, each after the one
// before it has left the wire behind the node.
type hop struct {
	net  *network.Network
	node network.Node
	in   *network.Port
	n    uint32
	make func(p *network.Packet, n uint32)
	keep func(now engine.Time) // now and then: the peer is capable; may be nil
}

const wire = 100 * gbit

func (h *hop) packet() {
	now := h.net.Engine.Now()
	p := h.net.Pool.Get()
	p.Size, p.Len, p.ECT, p.Class = 1000, 1000, true, network.DataClass
	if h.make(p, h.n); h.keep != nil && h.n%1024 == 0 {
		h.keep(now)
	}
	h.n++
	h.node.Receive(now, p, h.in)
	h.net.Engine.Run(now + 5*us)
}

func flowOf(n uint32) uint32 { return (n % 64) * 0x9e3779b9 }

// leafHop is the way from host 0, behind one of two leaves, into a fabric with
// eight uplinks, or with down the way out of it.
func leafHop(b testing.TB, scheme string, down bool) *hop {
	cfg := DefaultConfig()
	cfg.Scheme = scheme
	c := network.PortConfig{Rate: wire}
	net := network.New(engine.New())
	where := &Directory{}
	leaves := [2]*Leaf{}
	for i := range leaves {
		l, err := NewLeaf(net, "L", uint16(i), 2, where, cfg)
		if err != nil {
			b.Fatal(err)
		}
		leaves[i] = l
		for range 8 {
			p, err := l.AddUplink("up", c)
			if err != nil {
				b.Fatal(err)
			}
			network.Connect(p, net.NewPort("end", 0, &end{&net.Pool}, c, nil))
		}
		l.SetPaths(uint16(1-i), []uint8{0, 1, 2, 3, 4, 5, 6, 7})
	}
	for i, l := range leaves {
		network.Connect(l.AddHost("host", network.HostID(i), c), net.NewPort("end", 0, &end{&net.Pool}, c, nil))
	}
	if err := Join(leaves[:]); err != nil {
		b.Fatal(err)
	}
	h := &hop{net: net, node: leaves[0], in: leaves[0].access[0]}
	h.keep = func(now engine.Time) { leaves[0].shared.Capable.Confirm(1, now.Mono()) }
	h.make = func(p *network.Packet, n uint32) { p.Src, p.Dst, p.Hash = 0, 1, flowOf(n) }
	if down {
		h.in = leaves[0].uplinks[0].port
		h.make = func(p *network.Packet, n uint32) {
			p.Src, p.Dst, p.Hash, p.SrcLeaf, p.DstLeaf = 1, 0, flowOf(n), 1, 0
			p.Size, p.Overhead = 1050, 50
			p.Fabric = overlay.Fabric{Capable: true, LBTag: uint8(n % 8), CE: uint8(n % 3), FBValid: true, FBTag: uint8(n % 8), FBMetric: 2}
			switch scheme {
			case "conweave":
				p.Fabric.Scheme, p.Fabric.Shim = reorder.SchemeID, true
			case "reed": // every second packet waits for the one behind it
				p.Fabric.Scheme, p.Fabric.Shim = balance.Find(scheme).Wire, true
				p.Fabric.Arg = overlay.Tstamp(n/64) ^ 1
			case "presto": // each packet the flow's next flowcell
				p.Fabric.Scheme, p.Fabric.Shim, p.Fabric.Tail = balance.Find(scheme).Wire, true, true
				p.Fabric.Arg = overlay.Tstamp(n / 64)
			}
		}
	}
	return h
}

// spineHop is the way through a spine with four next hopKinds to the leaf.
func spineHop(b testing.TB, own string, capable bool) *hop {
	cfg := DefaultConfig()
	cfg.Spine = own
	net := network.New(engine.New())
	s, err := NewSpine(net, "S", 0, 64, cfg)
	if err != nil {
		b.Fatal(err)
	}
	for range 8 {
		network.Connect(s.AddPort("p", network.PortConfig{Rate: wire}), net.NewPort("end", 0, &end{&net.Pool}, network.PortConfig{Rate: wire}, nil))
	}
	if err := s.SetRoute(7, []int{2, 3, 4, 5}); err != nil {
		b.Fatal(err)
	}
	return &hop{net: net, node: s, in: s.ports[0].port, make: func(p *network.Packet, n uint32) {
		p.DstLeaf, p.Hash, p.Fabric = 7, flowOf(n), overlay.Fabric{Capable: capable, Path: overlay.MakePathID(1, uint8(n))}
	}}
}

// hopKinds are what is measured; the first one is what to subtract.
var hopKinds = []struct {
	name string
	make func(testing.TB) *hop
}{
	{"port alone", func(testing.TB) *hop {
		net := network.New(engine.New())
		c := network.PortConfig{Rate: wire}
		r := &relay{}
		r.out = net.NewPort("relay", 0, r, c, nil)
		network.Connect(r.out, net.NewPort("end", 0, &end{&net.Pool}, c, nil))
		return &hop{net: net, node: r, make: func(*network.Packet, uint32) {}}
	}},
	{"leaf up, ecmp", func(b testing.TB) *hop { return leafHop(b, "ecmp", false) }},
	{"leaf up, letflow", func(b testing.TB) *hop { return leafHop(b, "letflow", false) }},
	{"leaf up, conga", func(b testing.TB) *hop { return leafHop(b, "conga", false) }},
	{"leaf up, drill", func(b testing.TB) *hop { return leafHop(b, "drill", false) }},
	{"leaf up, conweave", func(b testing.TB) *hop { return leafHop(b, "conweave", false) }},
	{"leaf up, presto", func(b testing.TB) *hop { return leafHop(b, "presto", false) }},
	{"leaf up, reed", func(b testing.TB) *hop { return leafHop(b, "reed", false) }},
	{"leaf down, conga", func(b testing.TB) *hop { return leafHop(b, "conga", true) }},
	{"leaf down, conweave", func(b testing.TB) *hop { return leafHop(b, "conweave", true) }},
	{"leaf down, presto", func(b testing.TB) *hop { return leafHop(b, "presto", true) }},
	{"leaf down, reed", func(b testing.TB) *hop { return leafHop(b, "reed", true) }},
	{"spine, selector", func(b testing.TB) *hop { return spineHop(b, "", true) }},
	{"spine, hash", func(b testing.TB) *hop { return spineHop(b, "", false) }},
	{"spine, drill", func(b testing.TB) *hop { return spineHop(b, "drill", true) }},
}

func BenchmarkHop(b *testing.B) {
	for _, h := range hopKinds {
		b.Run(h.name, func(b *testing.B) {
			x := h.make(b)
			x.packet()
			b.ReportAllocs()
			b.ResetTimer()
			for range b.N {
				x.packet()
			}
		})
	}
}

func TestHopsDoNotAllocate(t *testing.T) {
	for _, h := range hopKinds {
		x := h.make(t)
		for range 1000 {
			x.packet()
		}
		if n := testing.AllocsPerRun(1000, x.packet); n != 0 {
			t.Errorf("%s: %v allocations a packet", h.name, n)
		}
	}
}
