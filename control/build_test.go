package control

import (
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/loomfabric/loom/config"
	"github.com/loomfabric/loom/dataplane"
	"github.com/loomfabric/loom/overlay"
)

var epoch = time.Unix(1000, 0)

func addr(s string) netip.Addr  { return netip.MustParseAddr(s) }
func pfx(s string) netip.Prefix { return netip.MustParsePrefix(s) }
func mac(last byte) overlay.MAC { return overlay.MAC{2, 0, 0, 0, 0, last} }
func link(i int, n string) Link {
	return Link{Index: i, Name: n, Up: true, MAC: mac(byte(i)), MTU: 1600}
}
func hop(i int, gw string) NextHop {
	if gw == "" {
		return NextHop{Ifindex: i}
	}
	return NextHop{Ifindex: i, Gateway: addr(gw)}
}

var leafPorts = []dataplane.PortConfig{
	{Name: "up0", Kind: dataplane.Uplink},
	{Name: "up1", Kind: dataplane.Uplink},
	{Name: "acc0", Kind: dataplane.Access},
}

func leafState() State {
	return State{
		Links: []Link{link(10, "up0"), link(11, "up1"), link(12, "acc0"), link(13, "mgmt")},
		Routes: []Route{
			{Dst: pfx("0.0.0.0/0"), Hops: []NextHop{hop(13, "192.168.0.1")}},
			{Dst: pfx("10.255.0.2/32"), Hops: []NextHop{hop(11, "10.1.1.0"), hop(10, "10.1.0.0")}},
			{Dst: pfx("10.255.0.3/32"), Hops: []NextHop{hop(10, "")}},
			{Dst: pfx("10.255.1.0/24"), Hops: []NextHop{hop(10, "10.1.0.0")}},
			{Dst: pfx("10.255.1.9/32"), Reject: true},
		},
		Neighbours: []Neighbour{
			{Ifindex: 10, Addr: addr("10.1.0.0"), MAC: mac(0xa0), Usable: true},
			{Ifindex: 11, Addr: addr("10.1.1.0")},
		},
	}
}

func leafOverlay() config.Leaf {
	p := []netip.Addr{addr("10.255.0.2"), addr("10.255.0.3"), addr("10.255.1.8"), addr("10.255.1.9"), addr("10.99.0.1")}
	return config.Leaf{
		Peers: p,
		VNIs: []config.VNI{
			{VNI: 100, Flood: p[:2], Static: []config.Static{{MAC: config.MAC(mac(2)), Interface: "acc0", VLAN: 9}}},
			{VNI: 200, Storm: config.Storm{Rate: 10, Burst: 5}, FDBLimit: 7, Static: []config.Static{{MAC: config.MAC(mac(1)), VTEP: p[1]}}},
		},
	}
}

// peerHops names the next hops of a peer as "port gateway" strings.
func peerHops(t *dataplane.Tables, vtep string) []string {
	out := []string{}
	for _, p := range t.Peers {
		if p.VTEP == addr(vtep) {
			for _, id := range p.Hops {
				h := t.Hops[id]
				out = append(out, leafPorts[h.Port].Name+" "+h.Gateway.String())
			}
		}
	}
	return out
}

func TestBuildLeaf(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*State)
		peer   string
		want   []string
	}{
		{"multipath, in the order of ports", nil, "10.255.0.2", []string{"up0 10.1.0.0", "up1 10.1.1.0"}},
		{"on link: the peer is the gateway", nil, "10.255.0.3", []string{"up0 10.255.0.3"}},
		{"longest prefix", nil, "10.255.1.8", []string{"up0 10.1.0.0"}},
		{"a rejecting route hides a wider one", nil, "10.255.1.9", []string{}},
		{"a route by way of another interface", nil, "10.99.0.1", []string{}},
		{"uplink down", func(s *State) { s.Links[0].Up = false }, "10.255.0.2", []string{"up1 10.1.1.0"}},
		{"uplink gone", func(s *State) { s.Links = s.Links[1:] }, "10.255.0.2", []string{"up1 10.1.1.0"}},
		{"next hop dead", func(s *State) { s.Routes[1].Hops[0].Dead = true }, "10.255.0.2", []string{"up0 10.1.0.0"}},
		{"all down", func(s *State) { s.Links[0].Up, s.Links[1].Up = false, false }, "10.255.0.2", []string{}},
		{"a dead route gives way to a wider one", func(s *State) {
			s.Links[1].Up = false
			s.Routes[1].Hops = s.Routes[1].Hops[:1]
			s.Routes = append(s.Routes, Route{Dst: pfx("10.255.0.0/16"), Hops: []NextHop{hop(10, "10.1.0.0")}})
		}, "10.255.0.2", []string{"up0 10.1.0.0"}},
		{"a backup route decides when the best one is dead", func(s *State) {
			s.Routes[1].Hops = []NextHop{hop(11, "10.1.1.0")}
			s.Routes = append(s.Routes, Route{Dst: pfx("10.255.0.2/32"), Metric: 100, Hops: []NextHop{hop(10, "10.1.0.0")}})
			s.Links[1].Up = false
		}, "10.255.0.2", []string{"up0 10.1.0.0"}},
		{"a backup route does not decide beside a live one", func(s *State) {
			s.Routes[1].Hops = []NextHop{hop(11, "10.1.1.0")}
			s.Routes = append(s.Routes, Route{Dst: pfx("10.255.0.2/32"), Metric: 100, Hops: []NextHop{hop(10, "10.1.0.0")}})
		}, "10.255.0.2", []string{"up1 10.1.1.0"}},
		{"a backup route goes before a wider one", func(s *State) {
			s.Routes[1].Hops = []NextHop{hop(11, "10.1.1.0")}
			s.Routes[1].Hops[0].Dead = true
			s.Routes = append(s.Routes, Route{Dst: pfx("10.255.0.2/32"), Metric: 100, Reject: true}, Route{Dst: pfx("10.255.0.0/16"), Hops: []NextHop{hop(10, "10.1.0.0")}})
		}, "10.255.0.2", []string{}},
		{"an access port is no uplink", func(s *State) { s.Routes[2].Hops[0].Ifindex = 12 }, "10.255.0.3", []string{}},
		{"an IPv6 gateway", func(s *State) { s.Routes[2].Hops[0] = hop(10, "fe80::1") }, "10.255.0.3", []string{"up0 fe80::1"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s, o := leafState(), leafOverlay()
			if tc.change != nil {
				tc.change(&s)
			}
			tables := NewBuilder(dataplane.Leaf, leafPorts).Build(&s, &o, epoch)
			if got := peerHops(tables, tc.peer); !slices.Equal(got, tc.want) {
				t.Errorf("next hops %q, want %q", got, tc.want)
			}
		})
	}
}

// Weights come with their next hops, in whatever order the kernel lists them; of those
// that are out nothing is left, and equal ones are none.
func TestBuildWeights(t *testing.T) {
	weighted := func(i int, gw string, weight uint16) NextHop {
		h := hop(i, gw)
		h.Weight = weight
		return h
	}
	for _, tc := range []struct {
		name string
		hops []NextHop
		want []uint16
	}{
		{"as the kernel lists them", []NextHop{weighted(10, "10.1.0.0", 3), weighted(11, "10.1.1.0", 1)}, []uint16{3, 1}},
		{"the other way round", []NextHop{weighted(11, "10.1.1.0", 256), weighted(10, "10.1.0.0", 1)}, []uint16{1, 256}},
		{"equal", []NextHop{weighted(10, "10.1.0.0", 4), weighted(11, "10.1.1.0", 4)}, nil},
		{"none", []NextHop{hop(10, "10.1.0.0"), weighted(11, "10.1.1.0", 1)}, nil},
		{"one hop twice", []NextHop{hop(10, "10.1.0.0"), weighted(11, "10.1.1.0", 2), weighted(10, "10.1.0.0", 4)}, []uint16{5, 2}},
		{"one that is dead", []NextHop{weighted(10, "10.1.0.0", 2), {Ifindex: 11, Gateway: addr("10.1.1.0"), Weight: 9, Dead: true}, weighted(11, "10.1.1.2", 5)}, []uint16{2, 5}},
		{"one that is left", []NextHop{weighted(10, "10.1.0.0", 2), {Ifindex: 11, Gateway: addr("10.1.1.0"), Weight: 9, Dead: true}}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s, o := leafState(), leafOverlay()
			s.Routes[1].Hops = tc.hops
			leaf := NewBuilder(dataplane.Leaf, leafPorts).Build(&s, &o, epoch)
			if got := leaf.Peers[0].Weights; !slices.Equal(got, tc.want) || (got == nil) != (tc.want == nil) {
				t.Errorf("weights of the peer's next hops %v, want %v", got, tc.want)
			}
			spine := NewBuilder(dataplane.Spine, leafPorts[:2]).Build(&s, nil, epoch)
			g, _ := spine.Routes.Lookup(addr("10.255.0.2"))
			if got := spine.Groups[g].Weights; !slices.Equal(got, tc.want) {
				t.Errorf("weights of the spine's next hops %v, want %v", got, tc.want)
			}
		})
	}
}

// Routes over the same next hops with other weights are not the same, at once and after
// a change.
func TestWeightsMakeTables(t *testing.T) {
	for _, role := range []dataplane.Role{dataplane.Leaf, dataplane.Spine} {
		b := NewBuilder(role, leafPorts[:2])
		s, o := leafState(), leafOverlay()
		s.Routes = append(s.Routes, Route{Dst: pfx("10.255.9.0/24"), Hops: slices.Clone(s.Routes[1].Hops)})
		s.Routes[1].Hops[0].Weight = 2
		first := b.Build(&s, &o, epoch)
		if role == dataplane.Spine {
			g1, _ := first.Routes.Lookup(addr("10.255.0.2"))
			g2, _ := first.Routes.Lookup(addr("10.255.9.1"))
			if g1 == g2 {
				t.Error("routes of other weights share their group")
			}
		}
		s.Routes[1].Hops[0].Weight = 3
		if b.Build(&s, &o, epoch) == first {
			t.Errorf("role %v: another weight made no new tables", role)
		}
	}
}

// A VTEP that is no address of the machine changes nothing but that the tables say so.
func TestBuildTellsOfTheVTEP(t *testing.T) {
	b := NewBuilder(dataplane.Leaf, leafPorts)
	s, o := leafState(), leafOverlay()
	o.VTEP = addr("10.255.0.1")
	gone := b.Build(&s, &o, epoch)
	s.Addresses = []netip.Addr{addr("10.1.0.1"), o.VTEP}
	there := b.Build(&s, &o, epoch)
	if !gone.NoVTEP || there.NoVTEP || !slices.EqualFunc(gone.Peers, there.Peers, func(a, b dataplane.Peer) bool { return slices.Equal(a.Hops, b.Hops) }) {
		t.Errorf("without the address: %v, with it: %v; peers %v, %v", gone.NoVTEP, there.NoVTEP, gone.Peers, there.Peers)
	}
	spine := NewBuilder(dataplane.Spine, leafPorts[:2])
	if spine.Build(&State{Links: s.Links}, nil, epoch).NoVTEP {
		t.Error("a spine misses a VTEP")
	}
}

func TestBuildLeafTables(t *testing.T) {
	s, o := leafState(), leafOverlay()
	tables := NewBuilder(dataplane.Leaf, leafPorts).Build(&s, &o, epoch)
	if want := (dataplane.PortState{Ifindex: 11, Up: true, MAC: mac(11), MTU: 1600, NeedMTU: 1650}); tables.Ports[1] != want {
		t.Errorf("port %+v, want %+v", tables.Ports[1], want)
	}
	for _, h := range tables.Hops {
		if want := h.Gateway == addr("10.1.0.0"); h.Resolved != want || want && h.MAC != mac(0xa0) {
			t.Errorf("hop %+v", h)
		}
	}
	want := []dataplane.VNI{{VNI: 100, Flood: []dataplane.PeerID{0, 1}}, {VNI: 200, Storm: dataplane.StormLimit{Rate: 10, Burst: 5}, FDBLimit: 7}}
	if !reflect.DeepEqual(tables.VNIs, want) {
		t.Errorf("VNIs %+v", tables.VNIs)
	}
	static := []dataplane.StaticMAC{
		{VNI: 0, MAC: mac(2), Port: 2, VLAN: 9},
		{VNI: 1, MAC: mac(1), Peer: 1, Port: dataplane.NoPort},
	}
	if !slices.Equal(tables.Static, static) {
		t.Errorf("static %+v", tables.Static)
	}
}

func TestBuildReturnsTheSameTables(t *testing.T) {
	b := NewBuilder(dataplane.Leaf, leafPorts)
	s, o := leafState(), leafOverlay()
	first := b.Build(&s, &o, epoch)
	again, o2 := leafState(), leafOverlay()
	slices.Reverse(again.Routes[1].Hops)
	again.Neighbours = append(again.Neighbours, Neighbour{Ifindex: 13, Addr: addr("192.168.0.77"), MAC: mac(77), Usable: true})
	if b.Build(&again, &o2, epoch) != first {
		t.Error("new tables for what says the same")
	}
	again.Neighbours[1].MAC, again.Neighbours[1].Usable = mac(5), true
	if b.Build(&again, &o2, epoch) == first {
		t.Error("a neighbour's MAC made no new tables")
	}
}

func TestHopIDsAreStable(t *testing.T) {
	b := NewBuilder(dataplane.Leaf, leafPorts)
	s, o := leafState(), leafOverlay()
	before := b.Build(&s, &o, epoch)
	s.Links[0].Up = false
	down := b.Build(&s, &o, epoch.Add(time.Second))
	for i, h := range down.Hops {
		if h.Port == 0 && (h.Gateway.IsValid() || h.Resolved) {
			t.Errorf("hop %d behind the port that is down is still there: %+v", i, h)
		}
	}
	s.Links[0] = Link{Index: 99, Name: "up0", Up: true, MAC: mac(99), MTU: 1600} // deleted and made again
	s.Routes[1].Hops[1].Ifindex, s.Routes[2].Hops[0].Ifindex, s.Routes[3].Hops[0].Ifindex = 99, 99, 99
	after := b.Build(&s, &o, epoch.Add(2*time.Second))
	for i := range before.Peers {
		if !slices.Equal(before.Peers[i].Hops, after.Peers[i].Hops) {
			t.Errorf("peer %d: hops %v became %v", i, before.Peers[i].Hops, after.Peers[i].Hops)
		}
	}
	if after.Ports[0].Ifindex != 99 {
		t.Errorf("port state %+v", after.Ports[0])
	}
}

func TestPeerIDsSurviveOthers(t *testing.T) {
	b := NewBuilder(dataplane.Leaf, leafPorts)
	s, o := leafState(), leafOverlay()
	b.Build(&s, &o, epoch)
	fewer := config.Leaf{Peers: slices.Clone(o.Peers[1:2]), VNIs: o.VNIs[1:]}
	tables := b.Build(&s, &fewer, epoch)
	if len(tables.Peers) != len(o.Peers) || tables.Peers[0].VTEP.IsValid() || tables.Peers[1].VTEP != o.Peers[1] {
		t.Errorf("peers %+v", tables.Peers)
	}
	if len(tables.VNIs) != 2 || tables.VNIs[0].VNI != 0 || tables.VNIs[1].VNI != 200 {
		t.Errorf("VNIs %+v", tables.VNIs)
	}
}

var spinePorts = []dataplane.PortConfig{{Name: "p0", Kind: dataplane.SpinePort}, {Name: "p1", Kind: dataplane.SpinePort}}

func TestBuildSpine(t *testing.T) {
	s := State{
		Links: []Link{link(10, "p0"), link(11, "p1"), link(13, "mgmt")},
		Routes: []Route{
			{Dst: pfx("0.0.0.0/0"), Hops: []NextHop{hop(13, "192.168.0.1")}},
			{Dst: pfx("10.255.0.0/16"), Hops: []NextHop{hop(10, "10.1.0.1"), hop(11, "10.1.1.1")}},
			{Dst: pfx("10.255.0.1/32"), Hops: []NextHop{hop(10, "10.1.0.1")}},
			{Dst: pfx("10.255.0.2/32"), Hops: []NextHop{hop(11, "")}},
			{Dst: pfx("10.255.7.0/24"), Hops: []NextHop{hop(13, "192.168.0.1")}},
			{Dst: pfx("10.255.8.0/24"), Reject: true},
			{Dst: pfx("172.16.0.0/12"), Hops: []NextHop{hop(13, "192.168.0.1")}},
		},
	}
	b := NewBuilder(dataplane.Spine, spinePorts)
	lookup := func(tables *dataplane.Tables, dst string) any {
		g, ok := tables.Routes.Lookup(addr(dst))
		if !ok {
			return "no route"
		}
		out := []string{}
		for _, id := range tables.Groups[g].Hops {
			h := tables.Hops[id]
			out = append(out, spinePorts[h.Port].Name+" "+h.Gateway.String())
		}
		return out
	}
	check := func(t *testing.T, tables *dataplane.Tables, want map[string]any) {
		t.Helper()
		for dst, w := range want {
			if got := lookup(tables, dst); !reflect.DeepEqual(got, w) {
				t.Errorf("%s: %v, want %v", dst, got, w)
			}
		}
	}
	both := []string{"p0 10.1.0.1", "p1 10.1.1.1"}
	first := b.Build(&s, nil, epoch)
	check(t, first, map[string]any{
		"10.255.0.1": both[:1],
		"10.255.0.2": []string{"p1 10.255.0.2"},
		"10.255.0.3": both,
		"10.255.7.1": []string{}, // leads elsewhere: hides the /16
		"10.255.8.1": []string{}, // unreachable: hides the /16
		"172.16.0.1": "no route",
		"8.8.8.8":    "no route",
	})
	s.Neighbours = []Neighbour{{Ifindex: 10, Addr: addr("10.1.0.1"), MAC: mac(9), Usable: true}}
	second := b.Build(&s, nil, epoch)
	if second == first || !second.Routes.Equal(first.Routes) {
		t.Error("a neighbour makes new tables, but no other routes")
	}
	s.Links[0].Up = false
	check(t, b.Build(&s, nil, epoch), map[string]any{
		"10.255.0.1": both[1:], // the /32 is dead, the /16 has p1
		"10.255.0.3": both[1:],
	})
}

// TestNetworksShareTheFDB: a network that does not say has its part of the table, and
// few addresses at least.
func TestNetworksShareTheFDB(t *testing.T) {
	for _, tt := range []struct{ size, vnis, want int }{{1 << 17, 1, 1 << 17}, {1 << 17, 4, 1 << 15}, {1 << 17, 1000, 1024}, {64, 4, 64}} {
		o := config.Leaf{FDB: config.FDB{Size: tt.size}, VNIs: make([]config.VNI, tt.vnis)}
		if got := fdbShare(&o); got != uint32(tt.want) {
			t.Errorf("of %d addresses each of %d networks has %d, want %d", tt.size, tt.vnis, got, tt.want)
		}
	}
}
