package measure

import (
	"slices"
	"strings"
	"testing"

	"github.com/loomfabric/loom/sim/engine"
)

// TestImbalance: CONGA §5.2.3: "the maximum throughput (among the 4 uplinks)
// minus the minimum divided by the average: (MAX − MIN)/AVG".
func TestImbalance(t *testing.T) {
	b := NewImbalance(4, 100)
	for _, sent := range [][]uint64{
		{5, 5, 5, 5},     // the beginning
		{15, 15, 15, 15}, // even: 0
		{15, 15, 15, 15}, // nothing
		{25, 45, 15, 25}, // 10, 30, 0, 10: 30/12.5
		{25, 45, 15, 65}, // one has all: 4
	} {
		b.Sample(sent)
	}
	if b.Values().Count() != 3 {
		t.Fatalf("%d intervals", b.Values().Count())
	}
	var got []float64
	for _, p := range b.Values().CDF(3) {
		got = append(got, p.Value)
	}
	if !slices.Equal(got, []float64{0, 2.4, 4}) {
		t.Errorf("imbalance %v", got)
	}
	o := NewImbalance(4, 100)
	o.Sample([]uint64{0, 0, 0, 0})
	o.Sample([]uint64{0, 0, 0, 0})
	o.Sample([]uint64{1, 1, 1, 3})
	b.Merge(o)
	if v := b.Values(); v.Count() != 4 || !near(v.Mean(), (0+2.4+4+4.0/3)/4, 1e-9) || v.Max() != 4 {
		t.Errorf("%d intervals, mean %g, largest %g", v.Count(), v.Mean(), v.Max())
	}
	for name, sent := range map[string][]uint64{"fell from 45": {25, 44, 15, 65}, "3 counters for 4": {25, 45, 15}} {
		func() {
			defer func() {
				if r, _ := recover().(string); !strings.Contains(r, name) {
					t.Errorf("panic %q, want %q", r, name)
				}
			}()
			b.Sample(sent)
		}()
	}
}

func TestSampler(t *testing.T) {
	e := engine.New()
	s, err := NewSampler(e, 7*us, 10*us, 40*us)
	if err != nil {
		t.Fatal(err)
	}
	var first, second []engine.Time
	s.Register(probe(func(now engine.Time) {
		first = append(first, now)
		if len(second) != len(first)-1 {
			t.Error("probes were not called in the order of registration")
		}
	}))
	s.Register(probe(func(now engine.Time) { second = append(second, now) }))
	e.Run(engine.Never)
	if want := []engine.Time{7 * us, 17 * us, 27 * us, 37 * us}; !slices.Equal(first, want) || !slices.Equal(second, want) {
		t.Errorf("sampled at %v and %v", first, second)
	}
	e = engine.New()
	if s, err = NewSampler(e, 0, 10*us, 30*us); err != nil {
		t.Fatal(err)
	}
	n := 0
	s.Register(probe(func(engine.Time) { n++ }))
	e.Run(engine.Never)
	if n != 4 || e.Pending() != 0 {
		t.Errorf("%d samples from 0 to 30 µs, both included, and %d events pending", n, e.Pending())
	}
	if _, err := NewSampler(e, 0, 0, us); err == nil || !strings.Contains(err.Error(), "interval above 0") {
		t.Errorf("no interval: %v", err)
	}
	if _, err := NewSampler(e, -us, us, us); err == nil || !strings.Contains(err.Error(), "cannot begin") {
		t.Errorf("in the past: %v", err)
	}
	if _, err := NewSampler(e, 39*us, us, 38*us); err != nil || e.Pending() != 0 {
		t.Errorf("an empty time: %v, %d events", err, e.Pending())
	}
}
