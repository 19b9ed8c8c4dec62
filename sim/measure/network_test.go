package measure

import (
	"math"
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

// TestReordering follows RFC 4737 §3.3 and §4.2.2: a packet is reordered if its
// number is smaller than the next expected.
func TestReordering(t *testing.T) {
	for _, c := range []struct {
		name     string
		arrivals []uint64
		late     uint64
		distance uint64 // sum
		max      uint64
	}{
		{"in order", []uint64{0, 1, 2, 3}, 0, 0, 0},
		{"a gap is no reordering", []uint64{0, 3, 4, 9}, 0, 0, 0},
		{"one late", []uint64{0, 2, 3, 1, 4}, 1, 3, 3},
		{"reversed", []uint64{3, 2, 1, 0}, 3, 2 + 3 + 4, 4},
		{"a burst late", []uint64{4, 5, 6, 0, 1, 2, 3, 7}, 4, 7 + 6 + 5 + 4, 7},
	} {
		var r Reordering
		var o Order
		for _, n := range c.arrivals {
			r.Arrive(&o, n, false)
		}
		s := r.Summary()
		if s.Packets != uint64(len(c.arrivals)) || s.Late != c.late || r.distance != c.distance || s.Max != c.max {
			t.Errorf("%s: %+v", c.name, s)
		}
	}
	// A lost packet that is sent again is not reordered, and those behind it are
	// not either.
	var r, all Reordering
	var o Order
	for _, n := range []uint64{0, 1, 3, 4} {
		r.Arrive(&o, n, false)
	}
	r.Arrive(&o, 2, true)
	r.Arrive(&o, 5, false)
	all.Merge(&r)
	all.Arrive(&o, 1, false)
	if s := all.Summary(); s.Packets != 6 || s.Late != 1 || s.Retrans != 1 || s.Max != 5 || !near(float64(s.Share), 1.0/6, 1e-12) || !near(float64(s.RetShare), 1.0/7, 1e-12) || s.Mean != 5 {
		t.Errorf("%+v", s)
	}
	if s := (&Reordering{}).Summary(); s.Share.Known() || s.Mean.Known() {
		t.Errorf("of nothing: %+v", s)
	}
}

func TestGoodput(t *testing.T) {
	g := Goodput{From: engine.Millisecond, To: 3 * engine.Millisecond}
	if !math.IsNaN(g.Rate(engine.Millisecond)) {
		t.Error("no time has a rate")
	}
	g.Add(engine.Millisecond-1, 1000)
	g.Add(engine.Millisecond, 2000)
	g.Add(2*engine.Millisecond, 3000)
	g.Add(3*engine.Millisecond, 4000)
	if g.Bytes() != 5000 || g.Rate(2*engine.Millisecond) != 40e6 || g.Rate(9*engine.Millisecond) != 20e6 {
		t.Errorf("%d bytes, %g and %g bit/s", g.Bytes(), g.Rate(2*engine.Millisecond), g.Rate(9*engine.Millisecond))
	}
	open := Goodput{}
	open.Add(engine.Second, 125)
	if open.Rate(2*engine.Second) != 500 {
		t.Errorf("%g bit/s", open.Rate(2*engine.Second))
	}
	for _, c := range []struct {
		x    []float64
		want float64
	}{{[]float64{3, 3, 3}, 1}, {[]float64{0, 0, 5, 0}, 0.25}, {[]float64{1, 2, 3}, 36.0 / 42}} {
		if got := Fairness(c.x); !near(got, c.want, 1e-12) {
			t.Errorf("fairness of %v is %g, want %g", c.x, got, c.want)
		}
	}
	if !math.IsNaN(Fairness([]float64{0, 0})) {
		t.Error("nothing is shared fairly")
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

// TestSeries: whatever was added, a series keeps the limit, the first sample,
// and one of every so many.
func TestSeries(t *testing.T) {
	for _, limit := range []int{0, 2, 3, 8, 15} {
		s := NewSeries(limit)
		for i := range 1000 {
			s.Add(engine.Time(i), float64(i))
			kept := s.Samples()
			if len(kept) > max(limit, 2) || len(kept) != i/int(s.Every())+1 {
				t.Fatalf("limit %d: %d samples of %d, one of %d", limit, len(kept), i+1, s.Every())
			}
			for k, v := range kept {
				if v != (Sample{engine.Time(k * int(s.Every())), float64(k * int(s.Every()))}) {
					t.Fatalf("limit %d: sample %d is %v, one of %d is kept", limit, k, v, s.Every())
				}
			}
		}
	}
}

// TestSpread holds the figures against values done by hand and against Student's
// original use of t: with 95 % confidence means the interval covers the truth 95
// times of 100.
func TestSpread(t *testing.T) {
	s := SpreadOf([]float64{2, 4, math.NaN(), 9})
	if s.Runs != 3 || s.Mean != 5 || s.Min != 2 || s.Max != 9 || !near(float64(s.Stdev), math.Sqrt(13), 1e-12) || !near(float64(s.CI95), 4.303*math.Sqrt(13.0/3), 1e-12) {
		t.Errorf("%+v", s)
	}
	if s = SpreadOf([]float64{7}); s.Runs != 1 || s.Mean != 7 || s.CI95.Known() || s.Stdev.Known() {
		t.Errorf("one run: %+v", s)
	}
	if s = SpreadOf(nil); s.Runs != 0 || s.Mean.Known() || s.Max.Known() {
		t.Errorf("no run: %+v", s)
	}
	r := seeded(t)
	const trials = 20_000
	for _, n := range []int{2, 5, 40} {
		covered := 0
		x := make([]float64, n)
		for range trials {
			for i := range x {
				x[i] = 3 + 2*r.NormFloat64()
			}
			if s := SpreadOf(x); math.Abs(float64(s.Mean)-3) <= float64(s.CI95) {
				covered++
			}
		}
		if share := float64(covered) / trials; math.Abs(share-0.95) > 5*math.Sqrt(0.95*0.05/trials) {
			t.Errorf("%d runs: intervals cover the mean in %.4f of all cases", n, share)
		}
	}
	for df, want := range map[int]float64{1: 12.706, 30: 2.042, 31: 2.0395, 60: 2.0003, 120: 1.9799, 100_000: 1.95999} {
		if got := student975(df); math.Abs(got-want) > 1e-4 {
			t.Errorf("t of %d degrees of freedom is %.5f, want %.5f", df, got, want)
		}
	}
}

// TestSummaries: the short forms have what the stores have.
func TestSummaries(t *testing.T) {
	v := NewValues(100)
	var w TimeWeighted
	for i := range 100 {
		v.Add(float64(i + 1))
		w.Add(engine.Time(i)*engine.Second, uint64(i/50)*4096)
	}
	w.Finish(100 * engine.Second)
	if s := v.Summary(); s.Count != 100 || s.Mean != 50.5 || s.P50 != 50 || s.P90 != 90 || s.P99 != 99 || s.P999 != 100 || s.Max != 100 || s.Min != 1 {
		t.Errorf("%+v", s)
	}
	if s := w.Summary(); s.Seconds != 100 || s.Zero != 0.5 || s.Mean != 2048 || s.P50 != 0 || s.Max != 4096 || !near(float64(s.P99), 4096, RelativeError) {
		t.Errorf("%+v", s)
	}
}
