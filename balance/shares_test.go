package balance

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/loomfabric/loom/internal/mono"
)

// What belongs to each choice is added up part by part, without a number drawn.
func TestSharesAreTheWeights(t *testing.T) {
	check := func(weights []uint16) {
		t.Helper()
		n, total := len(weights), 0.0
		s := MakeShares(n, weights)
		var got [MaxPaths]float64
		for i := range n {
			total += float64(weights[i])
			kept := float64(s.keep[i]) / (1 << 16)
			got[i] += kept / float64(n)
			got[s.other[i]] += (1 - kept) / float64(n)
		}
		for i, w := range weights {
			if want := float64(w) / total; math.Abs(got[i]-want) > 1.0/(1<<16) || w == 0 && got[i] != 0 {
				t.Errorf("weights %v: choice %d has %f, want %f", weights, i, got[i], want)
			}
		}
	}
	for _, weights := range [][]uint16{{1}, {1, 3}, {3, 1}, {256, 1}, {1, 65535}, {0, 1}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}} {
		check(weights)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for range 1000 {
		weights := make([]uint16, 1+rng.IntN(MaxPaths))
		for i := range weights {
			weights[i] = uint16(1 + rng.IntN(256))
		}
		check(weights)
	}
}

// Without weights, or with equal ones, the range is cut into equal parts in order: a
// flow's path must not depend on how the kernel writes that all are alike.
func TestEqualSharesAreParts(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for n := 1; n <= MaxPaths; n++ {
		equal := make([]uint16, n)
		for i := range equal {
			equal[i] = 7
		}
		none, same, zero := MakeShares(n, nil), MakeShares(n, equal), MakeShares(n, make([]uint16, n))
		if none != same || none != zero {
			t.Fatalf("%d choices: shares %v without weights, %v with equal ones, %v with none above 0", n, none, same, zero)
		}
		for _, number := range []uint32{0, math.MaxUint32, rng.Uint32(), rng.Uint32()} {
			if got, want := none.Of(number, uint32(n)), uint8(uint64(number)*uint64(n)>>32); got != want {
				t.Errorf("%d choices: %#x belongs to %d, want %d", n, number, got, want)
			}
		}
	}
	weighted := MakeWeightedPaths([]uint8{4, 2}, []uint16{5, 1})
	if again := MakeWeightedPaths(weighted.Uplink[:2], weighted.Weights[:2]); again != weighted || !weighted.Weighted {
		t.Errorf("paths made of what paths tell are %+v, want %+v", again, weighted)
	}
	if MakePaths(4, 2) != MakeWeightedPaths([]uint8{4, 2}, []uint16{5, 5}) {
		t.Error("paths of equal weights differ from paths without")
	}
}

// Schemes that do not measure paths go by their weights. The others keep what they do:
// of idle paths all are as good.
func TestWeights(t *testing.T) {
	const bursts = 2000
	weights := []uint16{1, 5, 2}
	for _, s := range conformance {
		t.Run(s.name, func(t *testing.T) {
			p := mustNew(t, s.name, 1)
			v := newView(MakeWeightedPaths([]uint8{7, 3, 1}, weights))
			rng := rand.New(rand.NewPCG(5, 6))
			var used [3]float64
			now := mono.Time(0)
			for range bursts {
				now += mono.Time(1e9)
				pkts := flows(64, rng)
				p.Choose(now, v, pkts)
				for i := range pkts {
					used[pkts[i].Path]++
				}
			}
			for i, n := range used {
				want := 1.0 / 3
				switch {
				case s.weighted:
					want = float64(weights[i]) / 8
				case !s.uniform:
					continue // it has weights of its own
				}
				if got := n / (64 * bursts); math.Abs(got-want) > 0.01 {
					t.Errorf("path %d of weight %d has %.3f of the flows, want %.3f", i, weights[i], got, want)
				}
			}
		})
	}
}

// Presto's turns are as many as a path weighs, spread over the turns of the others.
func TestPrestoTurnsByWeight(t *testing.T) {
	v := newView(MakeWeightedPaths([]uint8{0, 1, 2}, []uint16{1, 1, 2}))
	for hash := range uint32(50) {
		s := newPrestoSource(t, uint64(hash), nil)
		var turns [3]int
		for cell := range 400 {
			path := s.next(mono.Time(cell), v, hash*0x9E3779B1, 65535).Path
			turns[path]++
			if got := s.next(mono.Time(cell), v, hash*0x9E3779B1, 1500).Path; got != path {
				t.Fatalf("a flowcell went from path %d to %d", path, got)
			}
		}
		for path, want := range []int{100, 100, 200} {
			if turns[path] < want-5 || turns[path] > want+5 {
				t.Errorf("flow %d: path %d had %d turns of 400, want %d", hash, path, turns[path], want)
			}
		}
	}
}
