package balance

import "math"

// Places keep numbers where they are while choices go and return. Every choice has a
// place, whether it is there or not, and Shares say which number belongs to which place.
// The numbers of a place whose choice has gone are spread over the choices that are left
// by rendezvous hashing (Thaler and Ravishankar, IEEE/ACM Transactions on Networking 6(1),
// 1998): a number ranks all places in an order of its own, and belongs to the first one
// of them that is not vacant. So a choice that goes moves its own numbers, and one that
// returns takes back its own. The zero value has no vacant place.
type Places struct {
	vacant  uint16           // places without a choice, as bits
	n       uint8            // places
	choice  [MaxPaths]uint8  // by place
	weights [MaxPaths]uint16 // by place; read if weighted
	// weighted says that the weights of the choices that are left differ.
	weighted bool
}

// Vacant reports whether a choice has gone.
func (p *Places) Vacant() bool { return p.vacant != 0 }

// PlacesTable is what [Places.Of] goes by, for those who do the same elsewhere.
type PlacesTable struct {
	Vacant   uint16          // places without a choice, as bits
	Choice   [MaxPaths]uint8 // by place
	Weighted bool            // the choices that are left have different weights
}

// Table returns what Of goes by. While all choices are there each has its own place.
func (p *Places) Table() PlacesTable {
	t := PlacesTable{Vacant: p.vacant, Choice: p.choice, Weighted: p.weighted}
	if !p.Vacant() {
		for i := range t.Choice {
			t.Choice[i] = uint8(i)
		}
	}
	return t
}

// Vacate returns the places of n choices after those have gone that are set in a mask;
// those that are left are numbered anew, in their order. p is how it was before: other
// choices may have gone earlier. weights are those of the n choices, or nil if all are
// alike; they are read if none had gone.
func (p *Places) Vacate(n int, gone uint16, weights []uint16) Places {
	next := *p
	if p.vacant == 0 { // every choice stands in its own place
		next = Places{n: uint8(n)}
		copy(next.weights[:], weights)
		for i := range n {
			next.choice[i] = uint8(i)
		}
	}
	next.weighted = false
	left, first := uint8(0), uint16(0)
	for place := range next.n {
		switch {
		case next.vacant>>place&1 != 0:
			continue
		case gone>>next.choice[place]&1 != 0:
			next.vacant |= 1 << place
			continue
		case left == 0:
			first = next.weights[place]
		}
		next.choice[place] = left
		left++
		next.weighted = next.weighted || next.weights[place] != first
	}
	return next
}

// Of returns the choice that a number belongs to, given the place that it belongs to. It
// is undefined if no choice is left.
func (p *Places) Of(number uint32, place uint8) uint8 {
	place &= MaxPaths - 1
	if p.vacant>>place&1 == 0 {
		return p.choice[place]
	}
	if p.weighted {
		return p.heaviest(number)
	}
	best, most := uint8(0), uint32(0)
	for i := range p.n {
		if p.vacant>>(i&15)&1 != 0 {
			continue
		}
		if rank := placeRank(number, i); rank >= most {
			best, most = p.choice[i&(MaxPaths-1)], rank
		}
	}
	return best
}

// heaviest is Of for a vacant place where weights differ. The place whose exponentially
// distributed time, at a rate of its weight, comes first is each place with its share.
// Where weights are alike that is the place of the highest rank.
func (p *Places) heaviest(number uint32) uint8 {
	best, least := uint8(0), math.Inf(1)
	for i := range p.n {
		if p.vacant>>(i&15)&1 != 0 {
			continue
		}
		at := -math.Log((float64(placeRank(number, i))+0.5)/(1<<32)) / float64(p.weights[i&(MaxPaths-1)])
		if at <= least {
			best, least = p.choice[i&(MaxPaths-1)], at
		}
	}
	return best
}

// placeRank returns how a number ranks a place.
func placeRank(number uint32, place uint8) uint32 {
	return Remix(uint64(number)<<32 | uint64(place) ^ placeKey)
}

// placeKey makes ranks independent of what else is made of numbers.
const placeKey = 0x706c6163

// Gone returns which of the choices that there were are not among those that are left, as
// bits. It reports false if those that are left are not some of them in their order: then
// they have places of their own. There are at most MaxPaths.
func Gone[K comparable](were, left []K) (gone uint16, ok bool) {
	for i, k := range were {
		if len(left) > 0 && left[0] == k {
			left = left[1:]
			continue
		}
		gone |= 1 << i
	}
	return gone, len(left) == 0
}
