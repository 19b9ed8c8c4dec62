package balance

import (
	"math/rand/v2"

	"github.com/loomfabric/loom/congestion"
	"github.com/loomfabric/loom/internal/mono"
)

// conga puts each flowlet on the uplink that leads to its leaf with the least
// congestion, local and remote (CONGA §3.5).
type conga struct {
	flowlets
	name     string
	decision congestion.Decision
	global   bool // look at remote metrics
	rng      *rand.PCG
	remote   [MaxPaths]uint8
}

func newCONGA(o *Options) Policy {
	return &conga{flowlets: newFlowlets(o), name: "conga", decision: o.Params.Decision, global: true, rng: newRNG(o)}
}

// newCONGAFlow returns CONGA-Flow: CONGA with a flowlet gap that no path's
// latency exceeds, so that in effect it decides once a flow and reorders
// nothing (§5).
func newCONGAFlow(o *Options) Policy {
	o.Params.FlowletGap = o.Params.FlowGap
	c := newCONGA(o).(*conga)
	c.name = "conga-flow"
	return c
}

func (c *conga) Name() string { return c.name }

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
		switch {
		case !c.global: // remote stays zero
		case v.Remote != nil:
			v.Remote.Metrics(p.Leaf, now, &c.remote)
		default:
			c.remote = [MaxPaths]uint8{}
		}
		uplink := c.decision.Pick(paths.Uplink[:paths.N], v.Local, &c.remote, last, c.rng)
		c.start(now, paths, p, uplink)
	}
}
