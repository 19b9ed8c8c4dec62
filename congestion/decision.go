package congestion

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
)

// PathMetric is the rule that makes the congestion of a path from its parts.
type PathMetric uint8

// The path metrics.
const (
	// MaxMetric takes the worst part (CONGA §3.5).
	MaxMetric PathMetric = iota
	// SumMetric adds the parts (§7). A congested uplink may count twice: the leaf
	// raises CE for its own uplink (§3.3), and so the remote metric covers it, too.
	SumMetric
)

// String returns the metric's name in the configuration.
func (m PathMetric) String() string {
	switch m {
	case MaxMetric:
		return "max"
	case SumMetric:
		return "sum"
	}
	return fmt.Sprintf("path metric %d", uint8(m))
}

// UnmarshalText reads a metric's name.
func (m *PathMetric) UnmarshalText(b []byte) error {
	for *m = MaxMetric; *m <= SumMetric; *m++ {
		if m.String() == string(b) {
			return nil
		}
	}
	return fmt.Errorf("path metric %q does not exist; use max or sum", b)
}

// MarshalText writes the metric's name.
func (m PathMetric) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// Decision is the rule that gives a new flowlet its uplink (CONGA §3.5). The zero
// value is the paper's rule.
type Decision struct {
	// Metric is the rule for a path's congestion: max (its worst link) or sum (of its
	// links).
	Metric PathMetric `yaml:"path_metric"`
	// FewestBottlenecks prefers, among equally congested paths, the ones with fewer
	// bottlenecks.
	//
	// The paper (Remark 2) would count bottlenecks in the header. Here the source
	// leaf knows two parts, the uplink and the rest of the path, and counts the
	// parts that are as congested as the worse one. The count is one too high if
	// the remote metric comes from the uplink.
	FewestBottlenecks bool `yaml:"fewest_bottlenecks"`
}

// Pick returns the least congested of the given uplinks, each below [MaxTags], by
// its local metric (the uplink's own DRE) and its remote metric (fed back for the
// path). Among equally good uplinks it prefers cached, the uplink of the flow's
// last flowlet: "a flow only moves if there is a strictly better uplink" (§3.5).
// Otherwise it draws one of them uniformly from rng. Without uplinks it returns
// [NoUplink].
func (d Decision) Pick(uplinks []uint8, local, remote *[MaxTags]uint8, cached uint8, rng *rand.PCG) uint8 {
	return PickAmong(d.Best(uplinks, local, remote), cached, rng)
}

// PickAmong is the second half of [Decision.Pick]: it chooses among the uplinks that
// [Decision.Best] returned, which are the same for all flowlets to a leaf at one time.
func PickAmong(ties uint16, cached uint8, rng *rand.PCG) uint8 {
	if ties == 0 {
		return NoUplink
	}
	if cached < MaxTags && ties&(1<<cached) != 0 {
		return cached
	}
	if ties&(ties-1) != 0 {
		for skip := draw(rng, bits.OnesCount16(ties)); skip > 0; skip-- {
			ties &= ties - 1
		}
	}
	return uint8(bits.TrailingZeros16(ties))
}

// Best returns the uplinks that Pick chooses among, as bits: those of the given ones that
// are the least congested.
func (d Decision) Best(uplinks []uint8, local, remote *[MaxTags]uint8) (ties uint16) {
	best := ^uint32(0)
	for _, u := range uplinks {
		u &= MaxTags - 1
		switch cost := d.cost(local[u], remote[u]); {
		case cost < best:
			best, ties = cost, 1<<u
		case cost == best:
			ties |= 1 << u
		}
	}
	return ties
}

// cost orders paths: metric first, then bottlenecks if they count.
func (d Decision) cost(local, remote uint8) uint32 {
	worst := max(local, remote)
	cost := uint32(worst)
	if d.Metric == SumMetric {
		cost = uint32(local) + uint32(remote)
	}
	cost <<= 1
	if d.FewestBottlenecks && local == remote {
		cost++ // both parts are the worst
	}
	return cost
}

// draw returns a number from 0 to n-1. The multiplication favours some of them
// by less than 2^-27 for n up to 16.
func draw(rng *rand.PCG, n int) int {
	return int(rng.Uint64() >> 32 * uint64(n) >> 32)
}
