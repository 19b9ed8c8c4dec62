package topo

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/loomfabric/loom/config/vocab"
	"github.com/loomfabric/loom/sim/engine"
	"github.com/loomfabric/loom/sim/network"
	"github.com/loomfabric/loom/sim/node"
)

// fault fails or repairs a link.
type fault struct {
	at   engine.Time
	link *Link
	up   bool
}

// prepare finds the faults' links, and says which are down when the run starts.
func (t *Topology) prepare(faults []vocab.Fault) error {
	for _, f := range faults {
		name, up := f.Fail, f.Restore != ""
		if up {
			name = f.Restore
		}
		l, err := t.plan.find(name)
		if err != nil {
			return fmt.Errorf("fault at %v: %w", f.At, err)
		}
		t.faults = append(t.faults, fault{engine.Of(f.At), l, up})
		if f.At <= 0 && l.index < len(t.up) {
			t.up[l.index] = up
		}
	}
	return nil
}

// downKey makes the draw of links that are down one of its own.
const downKey = 0x646f776e

// takeDown takes links between switches down from the start, at random, but of
// parallel ones one at most. A link without which two leaves would be parted stays
// up, and another one is drawn.
func (t *Topology) takeDown(down int, seed uint64) error {
	if down == 0 {
		return nil
	}
	left := down
	for _, i := range rand.New(rand.NewPCG(seed, downKey)).Perm(len(t.plan.links)) {
		if left == 0 {
			return nil
		}
		l := t.plan.links[i]
		parallel := func(o *Link) bool { return o.low == l.low && o.high == l.high && !t.up[o.index] }
		if slices.ContainsFunc(t.plan.links, parallel) { // or this very one
			continue
		}
		if t.up[i] = false; t.plan.route(t.up).parted(t.plan.leaves) {
			t.up[i] = true
			continue
		}
		t.faults = append(t.faults, fault{0, l, false})
		left--
	}
	if left > 0 {
		return fmt.Errorf("%d links cannot be down: without %d all leaves reach each other, and without more they do not", down, down-left)
	}
	return nil
}

// parted reports whether a leaf has no path to another one.
func (r routes) parted(leaves int) bool {
	for to := range leaves {
		for from := range leaves {
			if from != to && len(r[to][from]) == 0 {
				return true
			}
		}
	}
	return false
}

// BesideDown returns the ports towards leaves beside which a parallel link of the
// same switch is down at time 0.
func (t *Topology) BesideDown() (out []*network.Port) {
	for i, l := range t.plan.links {
		beside := func(o *Link) bool { return o.low == l.low && o.high == l.high && !t.up[o.index] }
		if l.low < t.plan.leaves && t.up[i] && slices.ContainsFunc(t.plan.links, beside) {
			out = append(out, l.B)
		}
	}
	return out
}

// begin puts faults up to time 0 and the routes that follow from them in force,
// and schedules the others.
func (t *Topology) begin() error {
	for from := range t.plan.leaves {
		for to := range t.plan.leaves {
			if from != to && len(t.start[to][from]) == 0 {
				return fmt.Errorf("leaf %s has no path to leaf %s", t.plan.switches[from].name, t.plan.switches[to].name)
			}
		}
	}
	for _, f := range t.faults {
		if f.at <= 0 {
			f.link.A.SetUp(0, f.up)
		}
	}
	if err := t.apply(t.start); err != nil {
		return err
	}
	node.Acquaint(t.Leaves)
	for i, f := range t.faults {
		if f.at > 0 {
			t.Network.Engine.At(f.at, t.id, uint64(i))
		}
	}
	return nil
}

// Handle is the engine's to call: it is the time of a fault.
func (t *Topology) Handle(now engine.Time, arg uint64) {
	f := &t.faults[arg]
	f.link.A.SetUp(now, f.up)
	if f.link.index >= len(t.up) {
		return // a host's link is in no route
	}
	t.up[f.link.index] = f.up
	if err := t.apply(t.plan.route(t.up)); err != nil {
		panic(err) // parts of routes that were possible
	}
}

// apply gives every switch its routes.
func (t *Topology) apply(r routes) error {
	ports := make([]int, 0, maxNext)
	uplinks := make([]uint8, 0, maxNext)
	for to := range r {
		for s, links := range r[to] {
			ports, uplinks = ports[:0], uplinks[:0]
			for _, l := range links {
				p := t.Links[l].end(s)
				ports, uplinks = append(ports, p.Index), append(uplinks, uint8(p.Index))
			}
			if s < t.plan.leaves {
				t.Leaves[s].SetPaths(uint16(to), uplinks)
			} else if err := t.Spines[s-t.plan.leaves].SetRoute(uint16(to), ports); err != nil {
				return err
			}
		}
	}
	return nil
}
