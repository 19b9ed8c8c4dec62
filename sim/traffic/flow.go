// Package traffic says which flows happen: who sends how much to whom, and
// when. Flows come out of generators one by one, in order of their start, or
// out of a trace file. It moves no packets and measures nothing; a seed goes in
// and the same flows come out, whatever the network does with them.
package traffic

import (
	"math"
	"math/rand/v2"

	"github.com/loomfabric/loom/internal/workload"
	"github.com/loomfabric/loom/sim/engine"
	"github.com/loomfabric/loom/sim/network"
)

// Endless is the size of a flow that sends until its time is up.
const Endless uint64 = math.MaxUint64

// NoConn is the connection of a flow that opens its own.
const NoConn = -1

// Flow is one transfer from a source to a destination.
type Flow struct {
	ID       network.FlowID // in order of Start, from 0 on
	Start    engine.Time
	Src, Dst network.HostID
	Bytes    uint64      // of payload; [Endless] until Until
	Until    engine.Time // when the sender stops, done or not; engine.Never: when all is sent
	Conn     int         // the persistent connection that carries it, below [Source.Conns]; [NoConn]: a new one
	Tag      int         // which of the experiment's workloads it belongs to
	Rate     uint64      // of a UDP flow, bits of payload per second; 0: a transport decides
	Packet   uint32      // payload of a UDP flow's packets, bytes; 0 if Rate is 0
	Key      uint64      // random, one of each connection: ports and queue pairs come from it

	origin int // the source inside a Merge
	lane   int // of a Loop
}

// Source is a stream of flows, in order of Start.
type Source interface {
	// Next returns the next flow. ok is false when there is none: for good,
	// unless the source is [Closed].
	Next() (f Flow, ok bool)
	// Conns returns a number that is above Flow.Conn of every flow.
	Conns() int
}

// Closed is a source whose flows wait for earlier ones to end.
type Closed interface {
	Source
	// Done says that a flow of this source has ended. It reports whether Next
	// has a flow again, which starts at now or later. The flow is as it was
	// returned, except for its ID.
	Done(now engine.Time, f Flow) bool
}

// Replay is a source made of recorded flows.
type Replay struct {
	flows []Flow
	next  int
	conns int
}

// NewReplay returns a source of flows, which are in order of Start and are not
// copied.
func NewReplay(flows []Flow) *Replay {
	r := &Replay{flows: flows}
	for i := range flows {
		r.conns = max(r.conns, flows[i].Conn+1)
	}
	return r
}

// Next returns the next flow.
func (r *Replay) Next() (Flow, bool) {
	if r.next == len(r.flows) {
		return Flow{}, false
	}
	r.next++
	return r.flows[r.next-1], true
}

// Conns bounds the connections' numbers.
func (r *Replay) Conns() int { return r.conns }

// Stream names the randomness of a workload. The same Seed and Number give the
// same flows; workloads of one experiment differ in Number, their position in it, which
// is their flows' Tag. Arrivals, sizes,
// pairs and connections draw from generators of their own, so that
// a change of one leaves the others' sequences alone.
type Stream struct{ Seed, Number uint64 }

// What a stream's generators are for.
const (
	forArrivals = iota
	forSizes
	forPairs
	forConns
	forKeys
	purposes = 8
)

func (s Stream) rand(purpose uint64) *rand.Rand {
	return workload.NewRand(s.Seed, s.Number*purposes+purpose)
}

// flow returns the stream's n-th flow, over a connection of its own and until all is
// sent.
func (s Stream) flow(n uint64, start engine.Time, p Pair, bytes uint64) Flow {
	return Flow{
		ID: network.FlowID(n), Start: start, Src: p.Src, Dst: p.Dst, Bytes: bytes, Until: engine.Never,
		Conn: NoConn, Tag: int(s.Number), Key: s.key(keyOfFlow, n),
	}
}

// key returns the random number that belongs to the connection or flow n.
func (s Stream) key(kind, n uint64) uint64 {
	h := splitmix(s.Seed + forKeys)
	h = splitmix(h ^ s.Number)
	return splitmix(splitmix(h^kind) ^ n)
}

// splitmix is a bijection whose every output bit depends on all of the input
// (Steele, Lea and Flood, OOPSLA 2014: the finaliser of SplitMix64).
func splitmix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// What keys are for.
const (
	keyOfFlow = iota
	keyOfConn
	keyOfLane
)
