package topo

import (
	"math"

	"github.com/loomfabric/loom/sim/engine"
	"github.com/loomfabric/loom/sim/network"
)

// Hop is a link of a way, in the direction of the way.
type Hop struct {
	Rate     uint64 // bits per second
	Delay    engine.Time
	Overhead uint32 // what the overlay adds to packets there, bytes
}

// Way returns the links by which a packet gets from src to dst fastest in an idle
// network. bytes is its size on the hosts' wires. The first link's sender is src,
// the last one's receiver is dst.
func (t *Topology) Way(src, dst network.HostID, bytes uint32) []Hop {
	best, least := []hop(nil), engine.Time(math.MaxInt64)
	for _, way := range t.ways(int(t.LeafOf[src]), int(t.LeafOf[dst])) {
		hops := t.hops(src, dst, way)
		if d := train(hops, 1, bytes, bytes); d < least {
			best, least = hops, d
		}
	}
	out := make([]Hop, len(best))
	for i, h := range best {
		out[i] = Hop{h.port.Rate, h.port.Delay, h.overhead}
	}
	return out
}
