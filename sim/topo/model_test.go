package topo

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/loomfabric/loom/sim/node"
)

// waysUpAndDown lists all ways from a switch to a leaf that go up and then down,
// each as its links: by trying everything.
func (p *plan) waysUpAndDown(up []bool, from, leaf int, falling bool) (ways [][]int) {
	if from == leaf {
		return [][]int{{}}
	}
	for i, l := range p.links {
		if !up[i] || l.low != from && l.high != from || falling && l.low == from {
			continue
		}
		for _, rest := range p.waysUpAndDown(up, l.other(from), leaf, falling || l.high == from) {
			ways = append(ways, append([]int{i}, rest...))
		}
	}
	return ways
}

// Routes are the first steps of the shortest of all ways, whatever is down.
func TestRoutesAreShortestWays(t *testing.T) {
	const seed = 11
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for _, shape := range shapes[1:] {
		if shape.name == "fat-tree of 8, 2:1" {
			continue // too many ways to try
		}
		top := mustBuild(t, shape.spec(), node.DefaultConfig())
		p := top.plan
		for trial := range 12 {
			up := make([]bool, len(p.links))
			for i := range up {
				up[i] = trial == 0 || rng.IntN(4) > 0
			}
			r := p.route(up)
			leaf := rng.IntN(p.leaves)
			for s := range p.switches {
				ways := p.waysUpAndDown(up, s, leaf, false)
				slices.SortStableFunc(ways, func(a, b []int) int { return len(a) - len(b) })
				var want []int
				for _, w := range ways {
					if s != leaf && len(w) == len(ways[0]) {
						want = append(want, w[0])
					}
				}
				slices.Sort(want)
				want = slices.Compact(want)
				// A spine goes down if it can: its ways up are longer by two.
				if got := r[leaf][s]; !slices.Equal(got, want) {
					t.Fatalf("%s, trial %d: %s goes to leaf %d by links %v, want %v", shape.name, trial, p.switches[s].name, leaf, got, want)
				}
			}
		}
	}
}
