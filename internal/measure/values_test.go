package measure

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// seeded returns a generator whose seed is logged.
func seeded(t *testing.T) *rand.Rand {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// naive are the definitions, over all numbers.
type naive []float64

func (n naive) quantile(p float64) float64 {
	s := slices.Sorted(slices.Values(n))
	for i, v := range s {
		if float64(i+1)/float64(len(s)) >= p-1e-12 {
			return v
		}
	}
	return s[len(s)-1]
}

func (n naive) mean() float64 {
	sum := 0.0
	for _, v := range n {
		sum += v
	}
	return sum / float64(len(n))
}

func near(a, b, rel float64) bool { return math.Abs(a-b) <= rel*math.Max(math.Abs(a), math.Abs(b)) }

// draws are numbers of several kinds, all of them within the range of buckets.
func draws(r *rand.Rand, n int) naive {
	kinds := []func() float64{
		func() float64 { return math.Exp(r.NormFloat64() * 8) },
		func() float64 { return float64(r.IntN(5)) },
		func() float64 { return 1 + r.Float64() },
		func() float64 { return math.Ldexp(1, r.IntN(60)-29) },
	}
	kind := kinds[r.IntN(len(kinds))]
	x := make(naive, n)
	for i := range x {
		x[i] = min(max(kind(), 0), 1e18)
		if x[i] < 1e-8 {
			x[i] = 0
		}
	}
	return x
}

// checkValues holds a store against the definitions; rel bounds quantiles.
func checkValues(t *testing.T, s *Values, x naive, rel float64) {
	t.Helper()
	if s.Count() != uint64(len(x)) || s.min != slices.Min(x) || s.Max() != slices.Max(x) {
		t.Fatalf("count %d, extremes %g and %g; want %d, %g, %g", s.Count(), s.min, s.Max(), len(x), slices.Min(x), slices.Max(x))
	}
	if !near(s.Mean(), x.mean(), 1e-9) {
		t.Fatalf("mean %g, want %g", s.Mean(), x.mean())
	}
	for _, p := range []float64{-1, 0, 0.001, 0.25, 0.5, 0.9, 0.95, 0.99, 0.999, 1, 2} {
		if got, want := s.Quantile(p), x.quantile(min(max(p, 0), 1)); !near(got, want, rel) {
			t.Fatalf("quantile %g of %d numbers is %g, want %g", p, len(x), got, want)
		}
	}
}

// TestValues: exact below the limit, within 1 % above, on random input.
func TestValues(t *testing.T) {
	r := seeded(t)
	for range 300 {
		n := 1 + r.IntN(400)
		x := draws(r, n)
		limit := r.IntN(2 * n)
		s := NewValues(limit)
		for _, v := range x {
			s.Add(v)
		}
		if s.Exact() != (n <= limit) {
			t.Fatalf("%d numbers with a limit of %d: exact %v", n, limit, s.Exact())
		}
		rel := 0.0
		if !s.Exact() {
			rel = RelativeError
		}
		checkValues(t, s, x, rel)
	}
}

// TestMergeValues: a union has the numbers of both, whichever of them is exact.
func TestMergeValues(t *testing.T) {
	r := seeded(t)
	for range 300 {
		a, b := draws(r, r.IntN(200)), draws(r, r.IntN(200))
		s, o := NewValues(r.IntN(300)), NewValues(r.IntN(300))
		for _, v := range a {
			s.Add(v)
		}
		for _, v := range b {
			o.Add(v)
		}
		s.Merge(o)
		x := append(a, b...)
		if len(x) == 0 {
			continue
		}
		rel := 0.0
		if !s.Exact() {
			rel = RelativeError
		}
		checkValues(t, s, x, rel)
		s.Add(3)
		checkValues(t, s, append(x, 3), RelativeError)
	}
}

// TestBuckets: middles are within the promised error of all that falls into
// their bucket, over the whole promised range.
func TestBuckets(t *testing.T) {
	r := seeded(t)
	for range 200_000 {
		v := math.Exp(math.Log(1e-9) + r.Float64()*math.Log(1e28))
		if m := middle(bucketOf(v)); math.Abs(m-v) > RelativeError*v {
			t.Fatalf("%g falls into the bucket of %g", v, m)
		}
	}
	for i := range buckets {
		if got := bucketOf(middle(i)); got != i {
			t.Fatalf("the middle of bucket %d falls into %d", i, got)
		}
	}
	if bucketOf(1e-300) != 0 || bucketOf(1e300) != buckets-1 {
		t.Error("numbers out of range do not count at the ends")
	}
}

func TestValuesOfNothing(t *testing.T) {
	s := NewValues(4)
	for name, v := range map[string]float64{"mean": s.Mean(), "max": s.Max(), "median": s.Quantile(0.5)} {
		if !math.IsNaN(v) {
			t.Errorf("%s of nothing is %g", name, v)
		}
	}
	if s.CDF(10) != nil {
		t.Error("nothing has a distribution")
	}
	for _, v := range []float64{-1, math.NaN(), math.Inf(1)} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%g was counted", v)
				}
			}()
			s.Add(v)
		}()
	}
}

// TestCDF: points rise in both directions, end at 1, and are quantiles.
func TestCDF(t *testing.T) {
	r := seeded(t)
	for _, limit := range []int{0, 1000} {
		x := draws(r, 500)
		s := NewValues(limit)
		for _, v := range x {
			s.Add(v)
		}
		points := s.CDF(50)
		if len(points) == 0 || len(points) > 50 || points[len(points)-1] != (Point{slices.Max(x), 1}) {
			t.Fatalf("points %v", points)
		}
		for i, p := range points {
			if i > 0 && (p.X <= points[i-1].X || p.Y <= points[i-1].Y) {
				t.Fatalf("point %d: %v after %v", i, p, points[i-1])
			}
			if !near(p.X, x.quantile(p.Y), RelativeError) {
				t.Fatalf("quantile %g is %g, want %g", p.Y, p.X, x.quantile(p.Y))
			}
		}
	}
	hundred := NewValues(100)
	for i := range 100 {
		hundred.Add(float64(i + 1))
	}
	for i := 1; i <= 100; i++ { // 0.07 × 100 is above 7 in floating point
		if got := hundred.Quantile(float64(i) / 100); got != float64(i) {
			t.Errorf("quantile %d %% of 1 to 100 is %g", i, got)
		}
	}
	few := NewValues(9)
	few.Add(2)
	few.Add(1)
	few.Add(2)
	if got := few.CDF(100); !slices.Equal(got, []Point{{1, 1.0 / 3}, {2, 1}}) {
		t.Errorf("three numbers have the distribution %v", got)
	}
}
