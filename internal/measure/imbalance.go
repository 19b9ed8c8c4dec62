package measure

import (
	"fmt"

	"github.com/loomfabric/loom/internal/spread"
)

// leastBytes is how much an uplink must have sent on average for an interval to
// count: ten full frames. Fewer cannot be spread evenly by anyone: a lone packet
// on one of four uplinks has the imbalance 4, whatever the scheme
// (docs/decisions/0013-one-matrix.md).
const leastBytes = 10 * 1500

// Imbalance records how unevenly a leaf's uplinks are used, from interval to
// interval ([spread.Imbalance]). CONGA §5.2.3 samples every 10 ms, ConWeave §4.1.2
// every 100 µs. Uplinks that are down at either end of an interval are left out
// of it, and intervals in which the others sent next to nothing do not count.
type Imbalance struct {
	last    []uint64
	wasUp   []bool
	live    []uint64 // what the uplinks that are up sent in the interval that just ended
	started bool
	values  *Values
}

// NewImbalance returns a record for a number of uplinks. Its quantiles are exact
// up to a number of intervals.
func NewImbalance(links, exact int) *Imbalance {
	return &Imbalance{last: make([]uint64, links), wasUp: make([]bool, links), live: make([]uint64, 0, links), values: NewValues(exact)}
}

// Sample takes the uplinks' counters of bytes sent, which only grow, and whether
// each uplink is up. The first call begins.
func (b *Imbalance) Sample(sent []uint64, up []bool) {
	if len(sent) != len(b.last) {
		panic(fmt.Sprintf("measure: %d counters for %d uplinks", len(sent), len(b.last)))
	}
	live, sum := b.live[:0], uint64(0)
	for i, n := range sent {
		if n < b.last[i] {
			panic(fmt.Sprintf("measure: the counter of uplink %d fell from %d to %d", i, b.last[i], n))
		}
		if up[i] && b.wasUp[i] {
			live = append(live, n-b.last[i])
			sum += n - b.last[i]
		}
		b.last[i], b.wasUp[i] = n, up[i]
	}
	started := b.started
	b.started = true
	if !started || sum < leastBytes*uint64(len(live)) {
		return
	}
	if v, ok := spread.Imbalance(live); ok {
		b.values.Add(v)
	}
}

// Distributions sums up what several leaves recorded: all of them together, as
// "all", and each by its name. A leaf of which no interval counts, as it sends
// nothing but acknowledgements, is left out.
func Distributions(names []string, leaves []*Imbalance) (out []Distribution) {
	var all *Values
	for i, b := range leaves {
		if b.values.Count() == 0 {
			continue
		}
		if all == nil {
			all = NewValues(b.values.limit)
		}
		all.Merge(b.values)
		out = append(out, b.values.Distribution(names[i]))
	}
	if all == nil {
		return nil
	}
	return append([]Distribution{all.Distribution("all")}, out...)
}
