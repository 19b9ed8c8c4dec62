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
	if b.Idle() != 1 || b.Values().Count() != 3 {
		t.Fatalf("%d intervals, %d idle", b.Values().Count(), b.Idle())
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
	if s := b.Summary(); s.Intervals != 4 || s.Idle != 2 || !near(float64(s.Mean), (0+2.4+4+4.0/3)/4, 1e-9) || s.Max != 4 {
		t.Errorf("%+v", s)
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
	if want := []engine.Time{7 * us, 17 * us, 27 * us, 37 * us}; !slices.Equal(first, want) || !slices.Equal(second, want) || s.Samples() != 4 {
		t.Errorf("sampled at %v and %v", first, second)
	}
	e = engine.New()
	if s, err = NewSampler(e, 0, 10*us, 30*us); err != nil {
		t.Fatal(err)
	}
	e.Run(engine.Never)
	if s.Samples() != 4 {
		t.Errorf("%d samples from 0 to 30 µs, both included", s.Samples())
	}
	e = engine.New()
	if s, err = NewSampler(e, 0, us, engine.Never); err != nil {
		t.Fatal(err)
	}
	s.Register(probe(func(now engine.Time) {
		if now == 5*us {
			s.Stop()
		}
	}))
	e.Run(engine.Never)
	if s.Samples() != 6 || e.Pending() != 0 {
		t.Errorf("%d samples, %d events pending", s.Samples(), e.Pending())
	}
	if _, err := NewSampler(e, 0, 0, us); err == nil || !strings.Contains(err.Error(), "interval above 0") {
		t.Errorf("no interval: %v", err)
	}
	if _, err := NewSampler(e, 0, us, us); err == nil || !strings.Contains(err.Error(), "cannot begin") {
		t.Errorf("in the past: %v", err)
	}
	if _, err := NewSampler(e, 9*us, us, 8*us); err != nil || e.Pending() != 0 {
		t.Errorf("an empty time: %v, %d events", err, e.Pending())
	}
}

// TestSummaries: the short forms have what the stores have.
func TestSummaries(t *testing.T) {
	v := NewValues(100)
	for i := range 100 {
		v.Add(float64(i + 1))
	}
	if s := v.Summary(); s.Count != 100 || s.Mean != 50.5 || s.P50 != 50 || s.P90 != 90 || s.P99 != 99 || s.P999 != 100 || s.Max != 100 || s.Min != 1 {
		t.Errorf("%+v", s)
	}
}
