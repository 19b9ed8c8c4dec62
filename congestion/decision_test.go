package congestion

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// naiveBest returns every uplink that is as good as the best.
func naiveBest(d Decision, uplinks []uint8, local, remote *[MaxTags]uint8) []uint8 {
	var best []uint8
	better := func(a, b uint8) bool {
		metric := func(u uint8) int {
			if d.Metric == SumMetric {
				return int(local[u]) + int(remote[u])
			}
			return int(max(local[u], remote[u]))
		}
		bottlenecks := func(u uint8) (n int) {
			for _, part := range []uint8{local[u], remote[u]} {
				if part == max(local[u], remote[u]) {
					n++
				}
			}
			return n
		}
		if metric(a) != metric(b) || !d.FewestBottlenecks {
			return metric(a) < metric(b)
		}
		return bottlenecks(a) < bottlenecks(b)
	}
	for _, u := range uplinks {
		switch {
		case len(best) == 0 || better(u, best[0]):
			best = []uint8{u}
		case !better(best[0], u):
			best = append(best, u)
		}
	}
	return best
}

func allDecisions() []Decision {
	return []Decision{{}, {SumMetric, false}, {MaxMetric, true}, {SumMetric, true}}
}

func TestPickEqualsModel(t *testing.T) {
	rng := newRand(t)
	pcg := rand.NewPCG(rng.Uint64(), 0)
	for range 50_000 {
		d := allDecisions()[rng.IntN(4)]
		var local, remote [MaxTags]uint8
		levels := 1 + rng.IntN(255)
		for u := range local {
			local[u], remote[u] = uint8(rng.IntN(levels+1)), uint8(rng.IntN(levels+1))
		}
		var uplinks []uint8
		for _, u := range rng.Perm(MaxTags)[:rng.IntN(MaxTags+1)] {
			uplinks = append(uplinks, uint8(u))
		}
		cached := uint8(rng.IntN(MaxTags))
		if rng.IntN(4) == 0 {
			cached = NoUplink
		}
		best := naiveBest(d, uplinks, &local, &remote)
		got := d.Pick(uplinks, &local, &remote, cached, pcg)
		switch {
		case len(best) == 0:
			if got != NoUplink {
				t.Fatalf("uplink %d of none", got)
			}
		case slices.Contains(best, cached):
			if got != cached {
				t.Fatalf("%+v: picked %d of %v, but %d was cached", d, got, best, cached)
			}
		case !slices.Contains(best, got):
			t.Fatalf("%+v: picked %d, the best of %v are %v (local %v, remote %v)", d, got, uplinks, best, local, remote)
		}
	}
}

// Ties without a cached uplink are broken uniformly, whichever the tied ones
// are: each within 5 % (four standard deviations) of its share, with a fixed
// seed.
func TestPickIsUniform(t *testing.T) {
	pcg := rand.NewPCG(1, 2)
	all := []uint8{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}
	for n := 1; n <= MaxTags; n++ {
		var local, remote [MaxTags]uint8
		tied := all[MaxTags-n:]
		for u := range MaxTags - n {
			remote[u] = 1
		}
		var times [MaxTags]int
		const draws = 100_000
		for range draws {
			times[(Decision{}).Pick(all, &local, &remote, NoUplink, pcg)]++
		}
		for _, u := range tied {
			if want := draws / n; times[u] < want*95/100 || times[u] > want*105/100 {
				t.Errorf("%d tied: uplink %d picked %d times of %d", n, u, times[u], draws)
			}
		}
	}
}

func TestPickDoesNotAllocate(t *testing.T) {
	pcg := rand.NewPCG(1, 2)
	uplinks := []uint8{0, 1, 2, 3}
	var local, remote [MaxTags]uint8
	for _, d := range allDecisions() {
		if n := testing.AllocsPerRun(100, func() { local[d.Pick(uplinks, &local, &remote, 5, pcg)]++ }); n != 0 {
			t.Errorf("%+v: %v allocations, want none", d, n)
		}
	}
}

func BenchmarkPick(b *testing.B) {
	pcg := rand.NewPCG(1, 2)
	var local, remote [MaxTags]uint8
	for u := range remote {
		remote[u] = uint8(u * 5 % 8)
	}
	for _, n := range []int{2, 4, 16} {
		uplinks := make([]uint8, n)
		for i := range uplinks {
			uplinks[i] = uint8(i)
		}
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				local[0] = (Decision{}).Pick(uplinks, &local, &remote, NoUplink, pcg) & 7
			}
		})
	}
}
