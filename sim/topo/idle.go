package topo

import (
	"math"
	"slices"

	"github.com/loomfabric/loom/sim/engine"
	"github.com/loomfabric/loom/sim/network"
)

// profile is a way between two leaves as an idle network has it: the switches'
// ports that a packet is sent by. Ways whose ports have the same rates and delays
// are one.
type profile []*network.Port

func (a profile) same(b profile) bool {
	return slices.EqualFunc(a, b, func(p, q *network.Port) bool { return p.Rate == q.Rate && p.Delay == q.Delay })
}

// ways returns the profiles between two leaves at time 0.
func (t *Topology) ways(from, to int) []profile {
	key := [2]int{from, to}
	ways, ok := t.profiles[key]
	if !ok {
		ways = t.waysFrom(from, to)
		t.profiles[key] = ways
	}
	return ways
}

func (t *Topology) waysFrom(s, to int) []profile {
	if s == to {
		return []profile{{}}
	}
	var out []profile
	for _, l := range t.start.next[to][s] {
		for _, rest := range t.waysFrom(t.plan.links[l].other(s), to) {
			way := append(profile{t.end(l, s)}, rest...)
			if !slices.ContainsFunc(out, way.same) {
				out = append(out, way)
			}
		}
	}
	return out
}

// hop is one link of a host's way to another, and what the overlay adds there.
type hop struct {
	port     *network.Port
	overhead uint32
}

// hops returns the links from src to dst by one of the ways between their
// leaves.
func (t *Topology) hops(src, dst network.HostID, way profile) []hop {
	out := []hop{{t.Hosts[src].Port, 0}}
	for _, p := range way {
		out = append(out, hop{p, t.overhead})
	}
	return append(out, hop{t.Hosts[dst].Port.Peer, 0})
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
	best := engine.Time(math.MaxInt64)
	for _, way := range t.ways(int(t.LeafOf[src]), int(t.LeafOf[dst])) {
		best = min(best, train(t.hops(src, dst, way), packets, size, last))
	}
	return best
}

// train is IdleFCT for one way. Packets of one size leave a link as fast as the
// slowest link so far lets them: the k-th has left it (k-1) times that link's
// packet time after the first one. The last packet, if smaller, follows link by
// link: it can start when it is there and the one before it has left.
func train(hops []hop, packets uint64, size, last uint32) engine.Time {
	var first, slowest, at engine.Time // of the first packet; of all so far; when the last one is there
	for i := range hops {
		h := &hops[i]
		tx := h.port.TxTime(size + h.overhead)
		slowest = max(slowest, tx)
		if packets > 1 {
			left := first + tx + engine.Time(packets-2)*slowest // the one before the last
			at = max(at, left)
		}
		at += h.port.TxTime(last+h.overhead) + h.port.Delay
		first += tx + h.port.Delay
	}
	return at
}
