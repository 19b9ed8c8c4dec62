package measure

import (
	"fmt"

	"github.com/loomfabric/loom/internal/stats"
)

// Imbalance records how unevenly a leaf's uplinks are used, from interval to
// interval ([stats.Imbalance]). CONGA §5.2.3 samples every 10 ms, ConWeave §4.1.2
// every 100 µs.
type Imbalance struct {
	last    []uint64
	delta   []uint64 // of the interval that just ended
	started bool
	values  *Values
}

// NewImbalance returns a record for a number of uplinks. Its quantiles are exact
// up to a number of intervals.
func NewImbalance(links, exact int) *Imbalance {
	return &Imbalance{last: make([]uint64, links), delta: make([]uint64, links), values: NewValues(exact)}
}

// Sample takes the uplinks' counters of bytes sent, which only grow; the first
// call begins. Intervals in which nothing was sent have no imbalance, and do not
// count.
func (b *Imbalance) Sample(sent []uint64) {
	if len(sent) != len(b.last) {
		panic(fmt.Sprintf("measure: %d counters for %d uplinks", len(sent), len(b.last)))
	}
	if !b.started {
		b.started = true
		copy(b.last, sent)
		return
	}
	for i, n := range sent {
		if n < b.last[i] {
			panic(fmt.Sprintf("measure: the counter of uplink %d fell from %d to %d", i, b.last[i], n))
		}
		b.delta[i] = n - b.last[i]
		b.last[i] = n
	}
	if v, ok := stats.Imbalance(b.delta); ok {
		b.values.Add(v)
	}
}

// Values returns the imbalance of all intervals in which something was sent.
func (b *Imbalance) Values() *Values { return b.values }

// Merge adds all intervals of another leaf or run.
func (b *Imbalance) Merge(o *Imbalance) {
	b.values.Merge(o.values)
}
