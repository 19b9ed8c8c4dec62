package topo

import (
	"fmt"

	"github.com/loomfabric/loom/config/vocab"
	"github.com/loomfabric/loom/sim/engine"
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
