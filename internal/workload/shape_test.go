package workload

import (
	"math"
	"strings"
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
		if math.Abs(s.Mean()*10/c.Mean()-1) > 1e-9 || math.Abs(s.Variation()/c.Variation()-1) > 1e-9 {
			t.Errorf("%s: mean %g of %g, variation %g of %g", name, s.Mean(), c.Mean(), s.Variation(), c.Variation())
		}
	}
	for _, f := range []float64{0, -1, math.NaN(), math.Inf(1)} {
		if _, err := builtin(t, "web-search").Scale(f); err == nil {
			t.Errorf("scaled by %g", f)
		}
	}
}

// TestTruncate: what is left is the distribution of samples that pass, which is
// drawn here.
func TestTruncate(t *testing.T) {
	for _, name := range Names() {
		c := builtin(t, name)
		limit := c.Quantile(0.8)
		s, err := c.Truncate(limit)
		if err != nil {
			t.Fatal(err)
		}
		if s.Max() != limit {
			t.Errorf("%s: the largest size is %g, want %g", name, s.Max(), limit)
		}
		var sum, sq float64
		n := 0.0
		r := NewRand(11, 0)
		for range 100_000 {
			if v := c.Quantile(r.Float64()); v <= limit {
				sum, sq, n = sum+v, sq+v*v, n+1
			}
		}
		mean := sum / n
		if tol := 5*math.Sqrt((sq/n-mean*mean)/n) + 1; math.Abs(mean-s.Mean()) > tol {
			t.Errorf("%s: mean %g, that of samples below the limit %g ± %g", name, s.Mean(), mean, tol)
		}
		if same, err := c.Truncate(c.Max()); err != nil || same != c {
			t.Errorf("%s: truncating at the largest size gave %v, %v", name, same, err)
		}
	}
	for _, limit := range []float64{0, -5, math.NaN()} {
		if _, err := builtin(t, "enterprise").Truncate(limit); err == nil || !strings.Contains(err.Error(), "sizes go from") {
			t.Errorf("truncating at %g: error %v", limit, err)
		}
	}
}

// TestMoments: mean square and packets a flow agree with samples.
func TestMoments(t *testing.T) {
	const n, payload = 200_000, 1460
	for _, name := range Names() {
		c := builtin(t, name)
		r := NewRand(5, 0)
		var sq, quad, packets, packetsSq float64
		for range n {
			v := float64(c.Sample(r))
			sq += v * v
			quad += v * v * v * v
			k := math.Ceil(v / payload)
			packets, packetsSq = packets+k, packetsSq+k*k
		}
		sq /= n
		if tol := 5*math.Sqrt((quad/n-sq*sq)/n) + 1e-3*sq; math.Abs(sq-c.MeanSquare()) > tol {
			t.Errorf("%s: mean square %g, of samples %g ± %g", name, c.MeanSquare(), sq, tol)
		}
		packets /= n
		if tol := 5*math.Sqrt((packetsSq/n-packets*packets)/n) + 1e-3; math.Abs(packets-c.MeanPackets(payload)) > tol {
			t.Errorf("%s: %g packets a flow, of samples %g ± %g", name, c.MeanPackets(payload), packets, tol)
		}
	}
}

// TestVariationOfUniform: a uniform distribution from 0 has variation 1/sqrt 3,
// and a flow of at most one packet has one.
func TestVariationOfUniform(t *testing.T) {
	c, err := NewCDF([]Point{{0, 0}, {1000, 1}})
	if err != nil {
		t.Fatal(err)
	}
	if got := c.Variation(); math.Abs(got-1/math.Sqrt(3)) > 1e-12 {
		t.Errorf("variation %g", got)
	}
	if got := c.MeanPackets(1000); math.Abs(got-1) > 1e-12 {
		t.Errorf("%g packets of at most 1000 bytes, want 1", got)
	}
	if got := c.MeanPackets(250); math.Abs(got-2.5) > 1e-12 {
		t.Errorf("%g packets of at most 250 bytes, want 2.5", got)
	}
}
