package reorder

import (
	"math/bits"
	"time"
)

// Buckets is the number of buckets of a [Histogram].
const Buckets = 96

// Histogram counts durations in buckets whose width is a quarter of a power of
// two: 128 ns up to 1.024 µs, then 256 ns, and so on up to 4 s, so that a
// quantile is off by a quarter at most. The zero value is empty. It is a plain
// value without pointers: to keep one, copy it.
type Histogram struct {
	Counts [Buckets]uint64
	N      uint64 // the sum of Counts
	Sum    time.Duration
	Max    time.Duration `stat:",max"`
}

// histogramUnit is the width of the first buckets, as a shift of nanoseconds.
const histogramUnit = 7

// Add counts one duration; what is below zero counts as zero.
func (h *Histogram) Add(d time.Duration) {
	d = max(d, 0)
	u := uint64(d) >> histogramUnit
	i := u
	if u >= 8 {
		e := uint(bits.Len64(u)) - 3
		i = min(uint64(4*e)+u>>e, Buckets-1)
	}
	h.Counts[i]++
	h.N++
	h.Sum += d
	h.Max = max(h.Max, d)
}

// Upper returns the upper bound of a bucket, which is not part of it. The last
// bucket holds everything above it, too.
func Upper(bucket int) time.Duration {
	u := uint64(bucket + 1)
	if u > 8 {
		e := u/4 - 1
		u = (u%4 + 4) << e
	}
	return time.Duration(u << histogramUnit)
}

// Quantile returns the upper bound of the bucket in which the q-th part of the
// durations ends, but not more than the longest one; 0 if there are none.
func (h *Histogram) Quantile(q float64) time.Duration {
	if h.N == 0 {
		return 0
	}
	rank := min(uint64(max(q, 0)*float64(h.N)), h.N-1)
	for i, n := range h.Counts {
		if rank < n && i < Buckets-1 {
			return min(Upper(i), h.Max)
		}
		rank -= n
	}
	return h.Max
}

// Merge adds what another histogram counted.
func (h *Histogram) Merge(o *Histogram) {
	for i, n := range o.Counts {
		h.Counts[i] += n
	}
	h.N += o.N
	h.Sum += o.Sum
	h.Max = max(h.Max, o.Max)
}
