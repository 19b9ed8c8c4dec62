package topo

import (
	"strings"
	"testing"
	"time"

	"github.com/loomfabric/loom/config/fabric"
	"github.com/loomfabric/loom/config/vocab"
	"github.com/loomfabric/loom/sim/engine"
	"github.com/loomfabric/loom/sim/network"
	"github.com/loomfabric/loom/sim/node"
)

// shapes are fabrics of every kind, with the number of switches between hosts
// of different leaves: the least and the most.
var shapes = []struct {
	name       string
	spec       func() Spec
	near, far  int
	hosts      int
	paths      int // between the first and the last leaf
	leafUplink uint64
}{
	{"one leaf", func() Spec { return leafSpine(1, 0, 3, 1) }, 0, 0, 3, 0, 0},
	{"2x2", func() Spec { return leafSpine(2, 2, 2, 1) }, 3, 3, 4, 2, 80 * gbit},
	{"3x4, two links a pair", func() Spec { return leafSpine(3, 4, 2, 2) }, 3, 3, 6, 8 * 2, 320 * gbit},
	{"4x16", func() Spec { return leafSpine(4, 16, 1, 1) }, 3, 3, 4, 16, 640 * gbit},
	{"fat-tree of 4", func() Spec { s := wires(); s.Kind, s.K = FatTree, 4; return s }, 3, 5, 16, 4, 80 * gbit},
	{"fat-tree of 8, 2:1", func() Spec { s := wires(); s.Kind, s.K, s.Hosts.PerLeaf = FatTree, 8, 8; return s }, 3, 5, 256, 16, 160 * gbit},
	{"three layers", func() Spec {
		s := wires()
		s.Kind, s.Leaves, s.Spines, s.Cores, s.Hosts.PerLeaf = ThreeLayer, 6, 4, 3, 2
		return s
	}, 3, 5, 12, 6, 80 * gbit},
	{"vl2", func() Spec {
		s := wires()
		s.Kind, s.Leaves, s.Spines, s.Cores, s.Hosts.PerLeaf = VL2, 4, 5, 3, 2
		return s
	}, 3, 5, 8, 6, 80 * gbit},
	{"tree", func() Spec {
		s := wires()
		s.Kind, s.Leaves, s.Spines, s.Cores, s.Hosts.PerLeaf = Tree, 7, 3, 3, 2
		return s
	}, 3, 5, 14, 3, 40 * gbit},
}

func TestEveryPairOfHostsReachesEachOther(t *testing.T) {
	for _, shape := range shapes {
		for _, scheme := range []string{"ecmp", "conga", "spray", "drill"} {
			t.Run(shape.name+"/"+scheme, func(t *testing.T) {
				cfg := node.DefaultConfig()
				cfg.Scheme, cfg.Seed = scheme, 7
				if scheme == "drill" {
					cfg.Spine = "drill"
				}
				top := mustBuild(t, shape.spec(), cfg)
				if len(top.Hosts) != shape.hosts {
					t.Fatalf("%d hosts, want %d", len(top.Hosts), shape.hosts)
				}
				everyPair(t, top, shape.near, shape.far)
			})
		}
	}
}

// everyPair sends a packet from each host to each other one, and counts the
// hops that all of them took.
func everyPair(t *testing.T, top *Topology, near, far int) {
	e := top.Network.Engine
	s := &sink{pool: &top.Network.Pool}
	sent, least, most, flow := 0, 0, 0, network.FlowID(0)
	for a := range top.Hosts {
		for b := range top.Hosts {
			if a == b || len(top.Hosts) > 100 && (a*31+b)%7 != 0 {
				continue
			}
			src, dst := network.HostID(a), network.HostID(b)
			top.Network.Bind(flow, nil, s)
			top.Hosts[a].Send(e.Now(), top.packet(flow, src, dst, 1000), network.DataClass)
			flow++
			sent++
			switch from, to := top.LeafOf[a], top.LeafOf[b]; {
			case from == to:
				least, most = least+2, most+2
			default:
				least, most = least+near+1, most+far+1
			}
		}
	}
	top.settle(t)
	if s.got != sent {
		t.Errorf("%d of %d packets came: %v", s.got, sent, top.Network.Ledger())
	}
	if s.bytes != uint64(sent)*1000 {
		t.Errorf("%d packets have %d bytes at their receivers: the overlay's are still there", s.got, s.bytes)
	}
	if hops := int(top.Network.Hops()); hops < least || hops > most || near < far && hops == least {
		t.Errorf("%d hops in all, want %d to %d", hops, least, most)
	}
	if l := top.checkBalance(t); l.Made != uint64(sent) || l.TotalDropped() != 0 {
		t.Errorf("ledger %+v after %d packets", l, sent)
	}
}

func TestShapesHaveTheirPathsAndCapacities(t *testing.T) {
	for _, shape := range shapes {
		top := mustBuild(t, shape.spec(), node.DefaultConfig())
		last := len(top.Leaves) - 1
		if got := pathsAtStart(top, 0, last); last > 0 && got != shape.paths {
			t.Errorf("%s: %d paths between the outermost leaves, want %d", shape.name, got, shape.paths)
		}
		if got := top.UplinkRate(0); got != shape.leafUplink {
			t.Errorf("%s: the first leaf's uplinks carry %d, want %d", shape.name, got, shape.leafUplink)
		}
	}
}

// pathsAtStart counts the paths between two leaves that a leaf can tell apart:
// uplinks, and the choices of the next tier behind each (overlay.PathID).
func pathsAtStart(t *Topology, from, to int) (n int) {
	for _, l := range t.start[to][from] {
		n += min(max(len(t.start[to][t.plan.links[l].high]), 1), maxNext)
	}
	return n
}

func TestImpossibleTopologiesAreRefused(t *testing.T) {
	base := func(change func(s *Spec)) Spec {
		s := leafSpine(3, 2, 2, 1)
		change(&s)
		return s
	}
	delay := -time.Microsecond
	for _, c := range []struct {
		why  string
		spec Spec
	}{
		{"leaf L0 has no path to leaf L1", base(func(s *Spec) {
			s.Faults = []vocab.Fault{{Fail: "L0-S0.0"}, {Fail: "L0-S1.0"}}
		})},
		{"leaf L0 has no path to leaf L1", base(func(s *Spec) {
			s.Faults = []vocab.Fault{{Fail: "L0-S0.0"}, {Fail: "L1-S1.0"}}
		})},
		{"link \"L0-S9.0\" does not exist", base(func(s *Spec) { s.Faults = []vocab.Fault{fail(us, "L0-S9.0")} })},
		{"no rate", base(func(s *Spec) { s.Links.Rate = 0 })},
		{"link h0-L0 has no rate", base(func(s *Spec) { s.NIC.Rate = 0 })},
		{"delay of -1µs", base(func(s *Spec) { s.Overrides = []vocab.Override{{Link: "L1-S1.0", Delay: &delay}} })},
		{"link \"L3-S0.0\" does not exist", base(func(s *Spec) { s.Overrides = []vocab.Override{{Link: "L3-S0.0"}} })},
		{"L0 has 18 uplinks: at most 16", base(func(s *Spec) { s.Spines, s.Links.Parallel = 6, 3 })},
		{"no spine", base(func(s *Spec) { s.Spines = 0 })},
		{"0 leaves", base(func(s *Spec) { s.Leaves = 0 })},
		{"no hosts", base(func(s *Spec) { s.Hosts.PerLeaf = 0 })},
		{"leaves are called L0", base(func(s *Spec) { s.Hosts.List = []fabric.NamedHost{{Name: "x", Leaf: "S1"}} })},
		{"there are 3 leaves", base(func(s *Spec) { s.Hosts.List = []fabric.NamedHost{{Name: "x", Leaf: "L3"}} })},
		{"called \"h1\"", base(func(s *Spec) { s.Hosts.List = []fabric.NamedHost{{Name: "h1", Leaf: "L2"}} })},
		{"k = 5", base(func(s *Spec) { s.Kind, s.K = FatTree, 5 })},
		{"k = 40", base(func(s *Spec) { s.Kind, s.K = FatTree, 40 })},
		{"evenly to 2 pods", base(func(s *Spec) { s.Kind, s.Spines, s.Cores = ThreeLayer, 4, 1 })},
		{"no core", base(func(s *Spec) { s.Kind, s.Leaves, s.Spines = ThreeLayer, 4, 4 })},
		{"pair", base(func(s *Spec) { s.Kind, s.Spines = VL2, 1 })},
		{"17 next hops", base(func(s *Spec) { s.Kind, s.Spines, s.Cores = VL2, 4, 17 })},
		{"\"ring\" does not exist", base(func(s *Spec) { s.Kind = "ring" })},
	} {
		_, err := Build(network.New(engine.New()), c.spec, node.DefaultConfig())
		if err == nil || !strings.Contains(err.Error(), c.why) {
			t.Errorf("want an error with %q, got %v", c.why, err)
		}
	}
}

func TestPortsAndLinksHaveNames(t *testing.T) {
	top := mustBuild(t, leafSpine(2, 2, 1, 2), node.DefaultConfig())
	for _, name := range []string{"S1->L1", "S1->L1.1", "L0->S0.0", "L1->h1", "h0->L0"} {
		p, err := top.Port(name)
		if err != nil {
			t.Error(err)
		} else if want := strings.Split(name, ".")[0]; strings.Split(p.Name, ".")[0] != want {
			t.Errorf("port %s is called %s", name, p.Name)
		}
	}
	if _, err := top.Port("S2->L1"); err == nil || !strings.Contains(err.Error(), "S2->L1") {
		t.Errorf("a port that does not exist: %v", err)
	}
	l, err := top.plan.find("L1-S0.1")
	if err != nil || l.A.Name != "L1->S0.1" || l.B.Name != "S0->L1.1" || l.A.Peer != l.B {
		t.Errorf("link L1-S0.1: %+v, %v", l, err)
	}
	// An LBTag is the port index of the uplink: spine by spine, and for each its
	// parallel links, as in fabric.yaml.
	if l.A.Index != 1 {
		t.Errorf("uplink %s has LBTag %d, want 1", l.A.Name, l.A.Index)
	}
}

func TestSelect(t *testing.T) {
	s := leafSpine(2, 1, 2, 1)
	s.Hosts.List = []fabric.NamedHost{{Name: "client", Leaf: "L0"}}
	top := mustBuild(t, s, node.DefaultConfig())
	for _, c := range []struct {
		in   []string
		want []network.HostID
	}{
		{[]string{"all"}, []network.HostID{0, 1, 2, 3, 4}},
		{[]string{"L0"}, []network.HostID{0, 1, 4}},
		{[]string{"client", "h1", "h1"}, []network.HostID{1, 4}},
		{[]string{"h7"}, nil},
	} {
		got, err := top.Select(c.in)
		if len(got) != len(c.want) || (err == nil) != (c.want != nil) {
			t.Errorf("%v: %v, %v", c.in, got, err)
			continue
		}
		for i := range got {
			if got[i] != c.want[i] {
				t.Errorf("%v: %v, want %v", c.in, got, c.want)
			}
		}
	}
}

func TestIdleTimesAreExact(t *testing.T) {
	for _, shape := range shapes {
		for _, n := range []uint64{1, 2, 7} {
			for _, last := range []uint32{1500, 64} {
				top := mustBuild(t, shape.spec(), node.DefaultConfig())
				src, dst := network.HostID(0), network.HostID(len(top.Hosts)-1)
				s := &sink{pool: &top.Network.Pool}
				top.Network.Bind(0, nil, s)
				for i := range n {
					size := uint32(1500)
					if i == n-1 {
						size = last
					}
					top.Hosts[src].Send(0, top.packet(0, src, dst, size), network.DataClass)
				}
				top.settle(t)
				if want := top.IdleFCT(src, dst, n, 1500, last); s.last != want {
					t.Errorf("%s: the last of %d packets came at %v, said was %v", shape.name, n, s.last, want)
				}
			}
		}
	}
}

// A second opinion, with pencil and paper: 1500 bytes take 1200 ns at 10 Gbit/s,
// and 1550 take 310 ns at 40 Gbit/s; four links of 1 µs each.
func TestIdleOneWayByHand(t *testing.T) {
	top := mustBuild(t, leafSpine(2, 2, 1, 1), node.DefaultConfig())
	if got, want := top.IdleOneWay(0, 1, 1500), (1200+310+310+1200+4000)*engine.Nanosecond; got != want {
		t.Errorf("%v, want %v", got, want)
	}
}
