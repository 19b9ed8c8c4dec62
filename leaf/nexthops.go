package leaf

import (
	"math"

	"github.com/loomfabric/loom/balance"
)

// numSelectors is the number of selectors that a PathID can have.
const numSelectors = 16

// byHash stands for a selector that leaves the choice to the hash.
const byHash = 0xff

// NextHops says which of a route's next hops packets take at a spine without a scheme:
// of a packet with the fabric's fields the selector decides, of all others the hash.
// The hash has to differ from node to node, or the tiers of a fabric polarise.
type NextHops struct {
	n        uint8
	selector [numSelectors]uint8 // next hop of each selector, or byHash
	rest     balance.Shares      // of the flows whose selector is byHash
	shares   balance.Shares      // of packets without the fabric's fields
	places   balance.Places      // of next hops that were there before Without
}

// MakeNextHops returns the choice among n next hops, at most balance.MaxPaths, in
// proportion to their weights; nil: all are alike.
//
// Selector i below n is next hop i, so that schemes which choose selectors reach each of
// them, whatever it weighs. Each next hop gets as many selectors as whole sixteenths fit
// into its part. Flows with one of the selectors that are left go by their hash, so that
// all parts are exact: of three next hops each has five selectors, and a third of the
// flows with the sixteenth. A flow's selector and its hash always lead to the same next
// hop.
func MakeNextHops(n int, weights []uint16) NextHops {
	h := NextHops{n: uint8(n), shares: balance.MakeShares(n, weights)}
	// Each next hop lacks so much of its part, in units in which a selector is worth
	// total.
	var lacks [balance.MaxPaths]int
	total := 0
	for _, w := range weights {
		total += int(w)
	}
	for i := range n {
		lacks[i] = numSelectors
		if total > 0 {
			lacks[i] *= int(weights[i])
		}
	}
	if total == 0 { // all are alike
		total = n
	}
	for s := range min(numSelectors, n*numSelectors) {
		next := s
		if s >= n { // the one that lacks most of its part; the first of those that lack as much
			next = 0
			for i := 1; i < n; i++ {
				if lacks[i] > lacks[next] {
					next = i
				}
			}
			if lacks[next] < total {
				h.selector[s] = byHash
				continue
			}
		}
		h.selector[s] = uint8(next)
		lacks[next] -= total
	}
	var rest [balance.MaxPaths]uint16
	for i := range n {
		rest[i] = uint16(max(lacks[i], 0) * math.MaxUint16 / max(total, 1))
	}
	h.rest = balance.MakeShares(n, rest[:n])
	return h
}

// Without returns the choice among the next hops that are left when those have gone that
// are set in a mask, with the weights that MakeNextHops was given. Packets that took one
// that is left take it still, and the others are spread by their hashes over those that
// are left ([balance.Places]). Those that are left are numbered anew, in their order.
func (h NextHops) Without(gone uint16, weights []uint16) NextHops {
	if gone&(1<<h.n-1) != 0 {
		h.places = h.places.Vacate(int(h.n), gone, weights)
	}
	return h
}

// Of returns the next hop of a packet: its place in the route. It is undefined if there
// is none.
func (h *NextHops) Of(capable bool, selector uint8, hash uint32) uint8 {
	if h.places.Vacant() {
		return h.places.Of(hash, h.place(capable, selector, hash))
	}
	return h.place(capable, selector, hash)
}

// place returns the next hop of a packet while all are there.
func (h *NextHops) place(capable bool, selector uint8, hash uint32) uint8 {
	shares := &h.shares
	if capable {
		if next := h.selector[selector%numSelectors]; next != byHash {
			return next
		}
		shares = &h.rest
	}
	return shares.Of(hash, uint32(h.n))
}

// NextHopsTable is what [NextHops.Of] goes by, for those who do the same elsewhere.
type NextHopsTable struct {
	N        uint8               // places, those without a next hop included
	Selector [numSelectors]uint8 // place of each selector, or ByHash
	Rest     balance.Shares      // of the flows whose selector is ByHash
	Shares   balance.Shares      // of packets without the fabric's fields
	Places   balance.PlacesTable
}

// ByHash stands in a [NextHopsTable] for a selector that leaves the choice to the hash.
const ByHash = byHash

// Table returns what Of goes by.
func (h *NextHops) Table() NextHopsTable {
	return NextHopsTable{N: h.n, Selector: h.selector, Rest: h.rest, Shares: h.shares, Places: h.places.Table()}
}
