package workload

import (
	"math"
	"math/rand/v2"
	"sort"
	"strings"
	"testing"
	"time"
)

// TestWebSearchMean holds the mean against the sum done by hand from the file.
func TestWebSearchMean(t *testing.T) {
	const want = 0.15*5e3 + 0.05*15e3 + 0.1*25e3 + 0.1*40e3 + 0.13*65e3 + 0.07*140e3 +
		0.1*600e3 + 0.1*1.5e6 + 0.1*3.5e6 + 0.07*7.5e6 + 0.03*20e6
	c, err := Builtin("web-search")
	if err != nil {
		t.Fatal(err)
	}
	if got := c.Mean(); math.Abs(got-want) > 1 {
		t.Errorf("mean of web-search %g, want %g", got, want)
	}
	if len(Names()) != 7 {
		t.Errorf("shipped distributions %v, want seven", Names())
	}
}

func TestUnknownNameListsWhatThereIs(t *testing.T) {
	_, err := Builtin("nope")
	if err == nil || !strings.Contains(err.Error(), "web-search") {
		t.Errorf("error %v does not list the names", err)
	}
}

// TestInverse: P undoes Quantile, both rise, and neither leaves its range.
func TestInverse(t *testing.T) {
	for _, name := range Names() {
		c, err := Builtin(name)
		if err != nil {
			t.Fatal(err)
		}
		last := -1.0
		for i := 0; i <= 1000; i++ {
			p := float64(i) / 1000
			q := c.Quantile(p)
			if q < last || q < 0 || q > c.Max() {
				t.Fatalf("%s: quantile(%g) = %g after %g", name, p, q, last)
			}
			last = q
			if got := c.share(q); math.Abs(got-p) > 1e-9 {
				t.Fatalf("%s: P(quantile(%g)) = %g", name, p, got)
			}
		}
		if c.share(c.Max()) != 1 || c.share(-1) != 0 || c.Quantile(2) != c.Max() {
			t.Errorf("%s: ends are wrong", name)
		}
	}
}

// TestMeanIsIntegral: the mean equals the integral of 1-P, an independent
// formula.
func TestMeanIsIntegral(t *testing.T) {
	for _, name := range Names() {
		c, _ := Builtin(name)
		var sum float64
		for i := 1; i < len(c.points); i++ { // 1-P is linear here: exact by the midpoint
			a, b := c.points[i-1].Bytes, c.points[i].Bytes
			sum += (b - a) * (1 - c.share((a+b)/2))
		}
		sum += c.points[0].Bytes
		if math.Abs(sum-c.Mean()) > 1e-6*c.Mean() {
			t.Errorf("%s: mean %g, integral %g", name, c.Mean(), sum)
		}
	}
}

// TestSampleConverges: many samples have the distribution's mean within five
// standard errors, and its median.
func TestSampleConverges(t *testing.T) {
	const n = 200_000
	for _, name := range Names() {
		c, _ := Builtin(name)
		r := NewRand(7, 0)
		var sum, sq float64
		below := 0
		median := c.Quantile(0.5)
		for range n {
			v := float64(c.Sample(r))
			sum, sq = sum+v, sq+v*v
			if v <= median+0.5 {
				below++
			}
		}
		mean := sum / n
		stderr := math.Sqrt((sq/n-mean*mean)/n) + 1
		if math.Abs(mean-c.Mean()) > 5*stderr {
			t.Errorf("%s: sample mean %g, mean %g ± %g", name, mean, c.Mean(), stderr)
		}
		if share := float64(below) / n; share < 0.49 || share > 0.51 {
			t.Errorf("%s: share of samples below the median %g", name, share)
		}
	}
}

func TestSameSeedSameFlows(t *testing.T) {
	c, _ := Builtin("data-mining")
	draw := func(seed, stream uint64) (out [64]uint64) {
		r := NewRand(seed, stream)
		for i := range out {
			out[i] = c.Sample(r)
		}
		return out
	}
	if first, again := draw(1, 2), draw(1, 2); first != again {
		t.Error("same seed and stream gave different flows")
	}
	if draw(1, 2) == draw(1, 3) || draw(1, 2) == draw(2, 2) {
		t.Error("different seeds or streams gave the same flows")
	}
}

// TestEnterpriseFit: CONGA §5.2: "about half of all bytes are in flows smaller
// than 35 MB", and the tail is lighter than data-mining's, where 95% of bytes
// belong to about 3.6% of flows above 35 MB.
func TestEnterpriseFit(t *testing.T) {
	e, err := Builtin("enterprise")
	if err != nil {
		t.Fatal(err)
	}
	d, _ := Builtin("data-mining")
	const limit = 35e6
	if s := e.byteShare(limit); s < 0.45 || s > 0.55 {
		t.Errorf("enterprise: %.3f of bytes below 35 MB, want about half", s)
	}
	if s := 1 - d.byteShare(limit); s < 0.93 || s > 0.99 {
		t.Errorf("data-mining: %.3f of bytes above 35 MB, the paper has 0.95", s)
	}
	if s := 1 - d.share(limit); s < 0.03 || s > 0.05 {
		t.Errorf("data-mining: %.4f of flows above 35 MB, the paper has 0.036", s)
	}
	for x := 1e5; x < 1e9; x *= 2 {
		if e.byteShare(x) < d.byteShare(x) {
			t.Errorf("below %g: enterprise has a smaller share of bytes than data-mining", x)
		}
	}
}

// TestPoissonLoad: arrivals and sizes together offer the load asked for, and
// gaps have the variance of an exponential distribution.
func TestPoissonLoad(t *testing.T) {
	c, _ := Builtin("alistorage")
	const capacity, load = 1e9, 60.0
	r := NewRand(3, 1)
	p := NewPoisson(FlowRate(load, capacity, c.Mean()), r)
	var now time.Duration
	var bytes, gaps, gapsSq float64
	const n = 300_000
	for range n {
		g := p.Next()
		now += g
		gaps += g.Seconds()
		gapsSq += g.Seconds() * g.Seconds()
		bytes += float64(c.Sample(r))
	}
	if got := bytes * 8 / now.Seconds() / capacity * 100; math.Abs(got-load) > 2 {
		t.Errorf("offered %.2f%%, want %.0f%%", got, load)
	}
	mean := gaps / n
	if cv := math.Sqrt(gapsSq/n-mean*mean) / mean; math.Abs(cv-1) > 0.02 {
		t.Errorf("coefficient of variation of gaps %.3f, want 1", cv)
	}
}

func TestReadCDFRefuses(t *testing.T) {
	for _, tc := range []struct{ name, in, want string }{
		{"no header", "0,0\n1,1\n", `header must be "bytes,cdf"`},
		{"one point", "bytes,cdf\n1,1\n", "at least two points"},
		{"not ascending", "bytes,cdf\n0,0\n0,1\n", "does not lie above"},
		{"falling", "bytes,cdf\n0,0\n5,0.5\n6,0.4\n7,1\n", "falls below"},
		{"no end", "bytes,cdf\n0,0\n5,0.5\n", "must be 1"},
		{"probability", "bytes,cdf\n0,0\n5,1.5\n", "not a probability"},
		{"text", "bytes,cdf\n0,0\nx,1\n", "line 3"},
		{"negative", "bytes,cdf\n-1,0\n5,1\n", "not a size"},
		{"NaN", "bytes,cdf\n0,NaN\n5,1\n", "not a probability"},
	} {
		if _, err := ReadCDF(strings.NewReader(tc.in)); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: error %v, want %q", tc.name, err, tc.want)
		}
	}
}

// TestRandomCDFs: on random distributions byteShare rises from 0 to 1 and
// samples stay in range.
func TestRandomCDFs(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for range 200 {
		n := 2 + r.IntN(20)
		points := make([]Point, n)
		b, p := 0.0, 0.0
		for i := range points {
			b += 1 + r.Float64()*1e5
			p += r.Float64()
			points[i] = Point{b, p}
		}
		for i := range points {
			points[i].P /= p
		}
		points[n-1].P = 1
		c, err := NewCDF(points)
		if err != nil {
			t.Fatal(err)
		}
		last := 0.0
		for x := 0.0; x <= b*1.1; x += b / 50 {
			s := c.byteShare(x)
			if s < last-1e-12 || s > 1+1e-9 {
				t.Fatalf("byte share of %g is %g after %g", x, s, last)
			}
			last = s
		}
		if math.Abs(last-1) > 1e-9 {
			t.Fatalf("all bytes are a share of %g", last)
		}
		for range 50 {
			if v := float64(c.Sample(r)); v < points[0].Bytes-1 || v > c.Max()+1 {
				t.Fatalf("sample %g outside %g..%g", v, points[0].Bytes, c.Max())
			}
		}
	}
}

// byteShare returns the share of all bytes that belongs to flows of at most the
// given size.
func (c *CDF) byteShare(bytes float64) float64 {
	i := sort.Search(len(c.points), func(i int) bool { return c.points[i].Bytes > bytes })
	if i == 0 {
		return 0
	}
	sum := meanOf(c.points[:i])
	if last := c.points[i-1]; i < len(c.points) {
		sum += (c.share(bytes) - last.P) * (last.Bytes + bytes) / 2
	}
	return sum / c.mean
}

// share returns the share of flows that have at most the given number of bytes.
func (c *CDF) share(bytes float64) float64 {
	i := sort.Search(len(c.points), func(i int) bool { return c.points[i].Bytes > bytes })
	if i == 0 {
		return 0
	}
	if i == len(c.points) {
		return 1
	}
	a, b := c.points[i-1], c.points[i]
	return a.P + (b.P-a.P)*(bytes-a.Bytes)/(b.Bytes-a.Bytes)
}
