package sim

import (
	"fmt"
	"math"
	"sort"

	"github.com/loomfabric/loom/sim/engine"
	"github.com/loomfabric/loom/sim/network"
	"github.com/loomfabric/loom/sim/tcp"
	"github.com/loomfabric/loom/sim/topo"
)

// idleTCP knows how long a flow of TCP or MPTCP takes that is alone: by having one run alone
// over a chain of links like those of its best way. That is done for every size
// up to idleExact segments. Above, sizes lie on a grid 5 % apart; where more time
// passes between two of them than their bytes take, as a window has to open
// first, sizes between them are tried, until what is left to guess is
// idleGuess of the time.
type idleTCP struct {
	cfg      tcp.Config
	subflows int // of MPTCP; 0: it is TCP
	ways     map[string]*idleWay
	// class remembers the way of two hosts.
	class map[[2]network.HostID]*idleWay
}

// idleWay is one kind of way, and what is known of it.
type idleWay struct {
	out, back []topo.Hop
	slowest   uint64                 // rate of the slowest link, bit/s
	fct       map[uint64]engine.Time // by size
	alone     *idleLab               // nil: nothing was simulated yet
}

// idleLab is a chain of links with a host at either end, for one flow after the
// other.
type idleLab struct {
	engine   *engine.Engine
	stack    *tcp.Stack
	src, dst *network.Host
	ended    engine.Time
}

// FlowDone is the stack's to call.
func (l *idleLab) FlowDone(now engine.Time, _ network.FlowID) { l.ended = now }

const (
	idleExact = 20
	idleRatio = 1.05
	idleGuess = 1. / 200
)

func newIdleTCP(c tcp.Config, subflows int) *idleTCP {
	return &idleTCP{cfg: c, subflows: subflows, ways: map[string]*idleWay{}, class: map[[2]network.HostID]*idleWay{}}
}

// fct returns the completion time of a flow on a connection of its own.
func (i *idleTCP) fct(t *topo.Topology, src, dst network.HostID, bytes uint64) engine.Time {
	w := i.way(t, src, dst)
	segment := uint64(i.cfg.Segment())
	if bytes <= idleExact*segment {
		return i.alone(w, bytes)
	}
	a, b := gridAround(bytes, segment)
	ta, tb := i.alone(w, a), i.alone(w, b)
	for b-a > segment {
		line := float64(b-a) * 8 / float64(w.slowest) * float64(engine.Second)
		if float64(tb-ta)-line <= idleGuess*float64(ta) {
			return ta + engine.Time(float64(tb-ta)*float64(bytes-a)/float64(b-a))
		}
		if m := a + (b-a)/segment/2*segment; m <= bytes {
			a, ta = m, i.alone(w, m)
		} else {
			b, tb = m, i.alone(w, m)
		}
	}
	return i.alone(w, bytes) // the window opens within this very segment
}

// gridAround returns the sizes (up to a terabyte) of the grid between which bytes lies, each a
// whole number of segments.
func gridAround(bytes, segment uint64) (a, b uint64) {
	first := float64(idleExact)
	at := func(n int) uint64 { return uint64(math.Ceil(first*math.Pow(idleRatio, float64(n)))) * segment }
	n := sort.Search(500, func(n int) bool { return at(n) > bytes })
	return at(n - 1), at(n)
}

func (i *idleTCP) way(t *topo.Topology, src, dst network.HostID) *idleWay {
	key := [2]network.HostID{src, dst}
	if w := i.class[key]; w != nil {
		return w
	}
	full := i.cfg.Segment() + i.cfg.Header
	w := &idleWay{out: t.Way(src, dst, full), back: t.Way(dst, src, i.cfg.Header), fct: map[uint64]engine.Time{}}
	w.slowest = w.out[0].Rate
	for _, h := range w.out {
		w.slowest = min(w.slowest, h.Rate)
	}
	name := fmt.Sprint(w.out, w.back)
	if known := i.ways[name]; known != nil {
		w = known
	}
	i.ways[name], i.class[key] = w, w
	return w
}

// alone simulates a flow over a chain, or remembers it.
func (i *idleTCP) alone(w *idleWay, bytes uint64) engine.Time {
	if t, ok := w.fct[bytes]; ok {
		return t
	}
	if w.alone == nil {
		w.alone = newIdleLab(i.cfg, w)
	}
	// All that the flow before has left behind, timers too, is over by now.
	l := w.alone
	start := l.engine.Now()
	flow := network.Flow{Src: l.src, Dst: l.dst}
	if i.subflows == 0 {
		l.stack.Start(start, tcp.Flow{Flow: flow, Bytes: bytes})
	} else {
		subs := make([]network.Flow, i.subflows)
		for k := range subs {
			subs[k] = flow
			subs[k].ID = network.FlowID(k)
		}
		l.stack.StartMulti(start, subs, bytes)
	}
	l.engine.Run(engine.Never - 1)
	w.fct[bytes] = l.ended - start
	return l.ended - start
}

func newIdleLab(c tcp.Config, w *idleWay) *idleLab {
	l := &idleLab{engine: engine.New()}
	n := network.New(l.engine)
	l.stack = tcp.New(n, c, l)
	l.src, l.dst = chain(n, w)
	l.src.Quantum, l.dst.Quantum = uint64(c.Burst), uint64(c.Burst)
	return l
}

// relay stands between two links of a chain, and puts the overlay's header on
// and off.
type relay struct {
	net    *network.Network
	onward [2]*network.Port // by the Index of the port that a packet came in by
	add    [2]uint32        // overhead on the onward link
}

// Receive passes a packet on.
func (r *relay) Receive(now engine.Time, p *network.Packet, in *network.Port) {
	p.Size += r.add[in.Index] - uint32(p.Overhead)
	p.Overhead = uint16(r.add[in.Index])
	r.onward[in.Index].Send(now, p, p.Class)
}

// chain makes two hosts with the links of a way between them.
func chain(n *network.Network, w *idleWay) (src, dst *network.Host) {
	src, dst = n.NewHost(), n.NewHost()
	config := func(h topo.Hop) network.PortConfig { return network.PortConfig{Rate: h.Rate, Delay: h.Delay} }
	last := len(w.out) - 1
	near := n.NewPort("src", 0, src, config(w.out[0]), nil)
	var before *relay
	for i := range last {
		r := &relay{net: n}
		left := n.NewPort("left", 0, r, config(w.back[last-i]), nil)
		network.Connect(near, left)
		if before != nil {
			before.onward[0], before.add[0] = near, w.out[i].Overhead
		}
		near = n.NewPort("right", 1, r, config(w.out[i+1]), nil)
		r.onward[1], r.add[1] = left, w.back[last-i].Overhead
		before = r
	}
	end := n.NewPort("dst", 0, dst, config(w.back[0]), nil)
	network.Connect(near, end)
	if before != nil {
		before.onward[0], before.add[0] = near, w.out[last].Overhead
	}
	return src, dst
}
