package liveness

import (
	"math/bits"
	"time"
)

// LookEvery is the time between two calls of [Watch.Look].
const LookEvery = 25 * time.Millisecond

// A peer is silent when two of its rounds, and a half for those that are late, have
// brought nothing by any path: RFC 5880 §6.8.4 multiplies the other end's interval, too.
const (
	missedHalves = 5
	looksPerHalf = 2 * int(LookEvery/time.Millisecond) // ms of an interval to one look
)

// Watch finds out which peers have fallen silent. It belongs to the worker that sends
// HELLOs.
//
// It counts looks at which there was nothing new, not time. Time in which this leaf's own
// worker did not run is one look, whatever it took, since what came meanwhile is read before
// the next one. Tenants' packets with the fabric's fields are signs of life as well: a peer
// whose HELLOs are lost on busy links is not silent. They are no proof, and hold off
// silence only as long as the last proof counts ([overlay.CapableFor]).
type Watch struct {
	table   *Table
	traffic *Traffic
	peers   []watched
}

// watched is one peer.
type watched struct {
	boot   uint32
	newest uint64 // round and large round of its last HELLO
	came   uint32 // packets that had come when half of the time was over
	looks  uint16 // at which there was nothing new
}

// NewWatch returns a watch over a table. traffic is its worker's.
func NewWatch(t *Table, traffic *Traffic) *Watch {
	return &Watch{table: t, traffic: traffic, peers: make([]watched, len(t.peers))}
}

// Look takes one look at a peer. It reports true once, when the peer has fallen silent.
// A peer that has proved nothing, or that has said goodbye, is not watched.
func (w *Watch) Look(p uint16) bool {
	x, s := &w.peers[p], &w.table.peers[p]
	// One that restarts again and again may end in the same round each time.
	if boot, newest := s.boot.Load(), s.newest.Load(); boot != x.boot || newest != x.newest || newest == 0 {
		*x = watched{boot: boot, newest: newest}
		return false
	}
	limit := w.limit(p)
	switch half := limit / 2; {
	case x.looks >= limit: // it is silent, and that is known
	case x.looks < half:
		x.looks++
	default:
		came := w.came(p)
		if x.looks > half && x.came != came {
			x.looks = half
		}
		x.came = came
		x.looks++
		return x.looks >= limit
	}
	return false
}

// limit returns at how many looks without anything new a peer is silent.
func (w *Watch) limit(p uint16) uint16 {
	every := int(w.table.peers[p].every.Load())
	if every == 0 {
		every = int(maxInterval / time.Millisecond)
	}
	return uint16((missedHalves*every + looksPerHalf - 1) / looksPerHalf)
}

// came returns how many tenants' packets have come from a peer.
func (w *Watch) came(p uint16) (n uint32) {
	for m := uint16(w.table.peers[p].present.Load()); m != 0; m &= m - 1 {
		n += w.traffic.Came(p, uint8(bits.TrailingZeros16(m)))
	}
	return n
}
