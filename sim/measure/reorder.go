package measure

import "math"

// Order is what a receiver remembers of a flow: the number after the highest
// that has arrived. The zero value is that of a flow of which nothing has.
type Order uint64

// Reordering counts packets that arrive behind later ones (RFC 4737 §3.3: one
// whose number is smaller than the next expected).
type Reordering struct {
	packets  uint64
	late     uint64
	retrans  uint64
	distance uint64 // sum, packets
	max      uint64
}

// Arrive records a packet of a flow by its number in the order in which packets
// were first sent. A packet that was sent again is counted apart: what it waited
// for was a loss, not the path.
func (r *Reordering) Arrive(flow *Order, number uint64, retrans bool) {
	if retrans {
		r.retrans++
	} else {
		r.packets++
		if next := uint64(*flow); number < next {
			d := next - number
			r.late++
			r.distance += d
			r.max = max(r.max, d)
		}
	}
	*flow = max(*flow, Order(number+1))
}

// Merge adds what o has counted.
func (r *Reordering) Merge(o *Reordering) {
	r.packets += o.packets
	r.late += o.late
	r.retrans += o.retrans
	r.distance += o.distance
	r.max = max(r.max, o.max)
}

// ReorderingSummary is a Reordering in numbers. A packet's distance is how many
// packets it lies behind the highest number seen.
type ReorderingSummary struct {
	Packets  uint64 `json:"packets"` // sent for the first time
	Late     uint64 `json:"out_of_order_packets"`
	Share    Number `json:"out_of_order_share"`
	Mean     Number `json:"distance_mean_packets"` // of those out of order
	Max      uint64 `json:"distance_max_packets"`
	Retrans  uint64 `json:"retransmitted_packets"`
	RetShare Number `json:"retransmitted_share"` // of all that arrived
}

// Summary returns the numbers.
func (r *Reordering) Summary() ReorderingSummary {
	return ReorderingSummary{
		Packets: r.packets, Late: r.late, Share: ratio(float64(r.late), float64(r.packets)),
		Mean: ratio(float64(r.distance), float64(r.late)), Max: r.max,
		Retrans: r.retrans, RetShare: ratio(float64(r.retrans), float64(r.retrans+r.packets)),
	}
}

// ratio is a/b, and nothing over nothing.
func ratio(a, b float64) Number {
	if b == 0 {
		return Number(math.NaN())
	}
	return Number(a / b)
}
