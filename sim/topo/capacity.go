package topo

// Capacity returns what the fabric can carry from a group of leaves to another
// one at time 0, bits per second: the maximum flow over links between switches,
// along ways that go up and then down. Overhead is not taken off. The groups
// must have no leaf in common.
func (t *Topology) Capacity(from, to []int) uint64 {
	p := t.plan
	// Each switch has a place on the way up and one on the way down.
	n := len(p.switches)
	source, sink := 2*n, 2*n+1
	g := newGraph(2*n + 2)
	for i := range p.links {
		l := &p.links[i]
		if t.startUp[i] {
			g.add(l.low, l.high, l.up.Rate)
			g.add(n+l.high, n+l.low, l.down.Rate)
		}
	}
	for s := p.leaves; s < n; s++ {
		g.add(s, n+s, unlimited)
	}
	for _, l := range from {
		g.add(source, l, unlimited)
	}
	for _, l := range to {
		g.add(n+l, sink, unlimited)
	}
	return g.maxFlow(source, sink)
}

// Bisection returns the capacity from the first half of the leaves to the
// second, bits per second.
func (t *Topology) Bisection() uint64 {
	n := t.plan.leaves
	return t.Capacity(span(0, n/2), span(n/2, n-n/2))
}

// UplinkRate returns the sum of the rates of a leaf's uplinks that are up at
// time 0, bits per second.
func (t *Topology) UplinkRate(leaf int) (sum uint64) {
	for i := range t.plan.links {
		if l := &t.plan.links[i]; l.low == leaf && t.startUp[i] {
			sum += l.up.Rate
		}
	}
	return sum
}

const unlimited = 1 << 62

// graph is a network of pipes.
type graph struct {
	pipes []pipe // pipe i and pipe i^1 are each other's reverse
	at    [][]int
	level []int
	next  []int
}

type pipe struct {
	to   int
	left uint64
}

func newGraph(n int) *graph {
	return &graph{at: make([][]int, n), level: make([]int, n), next: make([]int, n)}
}

func (g *graph) add(from, to int, capacity uint64) {
	g.at[from] = append(g.at[from], len(g.pipes))
	g.pipes = append(g.pipes, pipe{to, capacity})
	g.at[to] = append(g.at[to], len(g.pipes))
	g.pipes = append(g.pipes, pipe{from, 0})
}

// maxFlow is Dinic's algorithm: as long as the sink can be reached, fill the
// shortest ways.
func (g *graph) maxFlow(source, sink int) (total uint64) {
	for g.rank(source, sink) {
		clear(g.next)
		for {
			f := g.push(source, sink, unlimited)
			if f == 0 {
				break
			}
			total += f
		}
	}
	return total
}

// rank numbers vertices by their distance from the source.
func (g *graph) rank(source, sink int) bool {
	for i := range g.level {
		g.level[i] = -1
	}
	g.level[source] = 0
	queue := []int{source}
	for len(queue) > 0 {
		v := queue[0]
		queue = queue[1:]
		for _, e := range g.at[v] {
			if p := &g.pipes[e]; p.left > 0 && g.level[p.to] < 0 {
				g.level[p.to] = g.level[v] + 1
				queue = append(queue, p.to)
			}
		}
	}
	return g.level[sink] >= 0
}

func (g *graph) push(v, sink int, most uint64) uint64 {
	if v == sink {
		return most
	}
	for ; g.next[v] < len(g.at[v]); g.next[v]++ {
		e := g.at[v][g.next[v]]
		p := &g.pipes[e]
		if p.left == 0 || g.level[p.to] != g.level[v]+1 {
			continue
		}
		if f := g.push(p.to, sink, min(most, p.left)); f > 0 {
			p.left -= f
			g.pipes[e^1].left += f
			return f
		}
	}
	return 0
}
