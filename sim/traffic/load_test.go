package traffic

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/loomfabric/loom/internal/workload"
	"github.com/loomfabric/loom/sim/engine"
)

// fixed is a size that all flows have, bytes.
type fixed uint64

func (s fixed) Sample(*rand.Rand) uint64 { return uint64(s) }
func (s fixed) Mean() float64            { return float64(s) }

func same(v uint64, n int) []uint64 {
	s := make([]uint64, n)
	for i := range s {
		s[i] = v
	}
	return s
}

// congaTestbed is CONGA Figure 7(a): two racks of 32 hosts at 10 Gbit/s, and
// 4 × 40 Gbit/s from each to the spines.
func congaTestbed() *Fabric {
	return &Fabric{Rack: racksOf(2, 32), HostRate: same(10e9, 64), Uplinks: same(160e9, 2), Nominal: same(160e9, 2)}
}

// TestCONGALoad does the arithmetic of §5.2 by hand: at 60 %, both directions
// together carry 192 Gbit/s.
func TestCONGALoad(t *testing.T) {
	pairs := crossing(racksOf(2, 32))
	rate, err := Load{Percent: 60}.FlowRate(congaTestbed(), pairs, fixed(1e6))
	if err != nil {
		t.Fatal(err)
	}
	if want := 0.6 * 2 * 160e9 / 8e6; math.Abs(rate/want-1) > 1e-9 {
		t.Errorf("%g flows per second, want %g", rate, want)
	}
	// 10 Gbit/s × 64 hosts = 640 Gbit/s; half of that is 100 % of the bisection.
	rate, err = Load{Percent: 50, OfHosts: true}.FlowRate(congaTestbed(), pairs, fixed(1e6))
	if err != nil {
		t.Fatal(err)
	}
	if want := 320e9 / 8e6; math.Abs(rate/want-1) > 1e-9 {
		t.Errorf("%g flows per second, want %g", rate, want)
	}
}

// TestLinkFailureLoad: CONGA §5.2.2: "the bisection bandwidth between Leaf 0
// and Leaf 1 is 75% of the original capacity (3 × 40Gbps links instead of 4),
// we only consider offered loads up to 70%". More than 75 % is refused with the
// numbers.
func TestLinkFailureLoad(t *testing.T) {
	f := congaTestbed()
	f.Uplinks = []uint64{160e9, 120e9}
	pairs := crossing(f.Rack)
	for _, percent := range []float64{10, 70, 75} {
		rate, err := Load{Percent: percent}.FlowRate(f, pairs, fixed(1e6))
		if err != nil {
			t.Errorf("%g %%: %v", percent, err)
		}
		if want := percent / 100 * 320e9 / 8e6; math.Abs(rate/want-1) > 1e-9 {
			t.Errorf("%g %%: %g flows per second, want %g", percent, rate, want)
		}
	}
	_, err := Load{Percent: 80}.FlowRate(f, pairs, fixed(1e6))
	if err == nil {
		t.Fatalf("80 %%: error %v", err)
	}
	for _, want := range []string{"80 %", "rack 1", "120 Gbit/s", "128 Gbit/s", "75 %"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error %q does not say %q", err, want)
		}
	}
}

// TestConWeaveLoad: with any pair at all, flows inside a rack take no uplink:
// 112 of the 127 other hosts are elsewhere.
func TestConWeaveLoad(t *testing.T) {
	f := &Fabric{Rack: racksOf(8, 16), HostRate: same(100e9, 128), Uplinks: same(800e9, 8), Nominal: same(800e9, 8)}
	up, err := Load{Percent: 50}.FlowRate(f, anyPair(128), fixed(1e5))
	if err != nil {
		t.Fatal(err)
	}
	if want := 0.5 * 8 * 800e9 / (112.0 / 127) / 8e5; math.Abs(up/want-1) > 1e-9 {
		t.Errorf("of the bisection: %g flows per second, want %g", up, want)
	}
	hosts, err := Load{Percent: 25, OfHosts: true}.FlowRate(f, anyPair(128), fixed(1e5))
	if err != nil {
		t.Fatal(err)
	}
	if want := 0.25 * 12.8e12 / 8e5; math.Abs(hosts/want-1) > 1e-9 {
		t.Errorf("of hosts' links: %g flows per second, want %g", hosts, want)
	}
}

func TestLoadRefused(t *testing.T) {
	f := congaTestbed()
	cross := crossing(f.Rack)
	for _, c := range []struct {
		name  string
		f     *Fabric
		l     Load
		pairs *Selection
		want  string
	}{
		{"zero", f, Load{}, cross, "load of 0 %"},
		{"NaN", f, Load{Percent: math.NaN()}, cross, "NaN"},
		{"over the bisection", f, Load{Percent: 101}, cross, "ask for at most 100 %"},
		{"over the bisection, by hosts' links", f, Load{Percent: 60, OfHosts: true}, cross, "ask for at most 50 %"},
		{"a hot host", f, Load{Percent: 30}, &Selection{From: hosts(33, 38), To: hosts(5, 5), Rack: f.Rack}, "the link to host 5"},
		{"inside racks", f, Load{Percent: 30}, &Selection{From: hosts(0, 0), To: hosts(1, 1), Rack: f.Rack, Any: true}, "send nothing over it"},
	} {
		if _, err := c.l.FlowRate(c.f, c.pairs, fixed(1e6)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", c.name, err, c.want)
		}
	}
	if _, err := (Load{Percent: 10}).FlowRate(f, cross, fixed(0)); err == nil {
		t.Error("flows of no bytes offer a load")
	}
}

// TestOfferedBytes: over a long time, generated flows offer the load asked for
// to each rack's uplinks, within five standard errors of a compound Poisson process.
func TestOfferedBytes(t *testing.T) {
	f := &Fabric{Rack: racksOf(4, 4), HostRate: same(100e9, 16), Uplinks: same(200e9, 4), Nominal: same(200e9, 4)}
	for _, c := range []struct {
		name  string
		sizes string
		load  Load
		pairs *Selection
	}{
		{"payload", "web-search", Load{Percent: 60}, crossing(f.Rack)},
		{"any pair", "meta-hadoop", Load{Percent: 60}, anyPair(16)},
		{"hosts' links", "solar-rpc", Load{Percent: 40, OfHosts: true}, crossing(f.Rack)},
	} {
		t.Run(c.name, func(t *testing.T) {
			sizes := must(workload.Builtin(c.sizes))
			rate := must(c.load.FlowRate(f, c.pairs, sizes))
			const flows = 400_000
			p := &limited{NewPoisson(PoissonConfig{Stream: Stream{Seed: 3}, Pairs: c.pairs, Sizes: sizes, Rate: rate, Until: engine.Never}), flows}
			out := make([]float64, 4)
			var sq, all float64
			var last Flow
			for {
				f1, ok := p.Next()
				if !ok {
					break
				}
				b := float64(f1.Bytes)
				all += b
				sq += b * b
				if r := f.Rack[f1.Src]; r != f.Rack[f1.Dst] {
					out[r] += b
				}
				last = f1
			}
			horizon := last.Start.Seconds()
			full := 200e9
			if c.load.OfHosts {
				full = 400e9
			}
			// A share of flows goes out of each rack: the variance of its bytes
			// is that share of the sum of squares.
			tol := 5 * math.Sqrt(sq/4) / (all / 4)
			for r, b := range out {
				want := c.load.Percent / 100 * full * horizon / 8
				if dev := math.Abs(b/want - 1); dev > tol {
					t.Errorf("rack %d sends %.4g bytes out, want %.4g (off by %.2f %%, tolerance %.2f %%)", r, b, want, 100*dev, 100*tol)
				}
			}
			if tol > 0.1 {
				t.Errorf("a tolerance of %.2f shows nothing", tol)
			}
		})
	}
}

// TestShortGaps: with gaps of a few nanoseconds, rounding must not add to the
// load.
func TestShortGaps(t *testing.T) {
	const n = 400_000
	p := &limited{NewPoisson(PoissonConfig{Pairs: anyPair(4), Sizes: fixed(1), Rate: 5e8, Until: engine.Never}), n}
	var last Flow
	for f, ok := p.Next(); ok; f, ok = p.Next() {
		if f.Start < last.Start {
			t.Fatalf("flow %d starts at %v, after one at %v", f.ID, f.Start, last.Start)
		}
		last = f
	}
	if want := float64(n) / 5e8; math.Abs(last.Start.Seconds()/want-1) > 5/math.Sqrt(n) {
		t.Errorf("%d flows take %v, want %v", n, last.Start, engine.Time(want*1e12))
	}
}
