package topo

import "math"

// routes are the next hops of every switch to every leaf: by leaf, by switch, the
// links in the order of their numbers.
type routes [][][]int

const far = math.MaxInt32

// route computes shortest ways that go up and then down, over links that are
// up.
func (p *plan) route(up []bool) routes {
	r := make(routes, p.leaves)
	lower, upper := p.neighbours(up)
	down := make([]int, len(p.switches)) // distance if one only goes down
	dist := make([]int, len(p.switches))
	for leaf := range p.leaves {
		next := make([][]int, len(p.switches))
		for i := range down {
			down[i] = far
		}
		down[leaf] = 0
		for s := range p.switches { // lowest tier first
			for _, l := range lower[s] {
				down[s] = min(down[s], 1+down[p.links[l].low])
			}
		}
		for s := len(p.switches) - 1; s >= 0; s-- {
			links, to := lower[s], down
			if dist[s] = down[s]; dist[s] >= far {
				links, to = upper[s], dist
				for _, l := range links {
					dist[s] = min(dist[s], 1+dist[p.links[l].high])
				}
			}
			if s == leaf || dist[s] >= far {
				dist[s] = min(dist[s], far)
				continue
			}
			for _, l := range links {
				if to[p.links[l].other(s)] == dist[s]-1 {
					next[s] = append(next[s], l)
				}
			}
		}
		r[leaf] = next
	}
	return r
}

// neighbours returns the links that are up to each switch's lower and upper
// neighbours.
func (p *plan) neighbours(up []bool) (lower, upper [][]int) {
	lower, upper = make([][]int, len(p.switches)), make([][]int, len(p.switches))
	for i, l := range p.links {
		if up[i] {
			lower[l.high] = append(lower[l.high], i)
			upper[l.low] = append(upper[l.low], i)
		}
	}
	return lower, upper
}
