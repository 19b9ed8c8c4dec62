package control

import (
	"reflect"
	"testing"
	"time"

	"github.com/loomfabric/loom/dataplane"
)

// A next hop that goes keeps its place for when it returns, at a leaf and at a spine.
func TestPlacesOfNextHops(t *testing.T) {
	weighted := func(i int, gw string, weight uint16) NextHop {
		h := hop(i, gw)
		h.Weight = weight
		return h
	}
	a, b, c := weighted(10, "10.1.0.1", 5), weighted(10, "10.1.0.3", 5), weighted(11, "10.1.1.1", 2)
	minutes := func(n int) time.Duration { return time.Duration(n) * time.Minute }
	type step struct {
		at      time.Duration
		hops    []NextHop
		n       int
		weights []uint16
		gone    []dataplane.Gone
	}
	for name, steps := range map[string][]step{
		"one goes and returns": {
			{0, []NextHop{a, b, c}, 3, []uint16{5, 5, 2}, nil},
			{1, []NextHop{a, c}, 2, []uint16{5, 2}, []dataplane.Gone{{Place: 1, Weight: 5}}},
			{2, []NextHop{c, b, a}, 3, []uint16{5, 5, 2}, nil},
		},
		"weights of those that are left are alike": {
			{0, []NextHop{a, b, c}, 3, []uint16{5, 5, 2}, nil},
			{1, []NextHop{a, b}, 2, []uint16{5, 5}, []dataplane.Gone{{Place: 2, Weight: 2}}},
		},
		"all go, and two return": {
			{0, []NextHop{a, b}, 2, nil, nil},
			{1, nil, 0, nil, nil},
			{2, []NextHop{b}, 1, nil, []dataplane.Gone{{Place: 0, Weight: 5}}},
			{3, []NextHop{a, b}, 2, nil, nil},
		},
		"a place is kept until another one comes": {
			{0, []NextHop{a, c}, 2, []uint16{5, 2}, nil},
			{1, []NextHop{c}, 1, []uint16{2}, []dataplane.Gone{{Place: 0, Weight: 5}}},
			{minutes(20), []NextHop{c}, 1, []uint16{2}, []dataplane.Gone{{Place: 0, Weight: 5}}},
			{minutes(21), []NextHop{b, c}, 2, []uint16{5, 2}, nil},
		},
		"one comes while another one is away": {
			{0, []NextHop{a, c}, 2, []uint16{5, 2}, nil},
			{1, []NextHop{c}, 1, []uint16{2}, []dataplane.Gone{{Place: 0, Weight: 5}}},
			{2, []NextHop{b, c}, 2, []uint16{5, 2}, []dataplane.Gone{{Place: 0, Weight: 5}}},
		},
		"nothing is remembered of what was away for long": {
			{0, []NextHop{a, b}, 2, nil, nil},
			{1, nil, 0, nil, nil},
			{minutes(11), nil, 0, nil, nil},
			{minutes(12), []NextHop{a}, 1, nil, nil},
		},
	} {
		leaf, spine := NewBuilder(dataplane.Leaf, leafPorts), NewBuilder(dataplane.Spine, spinePorts)
		for i, x := range steps {
			s, o := leafState(), leafOverlay()
			s.Links = []Link{link(10, "up0"), link(11, "up1"), link(20, "p0"), link(21, "p1")}
			s.Routes = []Route{{Dst: pfx("10.255.0.2/32"), Hops: x.hops}}
			o.Peers = o.Peers[:1]
			p := leaf.Build(&s, &o, epoch.Add(x.at)).Peers[0]
			got := []any{len(p.Hops), p.Weights, p.Gone}
			if want := []any{x.n, x.weights, x.gone}; !reflect.DeepEqual(got, want) {
				t.Errorf("%s: a leaf, step %d: %v, want %v", name, i, got, want)
			}
			s.Links = []Link{link(10, "p0"), link(11, "p1")}
			tables := spine.Build(&s, nil, epoch.Add(x.at))
			g := tables.Groups[len(tables.Groups)-1]
			got = []any{len(g.Hops), g.Weights, g.Gone}
			if want := []any{x.n, x.weights, x.gone}; !reflect.DeepEqual(got, want) {
				t.Errorf("%s: a spine, step %d: %v, want %v", name, i, got, want)
			}
		}
	}
}

// Places are as many as paths may be: the one that went first is given up.
func TestPlacesAreBounded(t *testing.T) {
	var p places
	keys := func(from, to int) (k []hopKey) {
		for i := from; i < to; i++ {
			k = append(k, hopKey{dataplane.PortID(i), addr("10.0.0.1")})
		}
		return k
	}
	p.update(keys(0, 10), nil, epoch)
	p.update(keys(1, 10), nil, epoch.Add(1))
	p.update(keys(2, 10), nil, epoch.Add(2))
	p.update(keys(2, 17), nil, epoch.Add(3)) // with two that are gone 17
	if len(p.of) != dataplane.MaxPaths || p.of[0].key.port != 1 || p.of[0].here || !p.of[1].here {
		t.Errorf("%d places, the first one %+v", len(p.of), p.of[0])
	}
	p.update(keys(20, 40), nil, epoch.Add(4))
	if len(p.of) != dataplane.MaxPaths || p.of[0].key.port != 20 {
		t.Errorf("%d places, the first one %+v", len(p.of), p.of[0])
	}
}
