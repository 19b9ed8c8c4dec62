package leaf

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/loomfabric/loom/balance"
)

// The selector is the next hop's place in the route, modulo their number; all other
// packets go by their hash, evenly.
func TestNextHops(t *testing.T) {
	for n := uint32(1); n <= 16; n++ {
		h := MakeNextHops(int(n), nil)
		for selector := range uint8(16) {
			if got := h.Of(true, selector, 0xdeadbeef); uint32(got) != uint32(selector)%n {
				t.Errorf("selector %d of %d: next hop %d", selector, n, got)
			}
		}
		used := make([]int, n)
		rng := rand.New(rand.NewPCG(1, uint64(n)))
		for range 10_000 {
			used[h.Of(false, 7, rng.Uint32())]++
		}
		if want := 10_000 / int(n); slices.Min(used) < want*8/10 || slices.Max(used) > want*12/10 {
			t.Errorf("of %d next hops are used %v", n, used)
		}
		if h.Of(false, 0, 0) != 0 || uint32(h.Of(false, 0, 1<<32-1)) != n-1 {
			t.Errorf("the ends of the hashes' range miss %d next hops", n)
		}
	}
	if MakeNextHops(0, nil) != (NextHops{}) {
		t.Error("a route without next hops has some")
	}
}

// With weights the sixteen selectors are shared out as nearly as can be, and each next
// hop keeps the one that names it; hashes follow the weights.
func TestNextHopsByWeight(t *testing.T) {
	for _, c := range []struct {
		weights   []uint16
		selectors []int // of each next hop
	}{
		{[]uint16{3, 1}, []int{12, 4}},
		{[]uint16{1, 3}, []int{4, 12}},
		{[]uint16{1, 255}, []int{1, 15}},
		{[]uint16{2, 1, 1}, []int{8, 4, 4}},
		{[]uint16{5, 5, 5}, []int{6, 5, 5}},
	} {
		n := len(c.weights)
		h := MakeNextHops(n, c.weights)
		selectors := make([]int, n)
		for s := range uint8(16) {
			next := h.Of(true, s, 0)
			if int(s) < n && next != s {
				t.Errorf("weights %v: selector %d is next hop %d", c.weights, s, next)
			}
			selectors[next]++
		}
		if !slices.Equal(selectors, c.selectors) {
			t.Errorf("weights %v: next hops have %v selectors, want %v", c.weights, selectors, c.selectors)
		}
		total, used := 0, make([]float64, n)
		for _, w := range c.weights {
			total += int(w)
		}
		rng := rand.New(rand.NewPCG(2, 3))
		for range 100_000 {
			used[h.Of(false, 0, rng.Uint32())] += 1e-5
		}
		for i, w := range c.weights {
			if want := float64(w) / float64(total); used[i] < want-0.01 || used[i] > want+0.01 {
				t.Errorf("weights %v: next hop %d has %.3f of the hashes, want %.3f", c.weights, i, used[i], want)
			}
		}
	}
}

// A scheme of the spine's sees the weights as a leaf's does.
func TestSpineSchemeSeesWeights(t *testing.T) {
	s := newTestSpine(t, "ecmp", &fakeLinks{})
	if err := s.SetRoute(0, []int{3, 5}, []uint16{1, 3}); err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(4, 5))
	pkts, used := make([]balance.Packet, 64), 0.0
	for range 500 {
		for i := range pkts {
			pkts[i] = balance.Packet{Hash: rng.Uint32()}
		}
		s.Bundle(0).Choose(0, pkts)
		for i := range pkts {
			used += float64(pkts[i].Path) / 32000
		}
	}
	if used < 0.73 || used > 0.77 {
		t.Errorf("the next hop with three quarters of the weight has %.3f of the packets", used)
	}
}
