package topo

import (
	"fmt"

	"github.com/loomfabric/loom/sim/engine"
)

// down notes which links are down when the run starts.
func (t *Topology) down(faults []Fault) error {
	for _, f := range faults {
		i, err := t.plan.find(f.Link)
		if err != nil {
			return fmt.Errorf("fault at %v: %w", f.At, err)
		}
		if f.At <= 0 && i < len(t.startUp) {
			t.startUp[i] = f.Up
		}
	}
	return nil
}

// begin puts faults up to time 0 and the routes that follow from them in force,
// and schedules the others.
func (t *Topology) begin(faults []Fault) error {
	for from := range t.plan.leaves {
		for to := range t.plan.leaves {
			if from != to && len(t.start.next[to][from]) == 0 {
				return fmt.Errorf("leaf %s has no path to leaf %s", t.plan.switches[from].name, t.plan.switches[to].name)
			}
		}
	}
	for _, f := range faults {
		if link, err := t.Link(f.Link); err == nil && f.At <= 0 {
			link.A.SetUp(0, f.Up)
		}
	}
	if err := t.apply(t.start); err != nil {
		return err
	}
	for _, f := range faults {
		if f.At > 0 {
			if err := t.schedule(f); err != nil {
				return err
			}
		}
	}
	return nil
}

// schedule makes a fault or a repair happen later. It must not lie in the past.
func (t *Topology) schedule(f Fault) error {
	if _, err := t.plan.find(f.Link); err != nil {
		return fmt.Errorf("fault at %v: %w", f.At, err)
	}
	if now := t.Network.Engine.Now(); f.At < now {
		return fmt.Errorf("fault of link %s at %v: it is %v already", f.Link, f.At, now)
	}
	t.faults = append(t.faults, f)
	t.Network.Engine.At(f.At, t.id, uint64(len(t.faults)-1))
	return nil
}

// Handle is the engine's to call.
func (t *Topology) Handle(now engine.Time, arg uint64) {
	f := &t.faults[arg]
	i, err := t.plan.find(f.Link)
	if err != nil {
		panic(err) // schedule has looked
	}
	t.Links[i].A.SetUp(now, f.Up)
	if i >= len(t.up) {
		return // a host's link is in no route
	}
	t.up[i] = f.Up
	if err := t.apply(t.plan.route(t.up)); err != nil {
		panic(err) // parts of routes that were possible
	}
}

// apply gives every switch its routes.
func (t *Topology) apply(r *routes) error {
	ports := make([]int, 0, maxNext)
	uplinks := make([]uint8, 0, maxNext)
	for to := range r.next {
		for s, links := range r.next[to] {
			ports, uplinks = ports[:0], uplinks[:0]
			for _, l := range links {
				p := t.end(l, s)
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
