package traffic

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/loomfabric/loom/internal/workload"
	"github.com/loomfabric/loom/sim/network"
)

// must returns v, which could be made.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// racksOf returns the racks of hosts that fill racks of so many in turn.
func racksOf(racks, each int) []int {
	rack := make([]int, racks*each)
	for h := range rack {
		rack[h] = h / each
	}
	return rack
}

// anyPair returns all pairs of different hosts.
func anyPair(hosts int) (l List) {
	return between(make([]int, hosts), func(int, int) bool { return true })
}

// crossing returns all pairs of hosts in different racks.
func crossing(rack []int) List { return between(rack, func(a, b int) bool { return a != b }) }

func between(rack []int, allowed func(from, to int) bool) (l List) {
	for s := range rack {
		for d := range rack {
			if s != d && allowed(rack[s], rack[d]) {
				l = append(l, Pair{network.HostID(s), network.HostID(d)})
			}
		}
	}
	return l
}

// collect returns the flows of a source.
func collect(s Source) (flows []Flow) {
	for f, ok := s.Next(); ok; f, ok = s.Next() {
		flows = append(flows, f)
	}
	return flows
}

// TestPickFollowsEach: pairs are drawn as often as Each says, and no others.
func TestPickFollowsEach(t *testing.T) {
	for _, c := range []struct {
		name  string
		pairs Pairs
	}{
		{"some pairs, one twice", List{{0, 1}, {2, 1}, {0, 1}, {5, 3}}},
		{"stride", must(Stride(6, 2))},
		{"negative stride", must(Stride(6, -7))},
		{"permutation", must(Permutation(9, Stream{Seed: 4}))},
	} {
		t.Run(c.name, func(t *testing.T) {
			want := make(map[Pair]float64)
			total := 0.0
			c.pairs.Each(func(p Pair, share float64) {
				want[p] += share
				total += share
			})
			if math.Abs(total-1) > 1e-9 {
				t.Errorf("shares add up to %g", total)
			}
			const n = 200_000
			got := make(map[Pair]int)
			r := workload.NewRand(1, 2)
			for range n {
				p := c.pairs.Pick(r)
				if p.Src == p.Dst {
					t.Fatalf("host %d sends to itself", p.Src)
				}
				got[p]++
			}
			for p, k := range got {
				if want[p] == 0 {
					t.Errorf("%v was drawn %d times, and cannot be", p, k)
				}
			}
			for p, share := range want {
				if dev := math.Abs(float64(got[p]) - n*share); dev > 5*math.Sqrt(n*share*(1-share))+1e-6 {
					t.Errorf("%v was drawn %d times, want %.0f", p, got[p], n*share)
				}
			}
		})
	}
}

// TestPermutation: each host sends to one, receives from one, and never from
// itself; seeds differ.
func TestPermutation(t *testing.T) {
	seen := make(map[string]bool)
	for seed := range uint64(50) {
		l := must(Permutation(5, Stream{Seed: seed}))
		var to []byte
		in := make([]bool, 5)
		for i, p := range l {
			if int(p.Src) != i || p.Dst == p.Src || in[p.Dst] {
				t.Fatalf("seed %d: %v", seed, l)
			}
			in[p.Dst] = true
			to = append(to, byte(p.Dst))
		}
		seen[string(to)] = true
	}
	if len(seen) < 25 { // of 44 derangements
		t.Errorf("50 seeds gave only %d permutations", len(seen))
	}
}

func TestPatternsRefused(t *testing.T) {
	for _, c := range []struct {
		name string
		make func() error
		want string
	}{
		{"stride of all", func() error { _, err := Stride(8, 16); return err }, "send to themselves"},
		{"stride of one host", func() error { _, err := Stride(1, 1); return err }, "send to themselves"},
		{"permutation of one", func() error { _, err := Permutation(1, Stream{}); return err }, "needs 2"},
	} {
		if err := c.make(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", c.name, err, c.want)
		}
	}
}

// TestStride holds the pairs against the definition.
func TestStride(t *testing.T) {
	l := must(Stride(4, 1))
	if want := (List{{0, 1}, {1, 2}, {2, 3}, {3, 0}}); !slices.Equal(l, want) {
		t.Errorf("stride 1 of 4: %v", l)
	}
}
