package balance

import (
	"time"

	"github.com/loomfabric/loom/congestion"
	"github.com/loomfabric/loom/internal/mono"
)

// flowlets is what the schemes have in common that decide once a flowlet
// (CONGA §3.4): its packets follow the first one.
type flowlets struct {
	table *congestion.Flowlets
}

func newFlowlets(o *Options) flowlets {
	return flowlets{congestion.NewFlowlets(o.Flowlets, o.Params.FlowletGap, o.Params.Detector)}
}

// Gap returns the pause after which a flow may move under a scheme; ok is false
// for schemes that do not keep flowlets.
func Gap(scheme string, p *congestion.Params) (gap time.Duration, ok bool) {
	switch scheme {
	case "local", "letflow", "conga":
		return p.FlowletGap, true
	case "conga-flow":
		return p.FlowGap, true
	}
	return 0, false
}

// Flowlets returns the table.
func (f *flowlets) Flowlets() *congestion.Flowlets { return f.table }

// Stats returns the table's counters; every decision starts a flowlet.
func (f *flowlets) Stats() Stats {
	s := f.table.Stats()
	return Stats{Decisions: s.Started, Flowlets: s}
}

// follow sends packets after their flowlets, from the i-th one on, until it
// comes to one for which a decision is due: it starts a flowlet, or the uplink
// of its flowlet no longer leads to the leaf. It returns the packet's index and
// the uplink that the flow's last flowlet took, or congestion.NoUplink; the
// index is len(pkts) when all are on their way. Packets without a path are
// passed over.
func (f *flowlets) follow(now mono.Time, v *View, pkts []Packet, i int) (next int, last uint8) {
	table := f.table
	at := table.Stamp(now)
	for ; i < len(pkts); i++ {
		p := &pkts[i]
		paths := &v.Paths[p.Leaf]
		last, active := table.Packet(p.Hash, at)
		path := paths.Index[last%MaxPaths]
		if active && path >= 0 {
			p.Path = uint8(path)
		} else if paths.N > 0 {
			return i, last
		}
	}
	return i, congestion.NoUplink
}

// start puts p, the first packet of a flowlet, on an uplink that leads to its
// leaf.
func (f *flowlets) start(now mono.Time, paths *Paths, p *Packet, uplink uint8) {
	f.table.Set(p.Hash, uplink, now)
	p.Path = uint8(paths.Index[uplink%MaxPaths])
}
