package leaf

import (
	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/reorder"
)

// gateSize is how many packets can wait at a time because their scheme says so.
const gateSize = 4096

// Waiting is a packet that its scheme has told to wait.
type Waiting[T any] struct {
	Item  T
	Class *Class // that it belonged to
	until mono.Time
	order uint64
}

// gate keeps packets until a time: a binary heap, and of packets of one time the
// first comes first. The zero value is empty.
type gate[T any] struct {
	heap  []Waiting[T]
	count uint64
}

func (g *gate[T]) deadline() mono.Time {
	if len(g.heap) == 0 {
		return reorder.Never
	}
	return g.heap[0].until
}

// Wait keeps a packet that Choose has told to wait (Packet.Until). When its time has
// come it is in Output.Retry, to be offered to Choose again. It reports false if too
// many wait already: the packet then goes by the path that Choose named.
func (l *Leaf[T]) Wait(c *Class, p *balance.Packet, item T) bool {
	g := &l.gate
	if len(g.heap) == gateSize {
		l.stats.GateFull++
		return false
	}
	if g.heap == nil {
		g.heap = make([]Waiting[T], 0, gateSize) // once, and only where a scheme waits
		l.out.Retry = make([]Waiting[T], 0, gateSize)
	}
	l.stats.Waited++
	g.count++
	g.heap = append(g.heap, Waiting[T]{item, c, p.Until, g.count})
	for i := len(g.heap) - 1; i > 0 && g.less(i, (i-1)/2); i = (i - 1) / 2 {
		g.heap[i], g.heap[(i-1)/2] = g.heap[(i-1)/2], g.heap[i]
	}
	return true
}

func (g *gate[T]) less(i, j int) bool {
	a, b := &g.heap[i], &g.heap[j]
	return a.until < b.until || a.until == b.until && int64(a.order-b.order) < 0
}

// due moves the packets whose time has come to the output.
func (g *gate[T]) due(now mono.Time, o *Output[T]) {
	for len(g.heap) > 0 && g.heap[0].until <= now {
		o.Retry = append(o.Retry, g.pop())
	}
}

func (g *gate[T]) pop() Waiting[T] {
	first, last := g.heap[0], len(g.heap)-1
	g.heap[0] = g.heap[last]
	g.heap[last] = Waiting[T]{}
	g.heap = g.heap[:last]
	for i := 0; ; {
		least := i
		for c := 2*i + 1; c <= 2*i+2 && c < last; c++ {
			if g.less(c, least) {
				least = c
			}
		}
		if least == i {
			return first
		}
		g.heap[i], g.heap[least] = g.heap[least], g.heap[i]
		i = least
	}
}
