package leaf

import "github.com/loomfabric/loom/balance"

// numSelectors is the number of selectors that a PathID can have.
const numSelectors = 16

// NextHops says which of a route's next hops packets take at a spine without a scheme:
// of a packet with the fabric's fields the selector decides, of all others the hash.
// The hash has to differ from node to node, or the tiers of a fabric polarise.
type NextHops struct {
	n        uint8
	selector [numSelectors]uint8 // next hop of each selector
	shares   balance.Shares
}

// MakeNextHops returns the choice among n next hops, at most balance.MaxPaths, in
// proportion to their weights; nil: all are alike.
//
// Selector i below n is next hop i, so that schemes which choose selectors reach each of
// them, whatever it weighs. The other selectors make up for the weights, as far as
// sixteenths can; where all are alike, selector i is next hop i modulo n.
func MakeNextHops(n int, weights []uint16) NextHops {
	h := NextHops{n: uint8(n), shares: balance.MakeShares(n, weights)}
	var given, weight [balance.MaxPaths]int
	total := 0
	for i := range n {
		weight[i] = 1
		if weights != nil {
			weight[i] = int(weights[i])
		}
		total += weight[i]
	}
	for s := range min(numSelectors, n*numSelectors) {
		next := s
		if s >= n { // the one that lacks most of its part; the first of those that lack as much
			next = 0
			for i := 1; i < n; i++ {
				if weight[i]*numSelectors-given[i]*total > weight[next]*numSelectors-given[next]*total {
					next = i
				}
			}
		}
		h.selector[s] = uint8(next)
		given[next]++
	}
	return h
}

// Of returns the next hop of a packet: its place in the route. It is undefined if there
// is none.
func (h *NextHops) Of(capable bool, selector uint8, hash uint32) uint8 {
	if capable {
		return h.selector[selector%numSelectors]
	}
	return h.shares.Of(hash, uint32(h.n))
}
