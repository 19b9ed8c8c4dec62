package traffic

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/loomfabric/loom/internal/workload"
	"github.com/loomfabric/loom/sim/engine"
	"github.com/loomfabric/loom/sim/network"
)

// PoissonConfig describes an open-loop workload: flows arrive as a Poisson
// process, and do not wait for earlier ones (CONGA §5.2, ConWeave §4.1).
type PoissonConfig struct {
	Stream
	Pairs Pairs
	Sizes Sizes
	Rate  float64     // flows per second, see [Load.FlowRate]
	From  engine.Time // the process begins here; the first flow comes a gap later
	Until engine.Time // no flow starts at or after it; 0: no limit
	Flows uint64      // the most that there are; 0: no limit
	// Conns is the number of persistent connections that each ordered pair of
	// hosts keeps; a flow takes one of them at random. CONGA §5.2 has 3. 0:
	// each flow opens its own.
	Conns int
	Hosts int // of the network; needed with Conns
	Tag   int
}

// Poisson is the source of such a workload's flows.
type Poisson struct {
	c                   PoissonConfig
	gaps                *workload.Poisson
	sizes, pairs, conns *rand.Rand
	at                  float64 // seconds since From
	made                uint64
	ended               bool
}

// NewPoisson returns the workload. It must end by time or by number of flows.
func NewPoisson(c PoissonConfig) (*Poisson, error) {
	if err := checkPairs(c.Pairs); err != nil {
		return nil, fmt.Errorf("workload %d: %w", c.Tag, err)
	}
	switch {
	case c.Sizes == nil:
		return nil, fmt.Errorf("workload %d needs sizes", c.Tag)
	case !(c.Rate > 0) || math.IsInf(c.Rate, 0):
		return nil, fmt.Errorf("workload %d: flows cannot arrive at a rate of %g per second", c.Tag, c.Rate)
	case c.Until == 0 && c.Flows == 0:
		return nil, fmt.Errorf("workload %d never ends: give it an end or a number of flows", c.Tag)
	case c.From < 0 || c.Until < 0:
		return nil, fmt.Errorf("workload %d goes from %v to %v: times are not negative", c.Tag, c.From, c.Until)
	case c.Conns < 0 || c.Conns > 0 && c.Hosts < 2:
		return nil, fmt.Errorf("workload %d keeps %d connections between each two of %d hosts: give both numbers", c.Tag, c.Conns, c.Hosts)
	}
	return &Poisson{
		c:     c,
		gaps:  workload.NewPoisson(c.Rate, c.rand(forArrivals)),
		sizes: c.rand(forSizes), pairs: c.rand(forPairs), conns: c.rand(forConns),
	}, nil
}

// Conns bounds the connections' numbers.
func (p *Poisson) Conns() int { return p.c.Hosts * p.c.Hosts * p.c.Conns }

// Next returns the next flow. Starts are whole nanoseconds, so that a trace of
// the flows is exact; the process itself is not rounded.
func (p *Poisson) Next() (Flow, bool) {
	if p.ended || p.c.Flows > 0 && p.made == p.c.Flows {
		return Flow{}, false
	}
	p.at += p.gaps.Gap()
	ns := p.at * float64(engine.Second/engine.Nanosecond)
	if ns >= float64((engine.Never-p.c.From)/engine.Nanosecond) {
		p.ended = true
		return Flow{}, false
	}
	start := (p.c.From + engine.Time(ns)*engine.Nanosecond) / engine.Nanosecond * engine.Nanosecond
	if p.c.Until > 0 && start >= p.c.Until {
		p.ended = true
		return Flow{}, false
	}
	pair := p.c.Pairs.Pick(p.pairs)
	f := Flow{
		ID: network.FlowID(p.made), Start: start, Src: pair.Src, Dst: pair.Dst,
		Bytes: p.c.Sizes.Sample(p.sizes), Until: engine.Never, Tag: p.c.Tag,
	}
	f.Conn, f.Key = p.conn(pair)
	p.made++
	return f, true
}

func (p *Poisson) conn(pair Pair) (int, uint64) {
	if p.c.Conns == 0 {
		return NoConn, p.c.key(keyOfFlow, p.made)
	}
	n := (int(pair.Src)*p.c.Hosts+int(pair.Dst))*p.c.Conns + p.conns.IntN(p.c.Conns)
	return n, p.c.key(keyOfConn, uint64(n))
}
