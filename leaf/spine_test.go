package leaf

import (
	"slices"
	"strings"
	"testing"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/internal/mono"
)

// fakeLinks are the queues of a spine's ports.
type fakeLinks struct {
	queue map[int]uint32
	looks int
}

func (l *fakeLinks) Link(_ mono.Time, port int) (uint8, uint32) {
	l.looks++
	return uint8(port % 8), l.queue[port]
}

func newTestSpine(t *testing.T, scheme string, links SpineLinks) *Spine {
	t.Helper()
	s, err := NewSpine(SpineConfig{Scheme: scheme, Seed: 1, Links: links})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func setRoute(t *testing.T, s *Spine, dest int, ports ...int) {
	t.Helper()
	if err := s.SetRoute(dest, ports, nil, 0); err != nil {
		t.Fatal(err)
	}
}

// Only schemes that need nobody at the far end are for spines.
func TestSpineRefusesSchemesForLeaves(t *testing.T) {
	for _, s := range balance.Schemes() {
		_, err := NewSpine(SpineConfig{Scheme: s.Name})
		if (err != nil) != s.NeedsPeer || err != nil && !strings.Contains(err.Error(), s.Name) {
			t.Errorf("%s at a spine: %v", s.Name, err)
		}
	}
	if _, err := NewSpine(SpineConfig{Scheme: "no-such"}); err == nil {
		t.Error("a scheme that there is not is taken")
	}
	if _, err := NewSpine(SpineConfig{Scheme: "drill", Options: balance.Options{Keys: &balance.DRILLKeys{}}}); err == nil {
		t.Error("keys that make no sense are taken")
	}
}

// Each set of ports that lead to the same destinations is balanced by itself. What
// has lost ports stays in its bundle, and what has no choice in none.
func TestSpineBundles(t *testing.T) {
	s := newTestSpine(t, "drill", &fakeLinks{})
	setRoute(t, s, 1, 4, 0, 2)
	setRoute(t, s, 2, 5, 6)
	setRoute(t, s, 3, 7)
	setRoute(t, s, 4, 2, 4)
	if s.Bundle(0) != nil || s.Bundle(3) != nil {
		t.Error("a destination without a choice has a bundle")
	}
	if s.Bundle(1) == nil || s.Bundle(1) == s.Bundle(2) || s.Bundle(4) != s.Bundle(1) || len(s.Bundles()) != 2 {
		t.Errorf("%d bundles", len(s.Bundles()))
	}
	was := s.Bundle(1)
	setRoute(t, s, 1, 2) // two links are gone
	if s.Bundle(1) != was {
		t.Error("a route that lost links for a moment lost its bundle")
	}
	setRoute(t, s, 1, 0, 4)
	if s.Bundle(1) != was || len(s.Bundles()) != 2 {
		t.Error("a route that got a link back has another bundle")
	}
	setRoute(t, s, 1, 0, 4, 9) // one that never was in it
	if s.Bundle(1) == was || len(s.Bundles()) != 3 {
		t.Error("a port that the bundle does not know is taken for one of its own")
	}
}

// Path is the place in the route as it was given, in whatever order and whatever has
// been lost, and the shortest queue is that of the port which stands there.
func TestSpineChoosesThePortThatTheRouteNames(t *testing.T) {
	links := &fakeLinks{queue: map[int]uint32{4: 9000, 0: 9000, 2: 9000, 8: 9000}}
	s, err := NewSpine(SpineConfig{
		Scheme: "drill", Links: links, Options: balance.Options{Keys: &balance.DRILLKeys{DRILL: balance.DRILL{Samples: 16}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	now := mono.Time(0)
	for _, route := range [][]int{{4, 0, 2, 8}, {8, 2}, {0, 8, 4}, {2, 4, 0, 8}} {
		setRoute(t, s, 1, route...)
		for at, port := range route {
			links.queue[port] = 0
			now++
			pkts := []balance.Packet{{Leaf: 1, Len: 100}}
			s.Bundle(1).Choose(now, pkts)
			if int(pkts[0].Path) != at {
				t.Errorf("route %v: next hop %d, port %d is empty", route, pkts[0].Path, port)
			}
			links.queue[port] = 9000
		}
	}
	if len(s.Bundles()) != 1 {
		t.Errorf("%d bundles for one set of ports", len(s.Bundles()))
	}
}

// Links are looked at once a time, and what one vector adds is seen by the next.
func TestSpineLooksOnceATime(t *testing.T) {
	links := &fakeLinks{queue: map[int]uint32{}}
	s := newTestSpine(t, "drill", links)
	setRoute(t, s, 1, 0, 1)
	setRoute(t, s, 2, 1, 0)
	var bytes [2]int
	for i := range 200 {
		dest := uint16(1 + i%2)
		pkts := []balance.Packet{{Leaf: dest, Len: 1000}}
		s.Bundle(int(dest)).Choose(5, pkts)
		bytes[[2][2]int{{0, 1}, {1, 0}}[dest-1][pkts[0].Path]] += 1000
	}
	if links.looks != 2 {
		t.Errorf("two links were looked at %d times", links.looks)
	}
	if diff := bytes[0] - bytes[1]; diff < -4000 || diff > 4000 {
		t.Errorf("the ports got %v bytes", bytes)
	}
	s.Bundle(1).Choose(6, []balance.Packet{{Leaf: 1}})
	if links.looks != 4 {
		t.Errorf("%d looks, at another time", links.looks)
	}
}

// Bundles and workers draw from generators of their own, or all leaves' packets would
// take the same turns.
func TestSpineBundlesAreIndependent(t *testing.T) {
	turns := func(worker, dest int) (out []uint8) {
		s, err := NewSpine(SpineConfig{Scheme: "spray", Seed: 3, Worker: worker, Links: &fakeLinks{}})
		if err != nil {
			t.Fatal(err)
		}
		setRoute(t, s, 1, 0, 1, 2, 3)
		setRoute(t, s, 2, 4, 5, 6, 7)
		for range 50 {
			pkts := []balance.Packet{{Leaf: uint16(dest), Len: 100}}
			s.Bundle(dest).Choose(0, pkts)
			out = append(out, pkts[0].Path)
		}
		return out
	}
	first := turns(0, 1)
	if !slices.Equal(first, turns(0, 1)) {
		t.Error("two runs differ")
	}
	if slices.Equal(first, turns(0, 2)) || slices.Equal(first, turns(1, 1)) {
		t.Error("another bundle or worker takes the same turns")
	}
}

// A spine has a port for every leaf, more than a scheme knows links: none is taken
// for another one's.
func TestSpineWithManyPorts(t *testing.T) {
	const leaves = 40
	links := &fakeLinks{queue: map[int]uint32{}}
	s := newTestSpine(t, "drill", links)
	for dest := range leaves {
		setRoute(t, s, dest, 2*dest, 2*dest+1)
		links.queue[2*dest+dest%2] = 1 << 20 // the other one is empty
	}
	for round := range 20 {
		for dest := range leaves {
			pkts := []balance.Packet{{Leaf: uint16(dest), Len: 100}}
			s.Bundle(dest).Choose(mono.Time(round), pkts)
			if round > 10 && int(pkts[0].Path) == dest%2 { // DRILL(2, 1) remembers the empty one
				t.Errorf("leaf %d: by the port with the longer queue", dest)
			}
		}
	}
}
