package leaf

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/loomfabric/loom/balance"
)

// parts returns what each of n next hops gets, in sixteenths, of flows that have each
// selector alike and hashes spread evenly.
func parts(h *NextHops, n int) []float64 {
	out := make([]float64, n)
	hashes := uint64(n) * 65536
	for selector := range uint8(16) {
		for i := range hashes {
			out[h.Of(true, selector, uint32((2*i+1)<<31/hashes))] += 1 / float64(hashes)
		}
	}
	return out
}

// Selector i below n is next hop i whatever the hash is, and each next hop gets the same
// part of all flows however many there are: with three, selector modulo n would be 6, 5
// and 5 sixteenths. All other packets go by their hash, evenly.
func TestNextHops(t *testing.T) {
	for n := 1; n <= 16; n++ {
		h := MakeNextHops(n, nil)
		rng := rand.New(rand.NewPCG(1, uint64(n)))
		for selector := range uint8(16 / n * n) {
			if got := h.Of(true, selector, rng.Uint32()); int(got) != int(selector)%n {
				t.Errorf("selector %d of %d: next hop %d", selector, n, got)
			}
		}
		for i, part := range parts(&h, n) {
			if want := 16 / float64(n); math.Abs(part-want) > 1e-6 {
				t.Errorf("next hop %d of %d has %.4f sixteenths of the flows, want %.4f", i, n, part, want)
			}
		}
		used := make([]int, n)
		for range 10_000 {
			used[h.Of(false, 7, rng.Uint32())]++
		}
		if want := 10_000 / n; slices.Min(used) < want*8/10 || slices.Max(used) > want*12/10 {
			t.Errorf("of %d next hops are used %v", n, used)
		}
		if h.Of(false, 0, 0) != 0 || int(h.Of(false, 0, 1<<32-1)) != n-1 {
			t.Errorf("the ends of the hashes' range miss %d next hops", n)
		}
	}
	if MakeNextHops(0, nil) != (NextHops{}) {
		t.Error("a route without next hops has some")
	}
	if MakeNextHops(3, []uint16{0, 0, 0}) != MakeNextHops(3, nil) {
		t.Error("weights of 0 are not all alike")
	}
}

// With weights each next hop keeps the selector that names it, and parts follow the
// weights, unless a part is below a sixteenth. Hashes follow the weights, too.
func TestNextHopsByWeight(t *testing.T) {
	for _, c := range []struct {
		weights []uint16
		parts   []float64 // of each next hop, in sixteenths
	}{
		{[]uint16{3, 1}, []float64{12, 4}},
		{[]uint16{1, 3}, []float64{4, 12}},
		{[]uint16{1, 255}, []float64{1, 15}}, // not 1/16 and 15 15/16
		{[]uint16{2, 1, 1}, []float64{8, 4, 4}},
		{[]uint16{5, 5, 5}, []float64{16. / 3, 16. / 3, 16. / 3}},
		{[]uint16{2, 3}, []float64{6.4, 9.6}},
		{[]uint16{65535, 65535, 21845}, []float64{48. / 7, 48. / 7, 16. / 7}},
	} {
		n := len(c.weights)
		h := MakeNextHops(n, c.weights)
		rng := rand.New(rand.NewPCG(2, 3))
		for s := range uint8(n) {
			if next := h.Of(true, s, rng.Uint32()); next != s {
				t.Errorf("weights %v: selector %d is next hop %d", c.weights, s, next)
			}
		}
		for i, part := range parts(&h, n) {
			if math.Abs(part-c.parts[i]) > 1e-3 {
				t.Errorf("weights %v: next hop %d has %.4f sixteenths of the flows, want %.4f", c.weights, i, part, c.parts[i])
			}
		}
		total, used := 0, make([]float64, n)
		for _, w := range c.weights {
			total += int(w)
		}
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
	if err := s.SetRoute(0, []int{3, 5}, []uint16{1, 3}, 0); err != nil {
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

// TestNextHopsOfReed: ordered spraying takes its selectors in turn, so with up to four
// links between a spine and a leaf each that is left has to get as many of them. A packet
// of a selector that goes by hash would also take another link than its number says.
func TestNextHopsOfReed(t *testing.T) {
	sections := balance.Sections()
	reed := sections[slices.IndexFunc(sections, func(s *balance.Section) bool { return s.Name == "reed" })]
	for links := 1; links <= 4; links++ {
		selectors := reed.New(balance.Datacenter).(balance.Selecting).WithSelectors(links).(balance.Selecting).Selectors()
		for left := 1; left <= links; left++ {
			h := MakeNextHops(left, nil)
			got := make([]int, left)
			for s := range selectors {
				n := h.Of(true, uint8(s), 0)
				if other := h.Of(true, uint8(s), 0xdeadbeef); other != n {
					t.Errorf("%d of %d links: selector %d leads to link %d or %d", left, links, s, n, other)
				}
				got[n]++
			}
			if slices.Min(got) != slices.Max(got) {
				t.Errorf("%d of %d links get %d of %d selectors", left, links, got, selectors)
			}
		}
	}
}
