package balance

import (
	"math/rand/v2"
	"time"

	"github.com/loomfabric/loom/congestion"
	"github.com/loomfabric/loom/internal/mono"
)

// conga puts each flowlet on the uplink that leads to its leaf with the least
// congestion, local and remote (CONGA §3.5).
type conga struct {
	flowlets
	decision congestion.Decision
	global   bool // look at remote metrics
	rng      *rand.PCG
	remote   [MaxPaths]uint8
}

var _ = register(Scheme{
	Name: "conga", Summary: "the least congested path for each flowlet",
	New: func(o *Options) Policy { return newCONGA(o, o.Congestion.FlowletGap) },
	Gap: flowletGap, Keys: flowletKeys, NeedsPeer: true,
})

// CONGA-Flow is CONGA with a flowlet gap that no path's latency exceeds, so that in
// effect it decides once a flow and reorders nothing (§5).
var _ = register(Scheme{
	Name: "conga-flow", Summary: "the least congested path for each flow",
	New: func(o *Options) Policy {
		c := newCONGA(o, o.Congestion.FlowGap)
		c.fixed = true
		return c
	},
	Gap: flowGap, Keys: flowletKeys, NeedsPeer: true,
})

func newCONGA(o *Options, gap time.Duration) *conga {
	return &conga{flowlets: newFlowlets(o, gap), decision: o.Congestion.Decision, global: true, rng: newRNG(o)}
}

// Choose decides for each new flowlet, also for one whose uplink no longer
// leads to the leaf. Within a vector the least congested uplinks to a leaf are the same.
func (c *conga) Choose(now mono.Time, v *View, pkts []Packet) {
	leaf, best := -1, uint16(0)
	for i, last := c.follow(now, v, pkts, 0); i < len(pkts); i, last = c.follow(now, v, pkts, i+1) {
		p := &pkts[i]
		if leaf < 0 {
			v.look(now)
		}
		if leaf != int(p.Leaf) {
			leaf, best = int(p.Leaf), c.best(now, v, p.Leaf)
		}
		c.start(now, &v.Paths[p.Leaf], p, congestion.PickAmong(best, last, c.rng))
	}
}

// best returns the uplinks that lead to a leaf with the least congestion, as bits.
func (c *conga) best(now mono.Time, v *View, leaf uint16) uint16 {
	paths := &v.Paths[leaf]
	if c.global { // else remote stays zero
		v.remote(leaf, now, &c.remote)
	}
	return c.decision.Best(paths.Uplink[:paths.N], v.Local, &c.remote)
}

// Row spreads flowlets over the uplinks that are the least congested now.
func (c *conga) Row(now mono.Time, v *View, leaf uint16, r *Row) {
	best := c.best(now, v, leaf)
	r.some(&v.Paths[leaf], best)
	r.Keep, r.Drawn = best, true
}
