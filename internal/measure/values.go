// Package measure defines what a run measures, in the simulator as in the lab:
// the [Result], flow completion times, imbalance and distributions. It only
// records what a run reports to it; docs/measuring.md has the definitions. Adding
// a number allocates nothing.
package measure

import (
	"fmt"
	"math"
	"slices"

	"github.com/loomfabric/loom/internal/spread"
)

// RelativeError bounds how far a quantile that comes out of buckets lies from
// the value that was added.
const RelativeError = 0.01

// Buckets are logarithmic in steps that are cheap to find: a bucket holds the
// numbers that share a binary exponent and the first subBits of the mantissa,
// so it is at most 1/64 of its lower bound wide, and its middle is off by at
// most 1/128.
const (
	subBits     = 6
	minExponent = -30 // smaller numbers count as this one
	maxExponent = 64
	buckets     = (maxExponent - minExponent) << subBits
	firstBucket = (1023 + minExponent) << subBits
)

// bucketOf returns the bucket of v > 0.
func bucketOf(v float64) int {
	i := int(math.Float64bits(v)>>(52-subBits)) - firstBucket
	return min(max(i, 0), buckets-1)
}

// middle returns the middle of a bucket.
func middle(i int) float64 {
	low := math.Float64frombits(uint64(i+firstBucket) << (52 - subBits))
	high := math.Float64frombits(uint64(i+1+firstBucket) << (52 - subBits))
	return (low + high) / 2
}

// Values is a store of numbers that are not negative: exact up to a limit, and
// beyond it a histogram whose quantiles are within [RelativeError] for numbers
// from 1e-9 to 1e19. Count, mean and extremes stay exact. It is owned
// by one run.
type Values struct {
	exact    []float64 // all of them, in any order, while they fit
	limit    int
	counts   []uint64 // by bucket, once they do not
	zeros    uint64
	n        uint64
	mean     float64
	min, max float64
}

// NewValues returns an empty store that is exact up to limit numbers, for which
// it takes the memory at once.
func NewValues(limit int) *Values {
	limit = max(limit, 0)
	return &Values{exact: make([]float64, 0, limit), limit: limit, counts: make([]uint64, buckets)}
}

// Add adds a number. A negative one or none at all is its caller's mistake: it
// panics.
func (s *Values) Add(v float64) {
	if !(v >= 0) || v > math.MaxFloat64 {
		panic(fmt.Sprintf("measure: %g is no value to count", v))
	}
	if s.n == 0 || v < s.min {
		s.min = v
	}
	if v > s.max {
		s.max = v
	}
	s.n++
	s.mean += (v - s.mean) / float64(s.n)
	if s.Exact() {
		if len(s.exact) < s.limit {
			s.exact = append(s.exact, v)
			return
		}
		s.spill()
	}
	s.count(v)
}

// Exact reports whether all numbers are still known.
func (s *Values) Exact() bool { return s.exact != nil }

// spill turns to buckets.
func (s *Values) spill() {
	for _, v := range s.exact {
		s.count(v)
	}
	s.exact = nil
}

func (s *Values) count(v float64) {
	if v == 0 {
		s.zeros++
	} else {
		s.counts[bucketOf(v)]++
	}
}

// Count returns how many numbers were added.
func (s *Values) Count() uint64 { return s.n }

// Mean returns their mean; NaN if there are none, like all that follow.
func (s *Values) Mean() float64 { return s.orNaN(s.mean) }

// Max returns the largest.
func (s *Values) Max() float64 { return s.orNaN(s.max) }

func (s *Values) orNaN(v float64) float64 {
	if s.n == 0 {
		return math.NaN()
	}
	return v
}

// Quantile returns the smallest number that a share p of all does not exceed
// (the nearest rank). p is clamped to 0..1.
func (s *Values) Quantile(p float64) float64 {
	if s.n == 0 {
		return math.NaN()
	}
	rank := spread.Rank(p, s.n)
	switch {
	case s.Exact():
		slices.Sort(s.exact) // which is fast on what is sorted
		return s.exact[rank-1]
	case rank == s.n:
		return s.max
	case rank <= s.zeros:
		return 0
	}
	seen, bucket := s.zeros, -1
	for seen < rank {
		bucket++
		seen += s.counts[bucket]
	}
	return min(max(middle(bucket), s.min), s.max)
}

// Merge adds all numbers of o.
func (s *Values) Merge(o *Values) {
	if o.n == 0 {
		return
	}
	if s.n == 0 || o.min < s.min {
		s.min = o.min
	}
	s.max = max(s.max, o.max)
	n := float64(s.n + o.n)
	s.mean += (o.mean - s.mean) * float64(o.n) / n
	s.n += o.n
	if s.Exact() && o.Exact() && len(s.exact)+len(o.exact) <= s.limit {
		s.exact = append(s.exact, o.exact...)
		return
	}
	if s.Exact() {
		s.spill()
	}
	if o.Exact() {
		for _, v := range o.exact {
			s.count(v)
		}
		return
	}
	s.zeros += o.zeros
	for i, k := range o.counts {
		s.counts[i] += k
	}
}

// CDF returns the distribution in at most limit points, evenly spread over the
// probabilities; the last has Y = 1.
func (s *Values) CDF(limit int) []Point {
	if s.n == 0 || limit < 1 {
		return nil
	}
	n := min(uint64(limit), s.n)
	points := make([]Point, 0, n)
	for i := uint64(1); i <= n; i++ {
		p := Point{s.Quantile(float64(i) / float64(n)), float64(i) / float64(n)}
		if last := len(points) - 1; last >= 0 && points[last].X == p.X {
			points[last] = p
		} else {
			points = append(points, p)
		}
	}
	return points
}

// curvePoints is how many points of a distribution a result keeps.
const curvePoints = 100

// Distribution sums up the numbers; one without any is all zero.
func (s *Values) Distribution(name string) Distribution {
	d := Distribution{Name: name, N: s.n}
	if s.n == 0 {
		return d
	}
	d.Mean, d.Max, d.CDF = s.Mean(), s.Max(), s.CDF(curvePoints)
	d.P50, d.P90, d.P95, d.P99, d.P999 = s.Quantile(0.5), s.Quantile(0.9), s.Quantile(0.95), s.Quantile(0.99), s.Quantile(0.999)
	return d
}
