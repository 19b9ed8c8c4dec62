package measure

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/loomfabric/loom/sim/engine"
)

// walkOf returns changes of a value over time, and the value at each picosecond.
func walkOf(r *rand.Rand) (changes []Sample, each naive) {
	var now engine.Time
	for range 1 + r.IntN(40) {
		v := float64(r.IntN(3)) * float64(r.IntN(1_000_000))
		changes = append(changes, Sample{now, v})
		d := r.IntN(30)
		for range d {
			each = append(each, v)
		}
		now += engine.Time(d)
	}
	return append(changes, Sample{now, 0}), each
}

func played(w *TimeWeighted, changes []Sample) {
	for _, c := range changes[:len(changes)-1] {
		w.Add(c.Time, uint64(c.Value))
	}
	w.Finish(changes[len(changes)-1].Time)
}

func checkWeighted(t *testing.T, w *TimeWeighted, each naive) {
	t.Helper()
	if len(each) == 0 {
		if !math.IsNaN(w.Mean()) || !math.IsNaN(w.Quantile(0.5)) || !math.IsNaN(w.Zero()) {
			t.Fatal("no time has a mean")
		}
		return
	}
	zero := 0
	for _, v := range each {
		if v == 0 {
			zero++
		}
	}
	if w.Time() != engine.Time(len(each)) || !near(w.Mean(), each.mean(), 1e-12) || !near(w.Zero(), float64(zero)/float64(len(each)), 1e-12) {
		t.Fatalf("time %d, mean %g, zero %g; want %d, %g, %d of them", w.Time(), w.Mean(), w.Zero(), len(each), each.mean(), zero)
	}
	for _, p := range []float64{0, 0.01, 0.3, 0.5, 0.9, 0.99, 1} {
		if got, want := w.Quantile(p), each.quantile(p); !near(got, want, RelativeError) {
			t.Fatalf("quantile %g over %d ps is %g, want %g", p, len(each), got, want)
		}
	}
}

// TestTimeWeighted holds the distribution against the values at each picosecond,
// of one walk and of two together.
func TestTimeWeighted(t *testing.T) {
	r := seeded(t)
	for range 300 {
		var a, b, both TimeWeighted
		ca, ea := walkOf(r)
		cb, eb := walkOf(r)
		played(&a, ca)
		played(&b, cb)
		checkWeighted(t, &a, ea)
		both.Merge(&a)
		both.Merge(&b)
		checkWeighted(t, &both, append(slices.Clone(ea), eb...))
		if both.Max() != max(a.Max(), b.Max()) || both.Min() != min(a.Min(), b.Min()) {
			t.Fatalf("extremes %d, %d", both.Min(), both.Max())
		}
		points := both.CDF(20)
		if both.Zero() > 0 && points[0] != (Point{0, both.Zero()}) {
			t.Fatalf("a share of %g is at 0, but points are %v", both.Zero(), points)
		}
		for i, p := range points {
			if i > 0 && (p.Value <= points[i-1].Value || p.P < points[i-1].P) || i == len(points)-1 && p.P != 1 {
				t.Fatalf("points %v", points)
			}
		}
	}
}

// TestTimeWeightedMoments: a value that lasts no time counts for the maximum
// only; a restart forgets, but knows the present value.
func TestTimeWeightedMoments(t *testing.T) {
	var w TimeWeighted
	w.Finish(5) // nothing was added
	w.Restart(5)
	if w.Time() != 0 {
		t.Error("time without a value")
	}
	w.Add(100, 0)
	w.Add(110, 900)
	w.Add(110, 50)
	w.Finish(140)
	if w.Max() != 900 || w.Time() != 40 || w.Mean() != 50.0*30/40 || w.Zero() != 0.25 {
		t.Errorf("max %d, time %d, mean %g, zero %g", w.Max(), w.Time(), w.Mean(), w.Zero())
	}
	if q := w.Quantile(1); !near(q, 50, RelativeError) {
		t.Errorf("quantile 1 is %g", q)
	}
	w.Restart(150)
	if !math.IsNaN(w.Mean()) || w.Max() != 50 {
		t.Errorf("after a restart: mean %g, max %d", w.Mean(), w.Max())
	}
	w.Finish(160)
	if w.Mean() != 50 || w.Time() != 10 || w.Min() != 50 {
		t.Errorf("after a restart: mean %g over %d", w.Mean(), w.Time())
	}
}

// TestAddsDoNotAllocate covers whatever is called for packets, flows and
// samples.
func TestAddsDoNotAllocate(t *testing.T) {
	e := engine.New()
	s, err := NewSampler(e, 0, 10, engine.Never)
	if err != nil {
		t.Fatal(err)
	}
	series := NewSeries(16)
	im := NewImbalance(3, 8)
	sent := make([]uint64, 3)
	s.Register(probe(func(now engine.Time) {
		series.Add(now, 1)
		sent[now%3] += 7
		im.Sample(sent)
	}))
	values, fct := NewValues(100), NewFCT(FCTConfig{Classes: CONGAClasses(), Exact: 100})
	var w TimeWeighted
	w.Add(0, 1)
	var o Order
	var re Reordering
	g := Goodput{}
	now := engine.Time(0)
	for name, f := range map[string]func(){
		"values":   func() { values.Add(float64(now)) },
		"fct":      func() { fct.Add(5000, 0, 10*engine.Microsecond+now, engine.Microsecond) },
		"weighted": func() { w.Add(now, uint64(now)%5) },
		"reorder":  func() { re.Arrive(&o, uint64(now)^1, false) },
		"goodput":  func() { g.Add(now, 1) },
		"sampler":  func() { e.Run(now * 5) },
	} {
		f()
		if n := testing.AllocsPerRun(500, func() { now++; f() }); n != 0 {
			t.Errorf("%s: %g allocations", name, n)
		}
	}
	if values.Exact() || s.Samples() < 100 {
		t.Errorf("the run was too short: %d values, %d samples", values.Count(), s.Samples())
	}
}

type probe func(now engine.Time)

func (p probe) Sample(now engine.Time) { p(now) }
