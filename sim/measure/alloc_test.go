package measure

import (
	"testing"

	"github.com/loomfabric/loom/sim/engine"
)

// TestAddsDoNotAllocate covers whatever is called for packets, flows and
// samples.
func TestAddsDoNotAllocate(t *testing.T) {
	e := engine.New()
	s, err := NewSampler(e, 0, 10, engine.Never)
	if err != nil {
		t.Fatal(err)
	}
	im := NewImbalance(3, 8)
	sent := make([]uint64, 3)
	samples := 0
	s.Register(probe(func(now engine.Time) {
		samples++
		sent[now%3] += 7
		im.Sample(sent)
	}))
	values, fct := NewValues(100), NewFCT(congaClasses())
	now := engine.Time(0)
	for name, f := range map[string]func(){
		"values":  func() { values.Add(float64(now)) },
		"fct":     func() { fct.Add(5000, 0, 10*engine.Microsecond+now, engine.Microsecond) },
		"sampler": func() { e.Run(now * 5) },
	} {
		f()
		if n := testing.AllocsPerRun(500, func() { now++; f() }); n != 0 {
			t.Errorf("%s: %g allocations", name, n)
		}
	}
	if values.Exact() || samples < 100 {
		t.Errorf("the run was too short: %d values, %d samples", values.Count(), samples)
	}
}

type probe func(now engine.Time)

func (p probe) Sample(now engine.Time) { p(now) }
