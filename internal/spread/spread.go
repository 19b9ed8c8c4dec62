// Package spread holds the statistics that lab and simulator share: quantiles of
// what was measured, and the spread of one number over repeated runs. It does
// not know what the numbers are.
package spread

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
)

// Rank returns the rank of a quantile among n sorted values, from 1 to n: the
// first one that a share p of the values does not exceed (the nearest rank). p
// is clamped to 0..1, and n must be above 0.
func Rank(p float64, n uint64) uint64 {
	r := math.Ceil(p * float64(n) * (1 - 1e-15)) // 0.07 × 100 is a little above 7
	switch {
	case !(r > 1):
		return 1
	case r >= float64(n):
		return n
	}
	return uint64(r)
}

// Quantile returns the smallest of the sorted values that a share p of them
// does not exceed; NaN if there are none.
func Quantile(sorted []float64, p float64) float64 {
	if len(sorted) == 0 {
		return math.NaN()
	}
	return sorted[Rank(p, uint64(len(sorted)))-1]
}

// Spread sums up one number over N runs.
type Spread struct {
	N              int
	Mean, Min, Max float64
	// CI95 is half the width of the mean's 95 % confidence interval, by Student's
	// t distribution. It is 0 with fewer than two runs, which have no interval.
	CI95 float64
}

// Of returns the spread of values; the zero Spread if there are none.
func Of(values []float64) Spread {
	if len(values) == 0 {
		return Spread{}
	}
	s := Spread{N: len(values), Mean: stat.Mean(values, nil), Min: slices.Min(values), Max: slices.Max(values)}
	if n := float64(s.N); n > 1 {
		t := distuv.StudentsT{Sigma: 1, Nu: n - 1}
		s.CI95 = t.Quantile(0.975) * stat.StdErr(stat.StdDev(values, nil), n)
	}
	return s
}

// Imbalance returns how unevenly links were used: "the maximum throughput (among
// the 4 uplinks) minus the minimum divided by the average: (MAX − MIN)/AVG"
// (CONGA §5.2.3). sent is what each of them carried in one interval. 0 is
// perfect, and the number of links is the worst. ok is false if nothing was
// sent.
func Imbalance(sent []uint64) (v float64, ok bool) {
	var sum uint64
	for _, n := range sent {
		sum += n
	}
	if sum == 0 {
		return 0, false
	}
	return float64(slices.Max(sent)-slices.Min(sent)) * float64(len(sent)) / float64(sum), true
}
