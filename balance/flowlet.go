package balance

import (
	"github.com/loomfabric/loom/congestion"
	"github.com/loomfabric/loom/mono"
)

// flowlets is what the schemes have in common that decide once a flowlet
// (CONGA §3.4): its packets follow the first one.
type flowlets struct {
	table *congestion.Flowlets
}

func newFlowlets(o *Options) flowlets {
	return flowlets{congestion.NewFlowlets(o.Flowlets, o.Params.FlowletGap, o.Params.Detector)}
}

// Flowlets returns the table.
func (f *flowlets) Flowlets() *congestion.Flowlets { return f.table }

// Stats returns the table's counters; every decision starts a flowlet.
func (f *flowlets) Stats() Stats {
	s := f.table.Stats()
	return Stats{Decisions: s.Started, Flowlets: s}
}

// follow sends p after its flowlet, if that is under way and its uplink still
// leads to the leaf. Otherwise it reports false and the uplink of the flow's
// last flowlet, or congestion.NoUplink: a decision is due.
func (f *flowlets) follow(now mono.Time, paths *Paths, p *Packet) (last uint8, ok bool) {
	last, active := f.table.Lookup(p.Hash, now)
	if !active {
		return last, false
	}
	path := paths.Index[last%MaxPaths]
	if path < 0 {
		return last, false
	}
	f.table.Touch(p.Hash, now)
	p.Path = uint8(path)
	return last, true
}

// start puts p, the first packet of a flowlet, on an uplink that leads to its
// leaf.
func (f *flowlets) start(now mono.Time, paths *Paths, p *Packet, uplink uint8) {
	f.table.Set(p.Hash, uplink, now)
	p.Path = uint8(paths.Index[uplink%MaxPaths])
}
