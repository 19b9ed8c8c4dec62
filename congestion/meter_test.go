package congestion

import (
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/loomfabric/loom/internal/mono"
)

// naiveMeter keeps publications as they came and walks period by period.
type naiveMeter struct {
	period int64
	keep   float64
	x      []float64
	at     []mono.Time
}

func (n *naiveMeter) sum(now mono.Time) (sum float64) {
	for i := range n.x {
		x := n.x[i]
		for p := floorDiv(int64(n.at[i]), n.period); p < floorDiv(int64(now), n.period); p++ {
			x *= n.keep
			if x < 1e-12 {
				break
			}
		}
		sum += x
	}
	return sum
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

func TestMeterEqualsModel(t *testing.T) {
	rng := newRand(t)
	for range 100 {
		p := testParams()
		// A period that divides the clock's range, so that the model's periods,
		// counted from zero, are the meter's, counted from the lowest value.
		period := mono.Time(1) << (8 + rng.IntN(16))
		p.Alpha = 0.02 + 0.5*rng.Float64()
		p.Tau = time.Duration(math.Round(float64(period) / p.Alpha))
		workers := 1 + rng.IntN(4)
		m := NewMeter(workers, p)
		if m.period != uint64(period) {
			continue // rounded to a neighbour
		}
		naive := naiveMeter{int64(period), 1 - p.Alpha, make([]float64, workers), make([]mono.Time, workers)}
		now := mono.Time(rng.Int64N(1<<40) - 1<<39)
		for i := range naive.at {
			naive.at[i] = now
		}
		for range 300 {
			now += mono.Time(rng.Int64N(int64(3 * period)))
			if rng.IntN(20) == 0 {
				now += period * mono.Time(rng.IntN(2*decaySteps))
			}
			w := rng.IntN(workers)
			x := rng.Float64() * 1e6
			m.Publish(w, now, x)
			naive.x[w], naive.at[w] = x, now
			later := now + mono.Time(rng.Int64N(int64(5*period)))
			got, want := m.X(later), naive.sum(later)
			if math.Abs(got-want) > 1e-6*want+1e-6 {
				t.Fatalf("period %d, %d workers: X = %v, the model has %v", period, workers, got, want)
			}
			now = later
		}
	}
}

// The purpose: workers that each meter a part of the traffic see, through what
// they publish, what one meter of all of it would.
//
// A publication is as old as the worker's last burst, and a period of it may
// count once too often or not at all: α for each.
func TestMeterOfSeveralWorkersEqualsOne(t *testing.T) {
	rng := newRand(t)
	p := testParams()
	for _, workers := range []int{1, 2, 4} {
		one, m := p.DRE(), NewMeter(workers, p)
		parts := make([]DRE, workers)
		for i := range parts {
			parts[i] = p.DRE()
		}
		now := mono.Time(0)
		for step := range 20_000 {
			now += mono.Time(rng.IntN(2000))
			w, n := rng.IntN(workers), uint32(64+rng.IntN(1455))
			one.Add(now, n)
			parts[w].Add(now, n)
			m.Publish(w, now, parts[w].X(now))
			if step < 2000 {
				continue // the meters' anchors are not settled
			}
			got, want := m.X(now), one.X(now)
			if math.Abs(got-want) > 1.2*p.Alpha*want {
				t.Fatalf("%d workers at %d: X = %.0f, one meter has %.0f", workers, now, got, want)
			}
		}
		// All fall asleep: the sum fades like the one meter's.
		for range 20 {
			now += mono.Time(one.period)
			got, want := m.X(now), one.X(now)
			if math.Abs(got-want) > 1.2*p.Alpha*want {
				t.Fatalf("%d sleeping workers: X = %.0f, one meter has %.0f", workers, got, want)
			}
		}
	}
}

func TestMeterClockJumps(t *testing.T) {
	const start = mono.Time(1 << 50)
	period := mono.Time(16 * time.Microsecond)
	wrap := period << 32
	for _, tt := range []struct {
		name      string
		to        mono.Time
		low, high float64
	}{
		{"same instant", start, 1000, 1000},
		{"a moment back", start - 1000, 899, 1000},
		{"an hour back", start - mono.Time(time.Hour), 0, 0},
		{"an hour on", start + mono.Time(time.Hour), 0, 0},
		{"half a wrap on", start + wrap/2, 0, 0},
		{"nearly a wrap on", start + wrap - 1000*period, 0, 0},
		{"to the end of time", math.MaxInt64, 0, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := NewMeter(2, testParams())
			m.Publish(1, start, 1000)
			if got := m.X(tt.to); got < tt.low || got > tt.high {
				t.Errorf("X = %v, want %v to %v", got, tt.low, tt.high)
			}
			m.Publish(1, tt.to, 500)
			if got := m.X(tt.to); got != 500 {
				t.Errorf("X = %v right after a publication of 500", got)
			}
		})
	}
}

// What has decayed to nothing must not come back when the period's 32 bits wrap.
func TestMeterForgetsBeforeTheWrap(t *testing.T) {
	m := NewMeter(1, testParams())
	m.Publish(0, 0, 1e9)
	wrap := mono.Time(m.period) << 32
	if got := m.X(wrap / 3); got != 0 {
		t.Fatalf("X = %v after %v", got, (wrap / 3).Sub(0))
	}
	if got := m.X(wrap); got != 0 {
		t.Errorf("X = %v when the period has wrapped", got)
	}
}

func TestMeterMetric(t *testing.T) {
	const rate = 10_000_000_000
	m := NewMeter(2, testParams())
	full := float64(rate) / 8 * defaultTau.Seconds()
	m.Publish(0, 0, full*0.3)
	m.Publish(1, 0, full*0.4)
	if got := m.Metric(0, rate); got != 5 {
		t.Errorf("metric of 0.3 + 0.4 = %d, want 5", got)
	}
	if got := m.Utilisation(0, rate); math.Abs(got-0.7) > 1e-6 {
		t.Errorf("utilisation of 0.3 + 0.4 = %v", got)
	}
	if got := m.Metric(0, rate/2); got != 7 {
		t.Errorf("metric = %d when the rate was halved, want 7", got)
	}
	if got := m.Metric(0, 0); got != 0 {
		t.Errorf("metric = %d of a link of unknown rate", got)
	}
}

func TestMeterShared(t *testing.T) {
	const workers = 3
	m := NewMeter(workers, testParams())
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := range 20_000 {
				m.Publish(w, mono.Time(i), 100)
				if x := m.X(mono.Time(i)); x < 50 || x > 100*workers {
					t.Errorf("X = %v while %d workers publish 100 each", x, workers)
					return
				}
			}
		})
	}
	wg.Wait()
}

func TestMeterDoesNotAllocate(t *testing.T) {
	m := NewMeter(4, testParams())
	now, sum := mono.Time(0), 0
	if n := testing.AllocsPerRun(1000, func() {
		now += 5000
		m.Publish(int(now/5000)%4, now, 1e6)
		sum += int(m.Metric(now, 10_000_000_000))
	}); n != 0 {
		t.Errorf("%v allocations, want none", n)
	}
	if sum == 0 {
		t.Error("the metric never left 0")
	}
}

func BenchmarkMeterPublish(b *testing.B) {
	m := NewMeter(2, testParams())
	now := mono.Time(0)
	b.ReportAllocs()
	for b.Loop() {
		now += 100
		m.Publish(0, now, 1000)
	}
}

func BenchmarkMeterMetric(b *testing.B) {
	m := NewMeter(2, testParams())
	rng := rand.New(rand.NewPCG(1, 2))
	m.Publish(0, 0, rng.Float64()*1e5)
	m.Publish(1, 0, rng.Float64()*1e5)
	var sum uint8
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		sum += m.Metric(mono.Time(i&0xffff), 10_000_000_000)
	}
	_ = sum
}
