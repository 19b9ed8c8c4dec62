package spread

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// TestQuantileIsTheDefinition holds the rank against the definition: the first
// value that so large a share does not exceed.
func TestQuantileIsTheDefinition(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for range 1000 {
		values := make([]float64, 1+r.IntN(50))
		for i := range values {
			values[i] = float64(r.IntN(20))
		}
		slices.Sort(values)
		p := r.Float64()
		want := values[len(values)-1]
		for i, v := range values {
			if float64(i+1)/float64(len(values)) >= p {
				want = v
				break
			}
		}
		if got := Quantile(values, p); got != want {
			t.Fatalf("quantile %g of %v is %g, want %g", p, values, got, want)
		}
	}
}

// TestQuantilesOfWholeShares: floating point must not push a share that is a
// whole number of values to the next one.
func TestQuantilesOfWholeShares(t *testing.T) {
	for _, n := range []int{10, 100, 1000} {
		values := make([]float64, n)
		for i := range values {
			values[i] = float64(i + 1)
		}
		for i := 1; i <= n; i++ {
			if got := Quantile(values, float64(i)/float64(n)); got != float64(i) {
				t.Errorf("quantile %d/%d of 1 to %d is %g", i, n, n, got)
			}
			if got := Quantile(values, float64(i)*100/float64(n)/100); got != float64(i) {
				t.Errorf("percentile %d·100/%d of 1 to %d is %g", i, n, n, got)
			}
		}
		if lo, hi := Quantile(values, -1), Quantile(values, 2); lo != 1 || hi != float64(n) {
			t.Errorf("quantiles beyond the ends are %g and %g", lo, hi)
		}
	}
	if !math.IsNaN(Quantile(nil, 0.5)) {
		t.Error("nothing has a median")
	}
}

// TestSpreadByHand: 2, 4, 4, 4, 5, 5, 7, 9 have a mean of 5 and a sum of squared
// deviations of 32; t with 7 degrees of freedom is 2.36462 at 0.975 (table).
func TestSpreadByHand(t *testing.T) {
	s := Of([]float64{9, 2, 4, 4, 4, 5, 5, 7})
	want := 2.36462 * math.Sqrt(32./7) / math.Sqrt(8)
	if s.N != 8 || s.Mean != 5 || s.Min != 2 || s.Max != 9 || math.Abs(s.CI95-want) > 1e-5 {
		t.Errorf("%+v, want a half width of %g", s, want)
	}
	if s := Of([]float64{3}); s != (Spread{N: 1, Mean: 3, Min: 3, Max: 3}) {
		t.Errorf("one value: %+v", s)
	}
	if s := Of(nil); s != (Spread{}) {
		t.Errorf("nothing: %+v", s)
	}
}

// TestCI95Covers draws from a known distribution: 95 of 100 intervals hold its
// mean. 4000 of them have a standard deviation of 0.34 %.
func TestCI95Covers(t *testing.T) {
	const trials = 4000
	r := rand.New(rand.NewPCG(7, 0))
	for _, n := range []int{2, 3, 5, 20} {
		held := 0
		for range trials {
			values := make([]float64, n)
			for i := range values {
				values[i] = 10 + 3*r.NormFloat64()
			}
			if s := Of(values); math.Abs(s.Mean-10) <= s.CI95 {
				held++
			}
		}
		if share := float64(held) / trials; math.Abs(share-0.95) > 0.015 {
			t.Errorf("%.1f %% of the intervals of %d values hold the mean", 100*share, n)
		}
	}
}

func TestImbalance(t *testing.T) {
	for _, c := range []struct {
		sent []uint64
		want float64
		ok   bool
	}{
		{nil, 0, false}, {[]uint64{0, 0}, 0, false},
		{[]uint64{5, 5}, 0, true}, {[]uint64{0, 10}, 2, true}, {[]uint64{1, 2, 3}, 1, true}, {[]uint64{0, 0, 0, 7}, 4, true},
	} {
		if got, ok := Imbalance(c.sent); got != c.want || ok != c.ok {
			t.Errorf("imbalance of %v: %g, %v; want %g, %v", c.sent, got, ok, c.want, c.ok)
		}
	}
}
