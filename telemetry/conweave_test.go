package telemetry

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/loomfabric/loom/reorder"
)

// What Prometheus is told of a histogram is what counting the times one by one
// comes to.
func TestHistograms(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	f := newFake()
	f.stats.Workers[0].Reorder.Hold, f.stats.Workers[1].Reorder.Hold = reorder.Histogram{}, reorder.Histogram{}
	times := []time.Duration{0, 255, 256, 511, 512, time.Microsecond, 1023, 1024, 3 * time.Second, 4 * time.Second, time.Minute}
	for range 1000 {
		times = append(times, time.Duration(1)<<rng.IntN(34)+time.Duration(rng.IntN(1000)))
	}
	var sum, longest time.Duration
	for i, d := range times {
		f.stats.Workers[i%2].Reorder.Hold.Add(d)
		sum, longest = sum+d, max(longest, d)
	}
	got := values(gather(t, f.options()))
	want := map[string]float64{
		"loom_reorder_hold_seconds_count{}": float64(len(times)),
		"loom_reorder_hold_seconds_sum{}":   sum.Seconds(),
		"loom_reorder_hold_max_seconds{}":   longest.Seconds(),
	}
	// Bounds are powers of two from 256 ns on, and what is halfway between them.
	for bound := 256 * time.Nanosecond; bound < 4*time.Second; bound *= 2 {
		for _, le := range []time.Duration{bound, bound * 3 / 2} {
			below := 0
			for _, d := range times {
				if d < le {
					below++
				}
			}
			want[fmt.Sprintf("loom_reorder_hold_seconds_bucket{le=%q}", strconv.FormatFloat(le.Seconds(), 'g', -1, 64))] = float64(below)
		}
	}
	delete(want, `loom_reorder_hold_seconds_bucket{le="3.84e-07"}`) // its bucket ends at the next bound
	for name, v := range want {
		if g, ok := got[name]; !ok || g != v {
			t.Errorf("%s is %v (shown: %v), want %v", name, g, ok, v)
		}
	}
}
