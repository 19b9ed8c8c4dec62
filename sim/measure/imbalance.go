package measure

import "fmt"

// Imbalance is how unevenly a leaf's uplinks are used, from interval to
// interval: "the maximum throughput (among the 4 uplinks) minus the minimum
// divided by the average: (MAX − MIN)/AVG", from "synchronous samples" (CONGA
// §5.2.3, every 10 ms; ConWeave §4.1.2, every 100 µs).
type Imbalance struct {
	last    []uint64
	started bool
	values  *Values
	idle    uint64
}

// NewImbalance returns a record for so many uplinks, with exact quantiles up to
// exact intervals.
func NewImbalance(links, exact int) *Imbalance {
	return &Imbalance{last: make([]uint64, links), values: NewValues(exact)}
}

// Sample takes the uplinks' counters of bytes sent, which only grow; the first
// call begins. Intervals in which nothing was sent have no imbalance: they are
// counted apart.
func (b *Imbalance) Sample(sent []uint64) {
	if len(sent) != len(b.last) {
		panic(fmt.Sprintf("measure: %d counters for %d uplinks", len(sent), len(b.last)))
	}
	if !b.started {
		b.started = true
		copy(b.last, sent)
		return
	}
	var least, most, sum uint64
	for i, v := range sent {
		if v < b.last[i] {
			panic(fmt.Sprintf("measure: the counter of uplink %d fell from %d to %d", i, b.last[i], v))
		}
		d := v - b.last[i]
		b.last[i] = v
		sum += d
		if i == 0 {
			least = d
		}
		least, most = min(least, d), max(most, d)
	}
	if sum == 0 {
		b.idle++
		return
	}
	b.values.Add(float64(most-least) * float64(len(sent)) / float64(sum))
}

// Values returns the imbalance of all intervals in which something was sent: 0
// is perfect, the number of uplinks is the worst.
func (b *Imbalance) Values() *Values { return b.values }

// Idle returns the number of intervals without traffic.
func (b *Imbalance) Idle() uint64 { return b.idle }

// Merge adds all intervals of another leaf or run.
func (b *Imbalance) Merge(o *Imbalance) {
	b.values.Merge(o.values)
	b.idle += o.idle
}

// ImbalanceSummary is an Imbalance in numbers: shares of the mean throughput.
type ImbalanceSummary struct {
	Intervals uint64 `json:"intervals"` // with traffic
	Idle      uint64 `json:"idle_intervals"`
	Mean      Number `json:"imbalance_mean"`
	P50       Number `json:"imbalance_p50"`
	P90       Number `json:"imbalance_p90"`
	P99       Number `json:"imbalance_p99"`
	Max       Number `json:"imbalance_max"`
}

// Summary returns the numbers.
func (b *Imbalance) Summary() ImbalanceSummary {
	v := b.values
	return ImbalanceSummary{v.Count(), b.idle, Number(v.Mean()), Number(v.Quantile(0.5)), Number(v.Quantile(0.9)), Number(v.Quantile(0.99)), Number(v.Max())}
}
