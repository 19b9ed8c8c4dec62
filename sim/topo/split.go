package topo

import (
	"slices"

	"github.com/loomfabric/loom/sim/engine"
	"github.com/loomfabric/loom/sim/network"
)

// split decides which part of the network each switch belongs to, with its hosts: to one of
// its own, if that is wanted. Switches that a link without delay connects stay together.
func (t *Topology) split(wanted bool) {
	p := t.plan
	t.nets = slices.Repeat([]*network.Network{t.Network}, len(p.switches))
	if !wanted {
		return
	}
	group := make([]int, len(p.switches)) // the first switch of it
	for i := range group {
		group[i] = i
	}
	for _, l := range p.links {
		if min(l.up.Delay, l.down.Delay) > 0 {
			continue
		}
		a, b := group[l.low], group[l.high]
		for i := range group {
			if group[i] == max(a, b) {
				group[i] = min(a, b)
			}
		}
	}
	if slices.Max(group) == 0 {
		return
	}
	for i, first := range group {
		if first < i {
			t.nets[i] = t.nets[first]
		} else {
			t.nets[i] = t.Network.Part(engine.New())
		}
	}
}

// Lookahead returns the least delay of a link between two parts of the network; 0 if it
// has no parts.
func (t *Topology) Lookahead() engine.Time {
	if !t.Network.Split() {
		return 0
	}
	least := engine.Never
	for _, l := range t.plan.links {
		if t.nets[l.low] != t.nets[l.high] {
			least = min(least, l.A.Delay, l.B.Delay)
		}
	}
	return least
}
