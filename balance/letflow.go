package balance

import (
	"math/rand/v2"

	"github.com/loomfabric/loom/internal/mono"
)

// letFlow puts each flowlet on a path chosen at random, by the paths' weights (Vanini et
// al., NSDI 2017: all alike). It measures nothing: flowlets themselves are elastic, they
// grow on a fast path and break up on a slow one.
type letFlow struct {
	flowlets
	rng *rand.PCG
}

var _ = register(Scheme{
	Name: "letflow", Summary: "a random path for each flowlet",
	New: newLetFlow, Gap: flowletGap, Keys: flowletKeys,
})

func newLetFlow(o *Options) Policy {
	return &letFlow{newFlowlets(o, o.Congestion.FlowletGap), newRNG(o)}
}

// Choose draws an uplink for each new flowlet.
func (l *letFlow) Choose(now mono.Time, v *View, pkts []Packet) {
	for i, _ := l.follow(now, v, pkts, 0); i < len(pkts); i, _ = l.follow(now, v, pkts, i+1) {
		p := &pkts[i]
		paths := &v.Paths[p.Leaf]
		l.start(now, paths, p, paths.Uplink[paths.draw(l.rng)])
	}
}

// Row spreads flowlets over all paths.
func (l *letFlow) Row(_ mono.Time, v *View, leaf uint16, r *Row) {
	r.all(&v.Paths[leaf])
	r.Drawn = true
}
