package stat

import "math/bits"

// SizeBuckets is the number of buckets of [Sizes].
const SizeBuckets = 14

// Sizes counts sizes, of bytes or frames, in buckets that end at powers of four: 1, 4, 16 and
// so on up to 16 Mi; the last one holds all above. The zero value is empty. It is a plain value
// that its one writer adds to; to keep one, copy it.
type Sizes struct {
	Counts [SizeBuckets]uint64
	Sum    uint64
}

// Add counts one size.
func (s *Sizes) Add(n uint64) {
	i := 0
	if n > 1 {
		i = min((bits.Len64(n-1)+1)/2, SizeBuckets-1)
	}
	s.Counts[i]++
	s.Sum += n
}

// UpperSize returns the upper bound of a bucket, which is part of it. The last bucket has none.
func UpperSize(bucket int) uint64 { return 1 << (2 * bucket) }

// N returns how many sizes were counted.
func (s *Sizes) N() (n uint64) {
	for _, c := range s.Counts {
		n += c
	}
	return n
}
