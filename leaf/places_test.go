package leaf

import (
	"math"
	"math/bits"
	"math/rand/v2"
	"testing"

	"github.com/loomfabric/loom/balance"
)

// left returns the numbers, among n, of those that a mask leaves.
func left(n int, gone uint16) (of []int) {
	for i := range n {
		if gone>>i&1 == 0 {
			of = append(of, i)
		}
	}
	return of
}

// A spine's next hop that goes moves its own packets, with selectors and without, and one
// that returns takes back its own.
func TestNextHopsKeepTheirPackets(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	for range 300 {
		n := 2 + rng.IntN(balance.MaxPaths-1)
		var weights []uint16
		if rng.IntN(2) == 0 {
			for range n {
				weights = append(weights, uint16(1+rng.IntN(256)))
			}
		}
		full := MakeNextHops(n, weights)
		if full.Without(0, weights) != full {
			t.Fatal("next hops of which none has gone differ from what they were")
		}
		gone := uint16(0)
		for range n {
			place := rng.IntN(n)
			now := gone ^ 1<<place
			if bits.OnesCount16(now) == n {
				continue
			}
			before, after := full.Without(gone, weights), full.Without(now, weights)
			was, is := left(n, gone), left(n, now)
			for range 50 {
				capable, selector, hash := rng.IntN(2) == 0, uint8(rng.IntN(16)), rng.Uint32()
				from, to := was[before.Of(capable, selector, hash)], is[after.Of(capable, selector, hash)]
				if from != to && from != place && to != place {
					t.Fatalf("%d next hops of weights %v, %b gone: next hop %d changed, and a packet moved from %d to %d", n, weights, gone, place, from, to)
				}
				if capable && int(selector) < n && now>>selector&1 == 0 && to != int(selector) {
					t.Fatalf("%d next hops, %b gone: selector %d is next hop %d", n, now, selector, to)
				}
			}
			gone = now
		}
	}
}

// The packets of a next hop that has gone are spread evenly, in both kinds.
func TestNextHopsSpreadWhatIsLeftOver(t *testing.T) {
	full := MakeNextHops(4, nil)
	h := full.Without(0b0010, nil)
	rng := rand.New(rand.NewPCG(1, 2))
	for _, capable := range []bool{false, true} {
		const packets = 100_000
		var used [3]float64
		for range packets {
			used[h.Of(capable, uint8(rng.IntN(16)), rng.Uint32())] += 3. / packets
		}
		for i, part := range used {
			if math.Abs(part-1) > 0.02 {
				t.Errorf("capable %v: next hop %d of 3 has %.3f of its part", capable, i, part)
			}
		}
	}
}

// Paths in quarantine give up their flows, and nobody else's move; when they are let out
// the flows return.
func TestQuarantineKeepsFlows(t *testing.T) {
	all := balance.MakePaths(0, 1, 2, 3)
	var index [balance.MaxPaths]uint8
	shown := keep(&all, 1<<2, &index)
	rng := rand.New(rand.NewPCG(1, 2))
	moved := 0
	for range 10_000 {
		number := rng.Uint32()
		was, is := all.Share(number), index[shown.Share(number)]
		switch {
		case is == 2:
			t.Fatal("a path in quarantine is chosen")
		case was == 2:
			moved++
		case was != is:
			t.Fatalf("path 2 is in quarantine, and a flow moved from path %d to %d", was, is)
		}
	}
	if moved < 2300 || moved > 2700 {
		t.Errorf("%d of 10000 flows moved, want a quarter", moved)
	}
	if back := keep(&all, 0, &index); back != all {
		t.Error("paths that are let out differ from what they were")
	}
}

// A spine's scheme keeps flows where they are, too.
func TestSpineSchemeKeepsFlows(t *testing.T) {
	s := newTestSpine(t, "ecmp", &fakeLinks{})
	ports := []int{3, 5, 6, 8}
	choose := func(gone uint16) []int {
		t.Helper()
		if err := s.SetRoute(0, ports, nil, gone); err != nil {
			t.Fatal(err)
		}
		rng := rand.New(rand.NewPCG(4, 5))
		pkts, taken := make([]balance.Packet, 64), []int{}
		for i := range pkts {
			pkts[i] = balance.Packet{Hash: rng.Uint32()}
		}
		s.Bundle(0).Choose(0, pkts)
		for i := range pkts {
			taken = append(taken, left(4, gone)[pkts[i].Path])
		}
		return taken
	}
	before, without, after := choose(0), choose(0b0100), choose(0)
	for i := range before {
		if before[i] != after[i] || before[i] != 2 && without[i] != before[i] || without[i] == 2 {
			t.Errorf("a flow took next hop %d, then without 2 %d, then %d", before[i], without[i], after[i])
		}
	}
	if len(s.Bundles()) != 1 {
		t.Errorf("%d bundles", len(s.Bundles()))
	}
}
