package traffic

import (
	"math/rand/v2"

	"github.com/loomfabric/loom/internal/workload"
	"github.com/loomfabric/loom/sim/engine"
)

// PoissonConfig describes an open-loop workload: flows arrive as a Poisson
// process, and do not wait for earlier ones (CONGA §5.2, ConWeave §4.1).
type PoissonConfig struct {
	Stream
	Pairs *Selection
	Sizes Sizes
	Rate  float64     // flows per second, see [Load.FlowRate]
	From  engine.Time // the process begins here, in whole nanoseconds; the first flow comes a gap later
	Until engine.Time // no flow starts at or after it
	// Conns is the number of persistent connections that each ordered pair of
	// hosts keeps; a flow takes one of them at random. CONGA §5.2 has 3. 0:
	// each flow opens its own.
	Conns int
}

// Poisson is the source of such a workload's flows.
type Poisson struct {
	c                   PoissonConfig
	gaps                *workload.Poisson
	sizes, pairs, conns *rand.Rand
	at                  float64 // seconds since From
	made                uint64
}

// NewPoisson returns the workload.
func NewPoisson(c PoissonConfig) *Poisson {
	return &Poisson{
		c:     c,
		gaps:  workload.NewPoisson(c.Rate, c.rand(forArrivals)),
		sizes: c.rand(forSizes), pairs: c.rand(forPairs), conns: c.rand(forConns),
	}
}

// Conns bounds the connections' numbers.
func (p *Poisson) Conns() int { return len(p.c.Pairs.Rack) * len(p.c.Pairs.Rack) * p.c.Conns }

// Next returns the next flow. Starts are whole nanoseconds, so that a trace of
// the flows is exact; the process itself is not rounded.
func (p *Poisson) Next() (Flow, bool) {
	p.at += p.gaps.Gap()
	ns := p.at * float64(engine.Second/engine.Nanosecond)
	if ns >= float64((p.c.Until-p.c.From)/engine.Nanosecond) {
		return Flow{}, false
	}
	pair := p.c.Pairs.pick(p.pairs)
	f := p.c.flow(p.made, p.c.From+engine.Time(ns)*engine.Nanosecond, pair, p.c.Sizes.Sample(p.sizes))
	if p.c.Conns > 0 {
		f.Conn = (int(pair.Src)*len(p.c.Pairs.Rack)+int(pair.Dst))*p.c.Conns + p.conns.IntN(p.c.Conns)
		f.Key = p.c.key(keyOfConn, uint64(f.Conn))
	}
	p.made++
	return f, true
}
