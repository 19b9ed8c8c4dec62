package topo

import (
	"math"
	"slices"

	"github.com/loomfabric/loom/sim/engine"
	"github.com/loomfabric/loom/sim/network"
)

// Hop is a link of a way, in the direction of the way.
type Hop struct {
	Rate     uint64 // bits per second
	Delay    engine.Time
	Overhead uint32 // what the overlay adds to packets there, bytes
}

func (h *Hop) time(bytes uint32) engine.Time { return network.TxTime(bytes+h.Overhead, h.Rate) }

func hopOf(p *network.Port, overhead uint32) Hop { return Hop{p.Rate, p.Delay, overhead} }

// between returns the ways from a switch to a leaf as an idle network has them at time 0.
// Those whose links have the same rates and delays are one.
func (t *Topology) between(from, to int) [][]Hop {
	key := [2]int{from, to}
	ways, ok := t.ways[key]
	if !ok {
		ways = t.waysFrom(from, to)
		t.ways[key] = ways
	}
	return ways
}

func (t *Topology) waysFrom(s, to int) [][]Hop {
	if s == to {
		return [][]Hop{{}}
	}
	var out [][]Hop
	for _, l := range t.start[to][s] {
		hop := hopOf(t.Links[l].end(s), t.overhead)
		for _, rest := range t.between(t.Links[l].other(s), to) {
			if !slices.ContainsFunc(out, func(known []Hop) bool { return known[0] == hop && slices.Equal(known[1:], rest) }) {
				out = append(out, append([]Hop{hop}, rest...))
			}
		}
	}
	return out
}

// Way returns the links by which a packet gets from src to dst fastest in an idle
// network. bytes is its size on the hosts' wires. The first link's sender is src,
// the last one's receiver is dst.
func (t *Topology) Way(src, dst network.HostID, bytes uint32) []Hop {
	best, _ := t.best(src, dst, 1, bytes, bytes)
	return best
}

// IdleOneWay returns the time from a packet's first bit at src to its last one
// at dst in an idle network, of the best way at time 0: bytes on the hosts'
// wires, store and forward at every switch. It is exact, but for packets with
// the shim, which is not counted.
func (t *Topology) IdleOneWay(src, dst network.HostID, bytes uint32) engine.Time {
	return t.IdleFCT(src, dst, 1, bytes, bytes)
}

// IdleFCT returns how long a number of packets takes in an idle network, by the
// best way at time 0, if src sends them one right after the other: from the first
// bit of the first one at src to the last bit of the last one at dst. The last
// packet has last bytes on the hosts' wires, and the others have size, which is
// no less.
func (t *Topology) IdleFCT(src, dst network.HostID, packets uint64, size, last uint32) engine.Time {
	_, took := t.best(src, dst, packets, size, last)
	return took
}

// best returns the way by which IdleFCT is least, and how long it takes.
func (t *Topology) best(src, dst network.HostID, packets uint64, size, last uint32) (best []Hop, least engine.Time) {
	least = math.MaxInt64
	for _, way := range t.between(int(t.LeafOf[src]), int(t.LeafOf[dst])) {
		hops := append([]Hop{hopOf(t.Hosts[src].Port, 0)}, way...)
		hops = append(hops, hopOf(t.Hosts[dst].Port.Peer, 0))
		if took := train(hops, packets, size, last); took < least {
			best, least = hops, took
		}
	}
	return best, least
}

// train is IdleFCT for one way. Packets of one size leave a link as fast as the
// slowest link so far lets them: the k-th has left it (k-1) times that link's
// packet time after the first one. The last packet, if smaller, follows link by
// link: it can start when it is there and the one before it has left.
func train(hops []Hop, packets uint64, size, last uint32) engine.Time {
	var first, slowest, at engine.Time // of the first packet; of all so far; when the last one is there
	for i := range hops {
		h := &hops[i]
		tx := h.time(size)
		slowest = max(slowest, tx)
		if packets > 1 {
			left := first + tx + engine.Time(packets-2)*slowest // the one before the last
			at = max(at, left)
		}
		at += h.time(last) + h.Delay
		first += tx + h.Delay
	}
	return at
}
