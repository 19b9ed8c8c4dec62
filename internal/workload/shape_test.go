package workload

import (
	"math"
	"testing"
)

func builtin(t *testing.T, name string) *CDF {
	t.Helper()
	c, err := Builtin(name)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestScale: quantiles and the mean grow alike, the shape stays.
func TestScale(t *testing.T) {
	for _, name := range Names() {
		c := builtin(t, name)
		s, err := c.Scale(0.1)
		if err != nil {
			t.Fatal(err)
		}
		for p := 0.0; p <= 1; p += 0.01 {
			if got, want := s.Quantile(p), c.Quantile(p)/10; math.Abs(got-want) > 1e-9*want+1e-9 {
				t.Errorf("%s: quantile(%g) = %g, want %g", name, p, got, want)
			}
		}
		if math.Abs(s.Mean()*10/c.Mean()-1) > 1e-9 || math.Abs(s.MeanSquare()*100/c.MeanSquare()-1) > 1e-9 {
			t.Errorf("%s: mean %g of %g, mean square %g of %g", name, s.Mean(), c.Mean(), s.MeanSquare(), c.MeanSquare())
		}
	}
	for _, f := range []float64{0, -1, math.NaN(), math.Inf(1)} {
		if _, err := builtin(t, "web-search").Scale(f); err == nil {
			t.Errorf("scaled by %g", f)
		}
	}
}

// TestMeanSquare holds it against samples.
func TestMeanSquare(t *testing.T) {
	const n = 200_000
	for _, name := range Names() {
		c := builtin(t, name)
		r := NewRand(5, 0)
		var sq, quad float64
		for range n {
			v := float64(c.Sample(r))
			sq += v * v
			quad += v * v * v * v
		}
		sq /= n
		if tol := 5*math.Sqrt((quad/n-sq*sq)/n) + 1e-3*sq; math.Abs(sq-c.MeanSquare()) > tol {
			t.Errorf("%s: mean square %g, of samples %g ± %g", name, c.MeanSquare(), sq, tol)
		}
	}
}
