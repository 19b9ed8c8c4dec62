package theory

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/loomfabric/loom/internal/workload"
)

func builtin(t *testing.T, name string) *workload.CDF {
	t.Helper()
	c, err := workload.Builtin(name)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// sizes are the distributions that the tests below go through.
func sizes(t *testing.T) map[string]Sizes {
	return map[string]Sizes{
		"exponential": Exponential(1e5),
		"enterprise":  builtin(t, "enterprise"),
		"data-mining": builtin(t, "data-mining"),
	}
}

func run(t *testing.T, m Model, trials int, times ...float64) []Imbalance {
	t.Helper()
	r, err := m.Run(times, trials, 1)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestTheorem2: CONGA §6.2: "Assume E(e^θS) < ∞ in a neighborhood of zero:
// θ ∈ (−θ0, θ0). Then for t sufficiently large: E(χ(t)) ≤ 1/√(λe t) + O(1/t),
// where: λe = λ / (8 n log n (1 + (σS/E(S))²))."
//
// We look at the leading term alone, without O(1/t), and the logarithm is the
// natural one, as in the proof by moment generating functions. All three
// distributions fulfil the assumption: two of them end, at 500 MB and 1 GB.
func TestTheorem2(t *testing.T) {
	for name, s := range sizes(t) {
		for _, n := range []int{2, 4, 8, 12} {
			m := Model{Links: n, Rate: 1, Sizes: s}
			for _, r := range run(t, m, 60, 1000, 3000, 9000) {
				if r.Mean+4*r.Stderr > r.Bound {
					t.Errorf("%s, %d links, %g flows: E(χ) = %.4f ± %.4f, the bound is %.4f", name, n, r.Time, r.Mean, r.Stderr, r.Bound)
				}
				if math.Abs(r.Flows-r.Time) > 6*math.Sqrt(r.Time/60) {
					t.Errorf("%s, %d links: %.0f flows in %g s", name, n, r.Flows, r.Time)
				}
			}
		}
	}
}

// TestEffectiveRate does equation (2) by hand, with a coefficient of variation
// of 1, and for a data-mining workload with that of the file's points.
func TestEffectiveRate(t *testing.T) {
	m := Model{Links: 4, Rate: 1000, Sizes: Exponential(77)}
	if got, want := m.EffectiveRate(), 1000/(8*4*math.Log(4)*2); math.Abs(got/want-1) > 1e-12 {
		t.Errorf("λe is %g, want %g", got, want)
	}
	d := builtin(t, "data-mining")
	m.Sizes = d
	cv := variation(d)
	if got, want := m.EffectiveRate(), 1000/(8*4*math.Log(4)*(1+cv*cv)); math.Abs(got/want-1) > 1e-9 {
		t.Errorf("λe is %g, want %g", got, want)
	}
	if got, want := m.Bound(50), 1/math.Sqrt(m.EffectiveRate()*50); got != want {
		t.Errorf("the bound is %g, want %g", got, want)
	}
}

// TestScalingWithTime: "the traffic imbalance with randomized load balancing
// vanishes like 1/√t for large t" (§6.2).
func TestScalingWithTime(t *testing.T) {
	for name, s := range sizes(t) {
		m := Model{Links: 4, Rate: 1, Sizes: s}
		r := run(t, m, 200, 3000, 12000)
		ratio := r[0].Mean / r[1].Mean
		tol := 4 * ratio * math.Hypot(r[0].Stderr/r[0].Mean, r[1].Stderr/r[1].Mean)
		if math.Abs(ratio-2) > tol || tol > 0.5 {
			t.Errorf("%s: four times the time divides χ by %.3f ± %.3f, want 2", name, ratio, tol)
		}
	}
}

// TestHowTight: for large t, links' traffic is normally distributed, and χ is the
// range of n normal variables, whose mean is tabulated (Tippett 1925). The bound
// is above it by a known factor, which the paper does not give: from 2.09 for 2
// links down to 1.43 for 8, and on towards 1.
func TestHowTight(t *testing.T) {
	for n, tippett := range map[int]float64{2: 1.12838, 4: 2.05875, 8: 2.84720} {
		m := Model{Links: n, Rate: 1, Sizes: Exponential(1)}
		r := run(t, m, 1500, 2000)[0]
		want := tippett / math.Sqrt(8*math.Log(float64(n))) * r.Bound
		if math.Abs(r.Mean-want) > 4*r.Stderr+0.005*want {
			t.Errorf("%d links: E(χ) = %.5f ± %.5f, of a normal distribution %.5f", n, r.Mean, r.Stderr, want)
		}
	}
}

// TestSufficientlyLarge: the theorem needs its "for t sufficiently large". With
// many links and few large flows, one flow of a kind that comes once in a while
// is more than the leading term. With fewer than 10 links it never is: there
// [Model.universal] holds at all times, and lies below.
func TestSufficientlyLarge(t *testing.T) {
	elephants, err := workload.NewCDF([]workload.Point{{Bytes: 1, P: 0.99}, {Bytes: 1e6, P: 0.99}, {Bytes: 1e6 + 1, P: 1}})
	if err != nil {
		t.Fatal(err)
	}
	m := Model{Links: 512, Rate: 1, Sizes: elephants}
	r := run(t, m, 150, 100, 30_000)
	if r[0].Mean-4*r[0].Stderr < 1.5*r[0].Bound {
		t.Errorf("with one large flow: E(χ) = %.1f ± %.1f, the leading term is %.1f, and should not hold", r[0].Mean, r[0].Stderr, r[0].Bound)
	}
	if r[1].Mean+4*r[1].Stderr > r[1].Bound {
		t.Errorf("with three hundred large flows: E(χ) = %.3f ± %.3f, the bound is %.3f", r[1].Mean, r[1].Stderr, r[1].Bound)
	}
	for name, s := range map[string]Sizes{"elephants": elephants, "enterprise": builtin(t, "enterprise")} {
		for _, n := range []int{2, 4, 9, 512} {
			m := Model{Links: n, Rate: 1, Sizes: s}
			for _, r := range run(t, m, 400, 1, 30, 100, 1000) {
				if u := m.universal(r.Time); r.Mean > u+4*r.Stderr {
					t.Errorf("%s, %d links, %g s: E(χ) = %.3f ± %.3f, must be below %.3f", name, n, r.Time, r.Mean, r.Stderr, u)
				}
			}
			if below := m.universal(1) < m.Bound(1); below != (n < 10) {
				t.Errorf("%d links: universal bound %g, leading term %g", n, m.universal(1), m.Bound(1))
			}
		}
	}
}

// TestHeavyWorkloads: "Theorem 2 quantifies the intuition that workloads that
// consists mostly of small flows are easier to handle than workloads with a few
// large flows" (§6.2), by "(i) the per-link flow arrival rate, λ/n; and (ii) the
// coefficient of variation". At equal load the data-mining workload is the
// heavier one. That is (i): our fit of the enterprise workload, of which only a
// plot is published, even has the larger coefficient of variation, but 50 times
// as many flows.
func TestHeavyWorkloads(t *testing.T) {
	e, d := builtin(t, "enterprise"), builtin(t, "data-mining")
	if variation(e) < variation(d) {
		t.Errorf("coefficients of variation %.1f and %.1f: the comment above is out of date", variation(e), variation(d))
	}
	const flows = 1500 // of data-mining
	heavy := run(t, Model{Links: 4, Rate: 1, Sizes: d}, 80, flows)[0]
	light := run(t, Model{Links: 4, Rate: d.Mean() / e.Mean(), Sizes: e}, 80, flows)[0]
	ratio := heavy.Mean / light.Mean
	want := math.Sqrt(d.MeanSquare() / d.Mean() / (e.MeanSquare() / e.Mean())) // λe ∝ E(S)/E(S²) at equal load
	tol := 4 * ratio * math.Hypot(heavy.Stderr/heavy.Mean, light.Stderr/light.Mean)
	if math.Abs(ratio-want) > tol || ratio-tol < 1 {
		t.Errorf("data-mining is %.2f ± %.2f times as uneven as enterprise, want %.2f", ratio, tol, want)
	}
}

// TestFlowlets: "it is for the latter 'heavy' workloads that we can anticipate
// flowlets to make a difference" (§6.2). The paper gives no formula for
// flowlets; ours says that pieces of at most some size act like flows of about
// that size.
func TestFlowlets(t *testing.T) {
	d := builtin(t, "data-mining")
	const at = 2000
	whole := Model{Links: 4, Rate: 1, Sizes: d}
	base := run(t, whole, 300, at)[0]
	for _, c := range []struct {
		name string
		m    Model
	}{
		{"pieces of 50 MB", Model{Links: 4, Rate: 1, Sizes: d, Quantum: 50e6}},
		{"pieces of 500 KB", Model{Links: 4, Rate: 1, Sizes: d, Quantum: 500e3}},
	} {
		r := run(t, c.m, 100, at)[0]
		gain := base.Mean / r.Mean
		want := math.Sqrt(c.m.EffectiveRate() / whole.EffectiveRate())
		tol := 4 * gain * math.Hypot(base.Stderr/base.Mean, r.Stderr/r.Mean)
		if math.Abs(gain-want) > tol || r.Mean+4*r.Stderr > r.Bound {
			t.Errorf("%s: χ falls %.2f ± %.2f times to %.5f, want %.2f times; the bound is %.5f", c.name, gain, tol, r.Mean, want, r.Bound)
		}
		t.Logf("%s: χ falls %.1f times, by the formula %.1f", c.name, gain, want)
	}
}

// TestPieces: the expected sum of squares of a flow's pieces agrees with
// samples, and no piece exceeds the quantum.
func TestPieces(t *testing.T) {
	for name, s := range sizes(t) {
		for _, q := range []float64{1e4, 1e6} {
			m := Model{Links: 2, Rate: 1, Sizes: s, Quantum: q}
			r := workload.NewRand(5, 0)
			var sum, sq float64
			const n = 400_000
			for range n {
				v := s.Quantile(r.Float64())
				k := m.pieces(v)
				if v/float64(k) > q*(1+1e-12) {
					t.Fatalf("%s: %d pieces of %g bytes", name, k, v/float64(k))
				}
				x := v * v / float64(k)
				sum, sq = sum+x, sq+x*x
			}
			mean := sum / n
			if tol := 5*math.Sqrt((sq/n-mean*mean)/n) + 1e-3*mean; math.Abs(mean-m.pieceSquares()) > tol {
				t.Errorf("%s, pieces of %g: %g, of samples %g ± %g", name, q, m.pieceSquares(), mean, tol)
			}
		}
	}
}

func TestExponential(t *testing.T) {
	e := Exponential(10)
	if e.Quantile(0) != 0 || math.Abs(e.Quantile(1-1/math.E)-10) > 1e-9 || e.Mean() != 10 || e.MeanSquare() != 200 {
		t.Errorf("quantiles %g and %g, moments %g and %g", e.Quantile(0), e.Quantile(1-1/math.E), e.Mean(), e.MeanSquare())
	}
}

func TestRunIsDeterministic(t *testing.T) {
	m := Model{Links: 3, Rate: 10, Sizes: builtin(t, "web-search"), Quantum: 1e5}
	first, err := m.Run([]float64{1, 5}, 20, 9)
	if err != nil {
		t.Fatal(err)
	}
	again, _ := m.Run([]float64{1, 5}, 20, 9)
	other, _ := m.Run([]float64{1, 5}, 20, 10)
	if !slices.Equal(first, again) || slices.Equal(first, other) {
		t.Errorf("%v, again %v, another seed %v", first, again, other)
	}
}

func TestRefused(t *testing.T) {
	ok := Model{Links: 2, Rate: 1, Sizes: Exponential(1)}
	for _, c := range []struct {
		name   string
		change func(m *Model)
		times  []float64
		trials int
		want   string
	}{
		{"one link", func(m *Model) { m.Links = 1 }, []float64{1}, 2, "1 links"},
		{"rate", func(m *Model) { m.Rate = math.NaN() }, []float64{1}, 2, "rate of NaN"},
		{"no sizes", func(m *Model) { m.Sizes = nil }, []float64{1}, 2, "mean above 0"},
		{"no mean", func(m *Model) { m.Sizes = Exponential(0) }, []float64{1}, 2, "mean above 0"},
		{"negative pieces", func(m *Model) { m.Quantum = -1 }, []float64{1}, 2, "at most -1 bytes"},
		{"dust", func(m *Model) { m.Quantum = 1e-9 }, []float64{1}, 2, "too small"},
		{"order", func(*Model) {}, []float64{2, 2}, 2, "ascending"},
		{"time 0", func(*Model) {}, []float64{0}, 2, "ascending"},
		{"trials", func(*Model) {}, []float64{1}, 1, "at least 2"},
	} {
		m := ok
		c.change(&m)
		if _, err := m.Run(c.times, c.trials, 1); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", c.name, err, c.want)
		}
	}
}

// universal bounds E(χ(t)) at every time, with no condition on t or on sizes:
// the square of a range is at most twice the sum of squared deviations from the
// mean, and the square root of an expectation bounds the expectation of the
// root. It grows with √n rather than √ln n, so that it is above [Model.Bound]
// from 10 links on; for fewer links it shows that Theorem 2's leading term needs
// neither O(1/t) nor a large t.
func (m *Model) universal(t float64) float64 {
	n := float64(m.Links)
	return m.Bound(t) * math.Sqrt(2*(n-1)/(8*math.Log(n)))
}

// variation returns the coefficient of variation of sizes.
func variation(s Sizes) float64 { return math.Sqrt(s.MeanSquare()/(s.Mean()*s.Mean()) - 1) }
