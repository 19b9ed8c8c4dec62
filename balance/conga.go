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
// leads to the leaf.
func (c *conga) Choose(now mono.Time, v *View, pkts []Packet) {
	looked := false
	for i, last := c.follow(now, v, pkts, 0); i < len(pkts); i, last = c.follow(now, v, pkts, i+1) {
		p := &pkts[i]
		if !looked {
			looked = true
			v.look(now)
		}
		paths := &v.Paths[p.Leaf]
		if c.global { // else remote stays zero
			v.remote(p.Leaf, now, &c.remote)
		}
		uplink := c.decision.Pick(paths.Uplink[:paths.N], v.Local, &c.remote, last, c.rng)
		c.start(now, paths, p, uplink)
	}
}

// Row spreads flowlets over the uplinks that are the least congested now.
func (c *conga) Row(now mono.Time, v *View, leaf uint16, r *Row) {
	paths := &v.Paths[leaf]
	if c.global { // else remote stays zero
		v.remote(leaf, now, &c.remote)
	}
	best := c.decision.Best(paths.Uplink[:paths.N], v.Local, &c.remote)
	r.some(paths, best)
	r.Keep, r.Drawn = best, true
}
