package fabric

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/loomfabric/loom/config/vocab"
	"github.com/loomfabric/loom/internal/units"
)

func expand(t *testing.T, text string) *Topology {
	t.Helper()
	f, err := Parse("t.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return f.Expand()
}

func TestExpand(t *testing.T) {
	top := expand(t, good)
	if len(top.Leaves) != 2 || len(top.Spines) != 2 || len(top.Links) != 8 || len(top.Hosts) != 5 {
		t.Fatalf("%d leaves, %d spines, %d links, %d hosts", len(top.Leaves), len(top.Spines), len(top.Links), len(top.Hosts))
	}
	l, ok := top.Link("L0-S1.0")
	if !ok || l.LeafPort != "up-s1-0" || l.SpinePort != "dn-l0-0" || l.LeafUplinkID != 2 {
		t.Errorf("link %+v", l)
	}
	if l.Up.Rate != 300e6 || l.Down.Rate != 100e6 {
		t.Errorf("override of one direction: up %v, down %v", l.Up.Rate, l.Down.Rate)
	}
	if l, _ := top.Link("L1-S0.1"); l.Up.Delay != time.Millisecond || l.Down.Delay != time.Millisecond || l.Up.Rate != 300e6 {
		t.Errorf("override of both directions: %+v", l)
	}
	want := []struct {
		name string
		leaf int
		vni  uint32
		vlan uint16
		addr string
	}{
		{"h0", 0, 100, 0, "10.100.0.1/16"}, {"h1", 0, 100, 0, "10.100.0.2/16"}, {"h2", 1, 100, 0, "10.100.0.3/16"},
		{"h3", 1, 200, 7, "192.168.0.4/24"}, {"db", 1, 200, 7, "192.168.0.5/24"},
	}
	for i, w := range want {
		h := top.Hosts[i]
		if h.Name != w.name || h.Leaf != w.leaf || h.VNI != w.vni || h.VLAN != w.vlan || h.Addr.String() != w.addr {
			t.Errorf("host %+v, want %+v", h, w)
		}
	}
	if v := top.VNIsOf(1); !slices.Equal(v, []uint32{100, 200}) {
		t.Errorf("VNIs of L1: %v", v)
	}
}

// TestExpandUnique: in the largest shapes no two things share an address, a
// name or a MAC, and names fit the kernel's 15 characters.
func TestExpandUnique(t *testing.T) {
	for _, f := range []*File{
		{Name: "x", Leaves: 256, Spines: 16, Links: vocab.Links{Parallel: 1}, Hosts: Hosts{PerLeaf: 4}},
		{Name: "x", Leaves: 3, Spines: 1, Links: vocab.Links{Parallel: 16}, Hosts: Hosts{PerLeaf: 2, List: []NamedHost{{"longest_one", "L2"}}}},
		{Name: "x", Underlay: UnderlayIPv6, Leaves: 256, Spines: 16, Links: vocab.Links{Parallel: 1}, Hosts: Hosts{PerLeaf: 4}},
	} {
		f.VNIs = []VNI{{VNI: 1}}
		f.setDefaults()
		top := f.Expand()
		seen := map[string]bool{}
		unique := func(kind, s string) {
			if seen[kind+s] {
				t.Fatalf("%s %s occurs twice", kind, s)
			}
			seen[kind+s] = true
		}
		for _, n := range top.Leaves {
			unique("address", n.VTEP.String())
			if n.VTEP.Is6() != f.IPv6() {
				t.Fatalf("%s has VTEP %s", n.Name, n.VTEP)
			}
			unique("node", n.Name)
		}
		for _, l := range top.Links {
			unique("address", l.LeafAddr.String())
			unique("address", l.SpineAddr.String())
			unique("link", l.Name)
			unique("port", top.Leaves[l.Leaf].Name+l.LeafPort)
			unique("port", top.Spines[l.Spine].Name+l.SpinePort)
			if bits := l.LeafAddr.BitLen() - 1; !netip.PrefixFrom(l.LeafAddr, bits).Masked().Contains(l.SpineAddr) {
				t.Fatalf("link %s: %s and %s are not one /%d", l.Name, l.LeafAddr, l.SpineAddr, bits)
			}
			if l.LeafAddr.Is6() != f.IPv6() {
				t.Fatalf("link %s has %s", l.Name, l.LeafAddr)
			}
			if len(l.LeafPort) > 15 || len(l.SpinePort) > 15 {
				t.Fatalf("link %s: names too long", l.Name)
			}
		}
		for _, h := range top.Hosts {
			unique("node", h.Name)
			unique("host", h.Addr.String())
			unique("host", h.Addr6.String())
			unique("mac", string(h.MAC[:]))
			if len(h.Port) > 15 {
				t.Fatalf("port %s is too long", h.Port)
			}
		}
	}
}

func TestCapacity(t *testing.T) {
	top := expand(t, good) // L0: 2 hosts of 1 Gbit, uplinks 4 × 300 Mbit; L1 has three hosts
	for _, tc := range []struct {
		senders []int
		of      string
		want    units.Rate
	}{{[]int{0}, "fabric", 1.2e9}, {[]int{0, 1, 2}, "fabric", 2.4e9}, {nil, "fabric", 0}, {[]int{0, 1, 2}, "hosts", 3e9}, {nil, "hosts", 0}} {
		if got := top.Capacity(tc.senders, tc.of); got != tc.want {
			t.Errorf("senders %v have %v of %s, want %v", tc.senders, got, tc.of, tc.want)
		}
	}
	if got := top.Candidates(0, []int{0, 1, 2}, "any"); !slices.Equal(got, []int{1, 2}) {
		t.Errorf("any pairs: %v", got)
	}
	if got := top.Candidates(0, []int{0, 1, 2}, "racks"); !slices.Equal(got, []int{2}) {
		t.Errorf("pairs of racks: %v", got)
	}
}

func TestPairs(t *testing.T) {
	top := expand(t, good)
	all := []int{0, 1, 2, 3, 4}
	for _, p := range top.Pairs(all, all) {
		if p[0] == p[1] || top.Hosts[p[0]].VNI != top.Hosts[p[1]].VNI {
			t.Errorf("pair %v", p)
		}
	}
	if got := top.Pairs([]int{0, 1}, []int{2}); !slices.Equal(got, [][2]int{{0, 2}, {1, 2}}) {
		t.Errorf("pairs %v", got)
	}
}

func allUp(t *Topology) []bool {
	up := make([]bool, len(t.Links))
	for i := range up {
		up[i] = true
	}
	return up
}

func TestRoutes(t *testing.T) {
	top := expand(t, good)
	index := func(names ...string) (out []int) {
		for _, n := range names {
			l, ok := top.Link(n)
			if !ok {
				t.Fatalf("no link %s", n)
			}
			out = append(out, l.Index)
		}
		return out
	}
	hops := func(rs []Route, dst netip.Addr) (out []string) {
		for _, r := range rs {
			if r.Dst == dst {
				for _, h := range r.Hops {
					out = append(out, top.Links[h.Link].Name)
				}
			}
		}
		return out
	}
	for _, tc := range []struct {
		name           string
		down           []int
		l0, l1, s0, s1 []string // L0 to L1, L1 to L0, S0 to L0, S1 to L0
	}{
		{"all up", nil,
			[]string{"L0-S0.0", "L0-S0.1", "L0-S1.0", "L0-S1.1"}, []string{"L1-S0.0", "L1-S0.1", "L1-S1.0", "L1-S1.1"},
			[]string{"L0-S0.0", "L0-S0.1"}, []string{"L0-S1.0", "L0-S1.1"}},
		{"one of two parallel links", index("L0-S1.0"),
			[]string{"L0-S0.0", "L0-S0.1", "L0-S1.1"}, []string{"L1-S0.0", "L1-S0.1", "L1-S1.0", "L1-S1.1"},
			[]string{"L0-S0.0", "L0-S0.1"}, []string{"L0-S1.1"}},
		{"a leaf cut off from a spine", index("L0-S1.0", "L0-S1.1"),
			[]string{"L0-S0.0", "L0-S0.1"}, []string{"L1-S0.0", "L1-S0.1"}, // L1 must not send to L0 through S1
			[]string{"L0-S0.0", "L0-S0.1"}, nil},
		{"no common spine", index("L0-S1.0", "L0-S1.1", "L1-S0.0", "L1-S0.1"), nil, nil, []string{"L0-S0.0", "L0-S0.1"}, nil},
	} {
		up := allUp(top)
		for _, i := range tc.down {
			up[i] = false
		}
		r := top.Routes(up)
		for _, x := range []struct {
			what      string
			got, want []string
		}{
			{"L0 to L1", hops(r.Leaves[0], top.Leaves[1].VTEP), tc.l0}, {"L1 to L0", hops(r.Leaves[1], top.Leaves[0].VTEP), tc.l1},
			{"S0 to L0", hops(r.Spines[0], top.Leaves[0].VTEP), tc.s0}, {"S1 to L0", hops(r.Spines[1], top.Leaves[0].VTEP), tc.s1},
		} {
			if !slices.Equal(x.got, x.want) {
				t.Errorf("%s: %s over %v, want %v", tc.name, x.what, x.got, x.want)
			}
		}
	}
}

// TestRoutesProperty: on random fabrics with random dead links every next hop is
// alive and leads on to the destination, every live path of two hops is used,
// and no route has two hops over one link.
func TestRoutesProperty(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	for range 300 {
		f := &File{Name: "x", Leaves: 1 + rnd.IntN(5), Spines: 1 + rnd.IntN(4), Links: vocab.Links{Parallel: 1 + rnd.IntN(3)}}
		top := f.Expand()
		up := make([]bool, len(top.Links))
		for i := range up {
			up[i] = rnd.IntN(3) > 0
		}
		r := top.Routes(up)
		spineReaches := func(s int, dst netip.Addr) bool {
			return slices.ContainsFunc(r.Spines[s], func(x Route) bool { return x.Dst == dst })
		}
		for s, routes := range r.Spines {
			for _, route := range routes {
				for _, h := range route.Hops {
					l := top.Links[h.Link]
					if !up[h.Link] || l.Spine != s || top.Leaves[l.Leaf].VTEP != route.Dst || h.Gateway != l.LeafAddr || h.Port != l.SpinePort {
						t.Fatalf("spine %d to %s over %s (up %v)", s, route.Dst, l.Name, up[h.Link])
					}
				}
			}
		}
		for src, routes := range r.Leaves {
			used := map[[2]int]bool{} // destination leaf, link
			for _, route := range routes {
				dst := slices.IndexFunc(top.Leaves, func(n Node) bool { return n.VTEP == route.Dst })
				for _, h := range route.Hops {
					l := top.Links[h.Link]
					if !up[h.Link] || l.Leaf != src || !spineReaches(l.Spine, route.Dst) || h.Gateway != l.SpineAddr || h.Port != l.LeafPort {
						t.Fatalf("leaf %d to %s over %s (up %v)", src, route.Dst, l.Name, up[h.Link])
					}
					if used[[2]int{dst, h.Link}] {
						t.Fatalf("leaf %d to %s: %s twice", src, route.Dst, l.Name)
					}
					used[[2]int{dst, h.Link}] = true
				}
			}
			for _, a := range top.Links {
				for _, b := range top.Links {
					if a.Leaf == src && b.Leaf != src && a.Spine == b.Spine && up[a.Index] && up[b.Index] && !used[[2]int{b.Leaf, a.Index}] {
						t.Fatalf("leaf %d does not use %s towards leaf %d", src, a.Name, b.Leaf)
					}
				}
			}
		}
	}
}
