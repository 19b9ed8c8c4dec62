package rdma

import (
	"math"
	"testing"

	"github.com/loomfabric/loom/sim/engine"
)

// jain is the fairness index: 1 if all get the same, 1/n if one gets all.
func jain(x []float64) float64 {
	var sum, squares float64
	for _, v := range x {
		sum += v
		squares += v * v
	}
	return sum * sum / (float64(len(x)) * squares)
}

// DCQCN §5: flows that share a bottleneck come to equal shares of all of it.
// With the paper's parameters at the paper's rate the queue is on average where
// packets are marked with some probability, between K_min and K_max. ConWeave's
// cut each 4 µs, less than the round trip, and rise slowly: the queue reaches
// K_min from time to time and drains, and K_max is never reached.
func TestQueuePairsShareABottleneck(t *testing.T) {
	paper := Defaults()
	paper.CNPInterval, paper.Rates = 50*usec, paperRates()
	for _, tc := range []struct {
		name        string
		c           Config
		line, flows int
		kmin, kmax  uint64
		pmax        float64
		warm, span  engine.Time
		fair        float64
	}{
		{"ConWeave's, 2", Defaults(), 25, 2, 100_000, 400_000, 0.2, 60, 40, 0.97},
		{"ConWeave's, 8", Defaults(), 25, 8, 100_000, 400_000, 0.2, 60, 40, 0.95},
		{"the paper's, 2", paper, 40, 2, 5_000, 200_000, 0.01, 60, 40, 0.97},
		{"the paper's, 8", paper, 40, 8, 5_000, 200_000, 0.01, 60, 40, 0.95},
	} {
		t.Run(tc.name, func(t *testing.T) {
			line := uint64(tc.line) * gig
			rates := make([]uint64, tc.flows+1)
			for i := range rates {
				rates[i] = line
			}
			l := newLab(t, tc.c, rates...)
			l.sw.kmin, l.sw.kmax, l.sw.pmax = tc.kmin, tc.kmax, tc.pmax
			var qs []*QP
			for i := range tc.flows { // each finds those before it at work
				l.e.Run(engine.Time(i) * engine.Millisecond)
				q := l.open(i+1, 0)
				q.Post(l.e.Now(), 1<<50, 0)
				qs = append(qs, q)
			}
			l.e.Run(tc.warm * engine.Millisecond)
			before := make([]uint64, tc.flows)
			for i, q := range qs {
				before[i] = q.n.Delivered
			}
			var queue, square, peak float64
			const samples = 2000
			for i := range samples {
				l.e.Run(tc.warm*engine.Millisecond + tc.span*engine.Millisecond*engine.Time(i)/samples)
				b := float64(l.sw.ports[0].Queued())
				queue += b / samples
				square += b * b / samples
				peak = max(peak, b)
			}
			l.e.Run((tc.warm + tc.span) * engine.Millisecond)
			var got []float64
			var sum float64
			for i, q := range qs {
				b := float64(q.n.Delivered-before[i]) * 8 / (tc.span * engine.Millisecond).Seconds()
				got = append(got, b)
				sum += b
			}
			used := sum / (float64(line) * 1000 / 1058)
			t.Logf("Jain %.4f, %.1f%% used, queue %.0f ± %.0f up to %.0f, rates %.2e", jain(got), 100*used, queue, math.Sqrt(square-queue*queue), peak, got)
			if j := jain(got); j < tc.fair {
				t.Errorf("Jain index %.3f; want at least %.2f", j, tc.fair)
			}
			if used < 0.95 || used > 1.0001 {
				t.Errorf("%.1f%% of the link is used", 100*used)
			}
			level := queue
			if tc.c.Rates.CutInterval > 0 {
				level = peak
			}
			if level < float64(tc.kmin) || level > float64(tc.kmax) {
				t.Errorf("the queue is %.0f bytes on average, %.0f at most; want it between %d and %d", queue, peak, tc.kmin, tc.kmax)
			}
		})
	}
}
