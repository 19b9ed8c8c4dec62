package balance

import "math"

// Shares maps uniform numbers to choices in proportion to weights, by the alias method
// (Walker, ACM TOMS 1977): the range is cut into as many equal parts as there are
// choices, and each part belongs to at most two of them. Shares of equal weights map a
// number to the part that it falls into. The zero value is of no choice.
type Shares struct {
	keep  [MaxPaths]uint16 // of part i, in 2^-16: what choice i has of it
	other [MaxPaths]uint8  // the choice that has the rest
}

// MakeShares returns the shares of n choices, at most MaxPaths. weights has n of them,
// or is nil if all are alike; a sum of 0 counts as all alike, too.
func MakeShares(n int, weights []uint16) Shares {
	var s Shares
	for i := range n {
		s.other[i] = uint8(i)
	}
	total := uint64(0)
	for _, w := range weights {
		total += uint64(w)
	}
	if total == 0 {
		return s
	}
	// A part is as large as total, in units in which choice i has weight·n to place.
	var left [MaxPaths]uint64
	for i, w := range weights {
		left[i] = uint64(w) * uint64(n)
	}
	var full [MaxPaths]bool
	for {
		poor, rich := -1, -1
		for i := range n {
			switch {
			case full[i]:
			case left[i] < total && poor < 0:
				poor = i
			case left[i] > total && rich < 0:
				rich = i
			}
		}
		if poor < 0 || rich < 0 {
			return s // the parts that are left are their choices' alone
		}
		s.keep[poor], s.other[poor], full[poor] = uint16(left[poor]<<16/total), uint8(rich), true
		left[rich] -= total - left[poor]
	}
}

// Of returns the choice, of n, that a number belongs to: one that is spread evenly over
// 32 bits gives choice i with its share, to 2^-16/n.
func (s *Shares) Of(number, n uint32) uint8 {
	at := uint64(number) * uint64(n)
	i := at >> 32 & (MaxPaths - 1)
	if uint16(at>>16&math.MaxUint16) < s.keep[i] {
		return uint8(i)
	}
	return s.other[i]
}

// Table returns what Of goes by, for those who do the same elsewhere: of part i choice i
// has keep[i], in 2^-16, and other[i] the rest.
func (s *Shares) Table() (keep [MaxPaths]uint16, other [MaxPaths]uint8) { return s.keep, s.other }
