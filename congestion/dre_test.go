package congestion

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/loomfabric/loom/internal/mono"
)

// timerDRE is the DRE as hardware has it: somebody calls tick every T_dre.
type timerDRE struct {
	x, alpha     float64
	period, next mono.Time
}

func (d *timerDRE) runTo(now mono.Time) {
	for d.next <= now {
		d.x *= 1 - d.alpha
		d.next += d.period
	}
}

func TestLazyDecayEqualsTimer(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	for range 200 {
		alpha := 0.02 + 0.9*rng.Float64()
		tau := time.Duration(1000 + rng.IntN(1_000_000))
		d := newDRE(tau, alpha, 3)
		period := mono.Time(d.period)
		naive := timerDRE{alpha: alpha, period: period, next: period}
		now := mono.Time(0)
		for range 300 {
			switch rng.IntN(10) {
			case 0: // idle for longer than the table reaches
				now += mono.Time(rng.Int64N(4*decaySteps)) * period
			default:
				now += mono.Time(rng.Int64N(3 * int64(period)))
			}
			naive.runTo(now)
			n := uint32(64 + rng.IntN(1455))
			d.Add(now, n)
			naive.x += float64(n)
			if got := d.X(now); math.Abs(got-naive.x) > 1e-6*naive.x+1e-6 {
				t.Fatalf("α %v τ %v at %d: X %v, the timer-driven model has %v", alpha, tau, now, got, naive.x)
			}
		}
	}
}

func TestClockJumps(t *testing.T) {
	const start = mono.Time(1 << 40)
	period := mono.Time(16 * time.Microsecond)
	tests := []struct {
		name string
		to   mono.Time // the clock after the jump
		want float64   // X right after it, of 1000 bytes
	}{
		{"same instant", start, 1000},
		{"back within a period", start - period/2, 1000},
		{"far back", start - mono.Time(time.Hour), 1000},
		{"to before the origin", math.MinInt64, 1000},
		{"one period", start + period, 900},
		{"far forward", start + mono.Time(time.Hour), 0},
		{"to the end of time", math.MaxInt64, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d := newDRE(defaultTau, defaultAlpha, defaultQ)
			// Put a period's start at start exactly.
			d.X(start)
			d.anchor = start
			d.Add(start, 1000)
			if got := d.X(tt.to); math.Abs(got-tt.want) > 1e-9 {
				t.Errorf("X = %v after the jump, want %v", got, tt.want)
			}
			// Wherever the clock is now, the meter goes on decaying from there.
			if tt.to < math.MaxInt64-10*period {
				d.Add(tt.to, 1000)
				before := d.X(tt.to)
				if got := d.X(tt.to + 3*period); got >= before*0.91 {
					t.Errorf("X = %v three periods after %v: frozen by the jump", got, before)
				}
			}
		})
	}
}

func TestFarApartTimesDoNotOverflow(t *testing.T) {
	d := newDRE(defaultTau, defaultAlpha, defaultQ)
	d.X(math.MinInt64)
	d.Add(math.MinInt64, 1000)
	if got := d.X(math.MaxInt64); got != 0 {
		t.Errorf("X = %v after 2^64 ns, want 0", got)
	}
}

func TestMetric(t *testing.T) {
	const rate = 10_000_000_000
	full := float64(rate) / 8 * defaultTau.Seconds() // bytes of C·τ
	tests := []struct {
		name string
		x    float64
		q    uint
		rate uint64
		want uint8
	}{
		{"idle", 0, 3, rate, 0},
		{"below the first level", full/8 - 1, 3, rate, 0},
		{"first level", full/8 + 1, 3, rate, 1},
		{"half", full/2 + 1, 3, rate, 4},
		{"just below full", full - 1, 3, rate, 7},
		{"saturates", full * 100, 3, rate, 7},
		{"unknown rate", full, 3, 0, 0},
		{"one bit", full/2 + 1, 1, rate, 1},
		{"eight bits saturate", full * 100, 8, rate, 255},
		{"eight bits, half", full/2 + 1, 8, rate, 128},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d := newDRE(defaultTau, defaultAlpha, tt.q)
			d.Add(0, uint32(tt.x))
			if got := d.Metric(0, tt.rate); got != tt.want {
				t.Errorf("Metric = %d, want %d (utilisation %v)", got, tt.want, d.share(d.X(0), tt.rate))
			}
		})
	}
}

// Two workers on one link see half of the load each; the link's metric is that
// of the sum, not the larger of the two.
func TestQuantiseOfSum(t *testing.T) {
	const rate = 1_000_000_000
	a, b := newDRE(defaultTau, defaultAlpha, 3), newDRE(defaultTau, defaultAlpha, 3)
	share := uint32(float64(rate) / 8 * defaultTau.Seconds() * 0.45)
	a.Add(0, share)
	b.Add(0, share)
	if got := a.Metric(0, rate); got != 3 {
		t.Errorf("one worker's metric = %d, want 3", got)
	}
	if got := a.quantise(a.X(0)+b.X(0), rate); got != 7 {
		t.Errorf("metric of the sum = %d, want 7", got)
	}
}

func TestDREDoesNotAllocate(t *testing.T) {
	d := newDRE(defaultTau, defaultAlpha, defaultQ)
	now := mono.Time(0)
	var sum uint64
	if n := testing.AllocsPerRun(1000, func() {
		now += 12_345
		d.Add(now, 1500)
		sum += uint64(d.Metric(now, 1_000_000_000))
	}); n != 0 {
		t.Errorf("%v allocations a frame, want none", n)
	}
	if sum == 0 {
		t.Error("the metric never left 0")
	}
}

func BenchmarkDREAdd(b *testing.B) {
	d := newDRE(defaultTau, defaultAlpha, defaultQ)
	now := mono.Time(0)
	b.ReportAllocs()
	for b.Loop() {
		now += 100
		d.Add(now, 1500)
	}
}

func BenchmarkDREMetric(b *testing.B) {
	d := newDRE(defaultTau, defaultAlpha, defaultQ)
	now := mono.Time(0)
	var m uint8
	b.ReportAllocs()
	for b.Loop() {
		now += 100
		d.Add(now, 1500)
		m |= d.Metric(now, 10_000_000_000)
	}
	_ = m
}
