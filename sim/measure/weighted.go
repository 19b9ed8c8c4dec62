package measure

import (
	"math"

	"github.com/loomfabric/loom/sim/engine"
)

// TimeWeighted is the distribution over time of a value that holds from one
// change to the next, for instance of a queue's length: a quantile 0.9 of 5000
// says that for a tenth of the time it was longer. Quantiles are within
// [RelativeError]; mean, extremes and the share of time at zero are exact. The
// zero value is empty and ready, and allocates with its first Add.
type TimeWeighted struct {
	value   uint64
	since   engine.Time // when value began
	started bool        // value is meant
	seen    bool        // min and max are
	counts  []uint64    // picoseconds by bucket
	zero    uint64      // picoseconds at 0
	total   uint64      // picoseconds
	sum     float64     // value × picoseconds
	min     uint64
	max     uint64
}

// Add says that the value has been v since now. Time before the first Add does
// not count. Of several values at one time only the last one has lasted, but
// all count for Max.
func (w *TimeWeighted) Add(now engine.Time, v uint64) {
	if !w.started {
		w.started = true
		w.since, w.value = now, v
		if !w.seen {
			w.seen = true
			w.min, w.max = v, v
		}
		w.min, w.max = min(w.min, v), max(w.max, v)
		if w.counts == nil {
			w.counts = make([]uint64, buckets)
		}
		return
	}
	w.settle(now)
	w.value = v
	w.min, w.max = min(w.min, v), max(w.max, v)
}

// Finish counts the time up to now. More may be added afterwards.
func (w *TimeWeighted) Finish(now engine.Time) {
	if w.started {
		w.settle(now)
	}
}

// Restart forgets what was, as at the end of a warm-up, and goes on with the
// present value.
func (w *TimeWeighted) Restart(now engine.Time) {
	if !w.started {
		return
	}
	clear(w.counts)
	*w = TimeWeighted{value: w.value, since: now, started: true, seen: true, counts: w.counts, min: w.value, max: w.value}
}

func (w *TimeWeighted) settle(now engine.Time) {
	if now <= w.since {
		return
	}
	d := uint64(now - w.since)
	w.since = now
	w.total += d
	if w.value == 0 {
		w.zero += d
		return
	}
	w.sum += float64(w.value) * float64(d)
	w.counts[bucketOf(float64(w.value))] += d
}

// Time returns how much time was counted.
func (w *TimeWeighted) Time() engine.Time { return engine.Time(w.total) }

// Mean returns the mean over time; NaN if no time was counted, like Quantile.
func (w *TimeWeighted) Mean() float64 {
	if w.total == 0 {
		return math.NaN()
	}
	return w.sum / float64(w.total)
}

// Min returns the least value.
func (w *TimeWeighted) Min() uint64 { return w.min }

// Max returns the largest value.
func (w *TimeWeighted) Max() uint64 { return w.max }

// Quantile returns what the value did not exceed for a share p of the time.
func (w *TimeWeighted) Quantile(p float64) float64 {
	if w.total == 0 {
		return math.NaN()
	}
	v := findRank(w.zero, w.counts, rankOf(p, w.total))
	return min(max(v, float64(w.min)), float64(w.max))
}

// Zero returns the share of time at which the value was 0.
func (w *TimeWeighted) Zero() float64 {
	if w.total == 0 {
		return math.NaN()
	}
	return float64(w.zero) / float64(w.total)
}

// Merge adds the time that o counted, for instance of another port. The two may
// have been counted at the same time.
func (w *TimeWeighted) Merge(o *TimeWeighted) {
	if !o.seen {
		return
	}
	if w.counts == nil {
		w.counts = make([]uint64, buckets)
	}
	if !w.seen {
		w.seen = true
		w.min, w.max = o.min, o.max
	}
	w.min, w.max = min(w.min, o.min), max(w.max, o.max)
	w.zero += o.zero
	w.total += o.total
	w.sum += o.sum
	for i, d := range o.counts {
		w.counts[i] += d
	}
}

// CDF returns the distribution in at most limit points beside the one at zero;
// the last has P = 1.
func (w *TimeWeighted) CDF(limit int) []Point {
	if w.total == 0 || limit < 1 {
		return nil
	}
	var points []Point
	if w.zero > 0 {
		points = append(points, Point{0, w.Zero()})
	}
	for i := 1; i <= limit; i++ {
		p := float64(i) / float64(limit)
		points = appendPoint(points, Point{w.Quantile(p), max(p, w.Zero())})
	}
	return points
}
