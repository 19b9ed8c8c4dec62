package traffic

import (
	"errors"
	"math/rand/v2"
	"slices"

	"github.com/loomfabric/loom/sim/engine"
	"github.com/loomfabric/loom/sim/network"
)

// Loop is a closed loop: so many flows of each pair, or of each sender, are under way at a
// time, and when one ends the next one begins at once. Sizes come from a generator of each
// pair's own, so that a pair has the same ones whatever the network does with them.
type Loop struct {
	Stream
	Pairs   []Pair     // who sends to whom; none: Random says so
	Random  *Selection // each flow of a sender goes to another receiver at random
	Sizes   Sizes
	Each    int         // flows under way
	Start   engine.Time // of the first pair's flows
	Stagger engine.Time // from the start of a pair's first flows to that of the next pair's
	Until   engine.Time // no flow starts at or after it

	lanes []lane
	ready []Flow // in order of Start
	made  uint64
}

// lane is one of the flows that are under way, and those that come after it.
type lane struct {
	pair  Pair
	sizes *rand.Rand
}

// NewLoop returns the source of a loop's flows. It reports a loop without pairs.
func NewLoop(l Loop) (*Loop, error) {
	pairs := l.Pairs
	if l.Random != nil {
		if err := l.Random.Validate(); err != nil {
			return nil, err
		}
		for _, src := range l.Random.From {
			pairs = append(pairs, Pair{Src: src})
		}
	}
	if len(pairs) == 0 || l.Each < 1 {
		return nil, errors.New("the list of pairs is empty")
	}
	for i, p := range pairs {
		for j := range l.Each {
			n := uint64(i*l.Each + j)
			l.lanes = append(l.lanes, lane{p, rand.New(rand.NewPCG(l.key(keyOfLane, n), forSizes))})
			if at := l.Start + engine.Time(i)*l.Stagger; at < l.Until {
				l.ready = append(l.ready, l.begin(int(n), at))
			}
		}
	}
	return &l, nil
}

// begin makes the next flow of a lane.
func (l *Loop) begin(n int, at engine.Time) Flow {
	a := &l.lanes[n]
	if l.Random != nil {
		one := Selection{From: []network.HostID{a.pair.Src}, To: l.Random.To, Rack: l.Random.Rack, VNI: l.Random.VNI, Any: l.Random.Any}
		a.pair = one.pick(a.sizes)
	}
	f := l.flow(l.made, at, a.pair, l.Sizes.Sample(a.sizes))
	f.lane = n
	l.made++
	return f
}

// Conns returns 0: each flow opens a connection of its own.
func (l *Loop) Conns() int { return 0 }

// Next returns the next flow that may start.
func (l *Loop) Next() (Flow, bool) {
	if len(l.ready) == 0 {
		return Flow{}, false
	}
	f := l.ready[0]
	l.ready = l.ready[1:]
	return f, true
}

// unread takes back a flow that Next has returned.
func (l *Loop) unread(f Flow) { l.insert(f) }

// insert puts a flow among those that are ready, behind those of the same time.
func (l *Loop) insert(f Flow) {
	i, _ := slices.BinarySearchFunc(l.ready, f.Start, func(x Flow, at engine.Time) int {
		if x.Start <= at {
			return -1
		}
		return 1
	})
	l.ready = slices.Insert(l.ready, i, f)
}

// Done says that a flow has ended. The next one of its lane starts now.
func (l *Loop) Done(now engine.Time, f Flow) bool {
	if now >= l.Until {
		return false
	}
	next := l.begin(f.lane, now)
	l.insert(next)
	return true
}
