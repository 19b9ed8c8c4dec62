package sim

import (
	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/internal/measure"
	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/sim/theory"
	"github.com/loomfabric/loom/sim/traffic"
)

// tables are how many flows leaves have in their tables, sampled in the window.
type tables struct {
	all    *measure.Values
	names  []string
	leaves []*measure.Values
}

// tableSamples is how many samples are kept one by one.
const tableSamples = 20_000

// watchTables samples the tables of the scheme's receivers, if they have any.
func (c *collector) watchTables() {
	s := balance.Find(c.r.spec.Scheme)
	if c.r.spec.Measure.Tables == 0 || s.Wire == 0 {
		return
	}
	t := &tables{all: measure.NewValues(tableSamples)}
	var looks []func()
	for _, l := range c.r.topo.Leaves {
		r, ok := l.Brain().Receiver(s.Wire).(balance.Populated)
		if !ok {
			return
		}
		own := measure.NewValues(tableSamples)
		t.names, t.leaves = append(t.names, l.Name), append(t.leaves, own)
		looks = append(looks, func() {
			n := float64(r.Entries(mono.Time(c.r.engine.Now().Mono())))
			t.all.Add(n)
			own.Add(n)
		})
	}
	c.tables = t
	c.r.every(c.r.spec.Measure.Tables, looks...)
}

// explorations are the flows that have started, for the formula of what exploring costs.
type explorations struct{ flows, bytes uint64 }

func (e *explorations) add(f *traffic.Flow) {
	if f.Bytes != traffic.Endless {
		e.flows++
		e.bytes += f.Bytes
	}
}

// explored fills in what the tables had and what it cost to explore.
func (r *run) explored(out *measure.Result) {
	if t := r.collect.tables; t != nil {
		out.Tables = append(out.Tables, t.all.Distribution("all"))
		for i, v := range t.leaves {
			out.Tables = append(out.Tables, v.Distribution(t.names[i]))
		}
	}
	if balance.Find(r.spec.Scheme).Explores == nil {
		return
	}
	x := &measure.ExplorationResult{}
	for _, l := range r.topo.Leaves {
		s := l.Stats()
		x.Requests += s.Requests
		x.RequestBytes += s.RequestBytes
		x.DataBytes += s.DataBytes
	}
	out.Exploration = x
	e := &r.collect.started
	explored := float64(out.Scheduler["own_explorations"])
	if x.DataBytes == 0 || x.Requests == 0 || e.flows == 0 || explored == 0 {
		return
	}
	x.Percent = 100 * float64(x.RequestBytes) / float64(x.DataBytes)
	leaves := 2 // without flooding one leaf has a request
	if r.spec.Topology.Flood {
		leaves = len(r.topo.Leaves)
	}
	request, flow := float64(x.RequestBytes)/float64(x.Requests), float64(e.bytes)/float64(e.flows)
	x.FormulaPercent = 100 * theory.ExploringShare(len(r.topo.Leaves[0].Uplinks()), leaves, request, flow) * explored / float64(e.flows)
	x.OfFormula = x.Percent / x.FormulaPercent
}
