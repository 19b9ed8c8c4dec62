package balance

import (
	"fmt"
	"math/bits"
	"math/rand/v2"

	"github.com/loomfabric/loom/congestion"
	"github.com/loomfabric/loom/internal/mono"
)

// Explainer is a Policy that can say what it would do without doing it: for
// people who ask why a flow goes where it goes. It is not for the path of a
// packet, and may allocate.
type Explainer interface {
	Policy
	// Explain returns what Choose would do now with a packet, and why. No later
	// choice differs for its having been called.
	Explain(now mono.Time, v *View, p *Packet) Explanation
}

// Explanation is what a scheme has to say about a flow.
type Explanation struct {
	// Path is that of the flow's next packet, an index into the leaf's Paths;
	// -1: chance decides, or there is none.
	Path int
	// Fresh are the uplinks, a bit each, of which the flow would get one if it
	// started now; of several one at random.
	Fresh uint16
	// Combined is what the scheme compares uplinks by; -1: this scheme, or this
	// uplink, has nothing to be compared by.
	Combined [MaxPaths]int
	Reason   string // one clause
	// Selector is what the next tier of a leaf that reads the fabric's fields goes by; -1: the
	// scheme chooses it for each packet.
	Selector int
}

// selecting is a Policy that gives flows other selectors than the low bits of their
// hashes.
type selecting interface {
	// selectorOf returns the selector of the next packet; -1: it is chosen then.
	selectorOf(now mono.Time, p *Packet) int
}

// Explain explains a packet under any scheme. Those that are no [Explainer]
// decide anew for each packet, and involve chance.
func Explain(p Policy, now mono.Time, v *View, pkt *Packet) Explanation {
	e := explain(p, now, v, pkt)
	e.Selector = int(pkt.Hash & (maxSelectors - 1))
	if s, ok := p.(selecting); ok {
		e.Selector = s.selectorOf(now, pkt)
	}
	return e
}

func explain(p Policy, now mono.Time, v *View, pkt *Packet) Explanation {
	if v.Paths[pkt.Leaf].N == 0 {
		e := newExplanation(&v.Paths[pkt.Leaf])
		e.Reason = "no uplink leads to the leaf: its frames are dropped"
		return e
	}
	if e, ok := p.(Explainer); ok {
		return e.Explain(now, v, pkt)
	}
	e := newExplanation(&v.Paths[pkt.Leaf])
	e.Reason = "decided anew and in part at random for each packet"
	return e
}

func (c *flowcut) selectorOf(_ mono.Time, p *Packet) int { return int(selectorByHash(p.Hash, c.seed)) }

func (t *tcpPath) selectorOf(_ mono.Time, p *Packet) int { return int(selectorByHash(p.Hash, t.seed)) }

func (s *presto) selectorOf(_ mono.Time, p *Packet) int { return int(s.selector(p.Hash)) }

func (s *reed) selectorOf(_ mono.Time, p *Packet) int {
	if s.params.Selectors == 1 {
		return int(selectorByHash(p.Hash, s.seed))
	}
	return -1 // they take turns
}

// selectorOf returns that of the flow's path; with one selector all paths have it.
func (c *conweave) selectorOf(now mono.Time, p *Packet) int {
	if c.width == 1 {
		return int(c.selector(p.Hash))
	}
	for e := range c.ConnectionsOf(now, p.Hash) {
		if e.Leaf == p.Leaf && e.State != ConnectionBegins {
			return int(e.Path.Selector())
		}
	}
	return -1
}

// newExplanation says that any path may be taken, for no reason.
func newExplanation(paths *Paths) Explanation {
	e := Explanation{Path: -1}
	for i := range e.Combined {
		e.Combined[i] = -1
	}
	for _, u := range paths.Uplink[:paths.N] {
		e.Fresh |= 1 << u
	}
	return e
}

// take says that the packet takes a path, also if its flow started now.
func (e *Explanation) take(paths *Paths, path uint8, reason string) {
	e.Path, e.Fresh, e.Reason = int(path), 1<<paths.Uplink[path], reason
}

// hashed reports whether a packet goes by its flow's hash, and why, under a scheme that
// keeps flows in a table and needs the far leaf. room says that the table has room.
func (e *Explanation) hashed(now mono.Time, v *View, p *Packet, seed uint64, room bool) bool {
	paths := &v.Paths[p.Leaf]
	switch path := paths.byHash(p.Hash, seed); {
	case v.Capable != nil && !v.Capable.Capable(p.Leaf, now):
		e.take(paths, path, "the leaf does not read the fabric's fields, so the flow's hash decides")
	case !room:
		e.take(paths, path, "the table of flows has no room, so the flow's hash decides")
	default:
		return false
	}
	return true
}

// chosen says what a copy of a policy chooses that decides by the packet alone.
func chosen(c Policy, now mono.Time, v *View, p *Packet, reason string) Explanation {
	pkts := []Packet{*p}
	c.Choose(now, v, pkts)
	x := newExplanation(&v.Paths[p.Leaf])
	x.take(&v.Paths[p.Leaf], pkts[0].Path, reason)
	return x
}

// Explain makes the choice on a copy.
func (e *ecmp) Explain(now mono.Time, v *View, p *Packet) Explanation {
	c := *e
	return chosen(&c, now, v, p, "the hash of the flow falls into this path's part of the range")
}

// Explain makes the choice on a copy.
func (s *static) Explain(now mono.Time, v *View, p *Packet) Explanation {
	c := *s
	return chosen(&c, now, v, p, "the hash of the flow falls into this path's share of the configured weights")
}

// compare fills in what a decision compares uplinks by.
func (e *Explanation) compare(d congestion.Decision, paths *Paths, local, remote *[MaxPaths]uint8) {
	for _, u := range paths.Uplink[:paths.N] {
		e.Combined[u] = int(max(local[u], remote[u]))
		if d.Metric == congestion.SumMetric {
			e.Combined[u] = int(local[u]) + int(remote[u])
		}
	}
}

// equallyGood returns the least congested uplinks, a bit each: those that Pick keeps
// when each is in turn said to be the flow's last one. rng is a copy of the policy's.
func equallyGood(d congestion.Decision, uplinks []uint8, local, remote *[MaxPaths]uint8, rng rand.PCG) (best uint16) {
	for _, u := range uplinks {
		if d.Pick(uplinks, local, remote, u, &rng) == u {
			best |= 1 << u
		}
	}
	return best
}

// follows reports whether the flow's flowlet is under way on an uplink that
// leads to the leaf, and if so says it in x. last is the flow's last uplink, or
// congestion.NoUplink.
func (f *flowlets) follows(now mono.Time, paths *Paths, p *Packet, x *Explanation) (last uint8, yes bool) {
	last, active := f.table.Lookup(p.Hash, now)
	if path := paths.Index[last%MaxPaths]; active && path >= 0 {
		x.Path, x.Reason = int(path), "its flowlet is under way there"
		return last, true
	}
	switch {
	case active:
		x.Reason = "the uplink of its flowlet no longer leads to the leaf, so a new flowlet starts"
	case last == congestion.NoUplink:
		x.Reason = "it has had no flowlet yet"
	default:
		x.Reason = "its last flowlet has ended"
	}
	return last, false
}

// Explain follows the flowlet or leaves it to chance.
func (l *letFlow) Explain(now mono.Time, v *View, p *Packet) Explanation {
	paths := &v.Paths[p.Leaf]
	x := newExplanation(paths)
	if _, yes := l.follows(now, paths, p, &x); yes {
		return x
	}
	if paths.N == 1 {
		x.Path = 0
	}
	x.Reason += ", and LetFlow draws an uplink for each at random"
	return x
}

// Explain follows the flowlet or decides as Choose does.
func (c *conga) Explain(now mono.Time, v *View, p *Packet) Explanation {
	paths := &v.Paths[p.Leaf]
	x := newExplanation(paths)
	v.look(now)
	var remote [MaxPaths]uint8
	if c.global {
		v.remote(p.Leaf, now, &remote)
	}
	x.compare(c.decision, paths, v.Local, &remote)
	x.Fresh = equallyGood(c.decision, paths.Uplink[:paths.N], v.Local, &remote, *c.rng)
	last, yes := c.follows(now, paths, p, &x)
	x.least(paths, last, yes)
	return x
}

// least says what the least congested uplinks, which are in Fresh, mean for a flow that
// took an uplink last, or congestion.NoUplink. stays says that it does not move.
func (e *Explanation) least(paths *Paths, last uint8, stays bool) {
	kept := last < MaxPaths && e.Fresh&(1<<last) != 0
	if kept { // among equally good ones the flow's last one goes first (CONGA §3.5)
		e.Fresh = 1 << last
	}
	switch {
	case stays:
	case kept:
		e.Path = int(paths.Index[last])
		e.Reason += ", and no uplink is less congested than the one it took"
	case e.Fresh&(e.Fresh-1) != 0:
		e.Reason += ", and of the least congested uplinks one is drawn at random"
	default:
		e.Path = int(paths.Index[bits.TrailingZeros16(e.Fresh)])
		e.Reason += ", and this uplink is the least congested"
	}
}

// Explain makes the choice on a copy of the flow.
func (s *presto) Explain(now mono.Time, v *View, p *Packet) Explanation {
	paths := &v.Paths[p.Leaf]
	x := newExplanation(paths)
	e := s.flows.Find(p.Hash, p.Leaf)
	switch {
	case x.hashed(now, v, p, s.seed, e != nil || s.flows.Room(now, p.Hash)):
		return x
	case e == nil || !s.underWay(now, p.Leaf, e):
		x.Reason = "nothing of it is under way, and its first flowcell's path is drawn at random"
		if paths.N == 1 {
			x.Path = 0
		}
		return x
	}
	twin, flow := *s, e.V
	twin.place(paths, p.Hash, &flow)
	x.Path = int(paths.Index[flow.uplink])
	switch {
	case flow.cell == e.V.cell:
		x.Reason = "its flowcell is under way there"
	case flow.state&prestoAlone != 0:
		x.Reason = "the path of its flowcell is gone: another flowcell begins"
	default:
		x.Reason = "its flowcell is full, and it is the next path's turn"
	}
	return x
}

// Explain makes the step on a copy of the flow.
func (b *plb) Explain(now mono.Time, v *View, p *Packet) Explanation {
	paths := &v.Paths[p.Leaf]
	x := newExplanation(paths)
	v.look(now)
	twin := *b
	for _, u := range paths.Uplink[:paths.N] {
		x.Combined[u] = int(twin.metric(now, v, p.Leaf, u))
	}
	// A draw from paths that share an uplink ends on the first of them.
	hashed := uint8(paths.Index[paths.Uplink[b.hashed(paths, p.Hash)]])
	e := b.flows.Find(p.Hash, p.Leaf)
	if e == nil {
		x.take(paths, hashed, "it is new, so its hash decides")
		if !b.flows.Room(now, p.Hash) {
			x.Reason = "the table of flows has no room, so its hash decides"
		}
		return x
	}
	flow := *e
	switch twin.step(now, v, &flow, now.Apart(flow.V.began, b.round)) {
	case plbStays:
		x.take(paths, uint8(paths.Index[flow.V.uplink]), fmt.Sprintf("it stays there: its path was congested for %d rounds in a row", flow.V.rounds))
		x.Fresh = 1 << paths.Uplink[hashed]
		return x
	case plbIdle:
		x.Reason = fmt.Sprintf("its path was congested for %d rounds and it has paused, so it takes a path at random", flow.V.rounds)
	case plbForced:
		x.Reason = fmt.Sprintf("its path was congested for %d rounds without a pause, so it takes a path at random", flow.V.rounds)
	case plbLost:
		x.Reason = "its path is gone, so it takes one at random"
	}
	if paths.N == 1 {
		x.Path = 0
	}
	return x
}

// Explain says whether the flow may move, and decides as Choose does.
func (c *flowcut) Explain(now mono.Time, v *View, p *Packet) Explanation {
	paths := &v.Paths[p.Leaf]
	x := newExplanation(paths)
	hashed := uint8(paths.Index[paths.Uplink[c.share(paths, p.Hash)]])
	e := c.flows.Find(p.Hash, p.Leaf)
	why := c.cut(now, paths, e)
	if v.Capable != nil && !v.Capable.Capable(p.Leaf, now) {
		x.take(paths, hashed, "the leaf does not read the fabric's fields, so the flow's hash decides")
		if why == flowcutStays || why == flowcutCut {
			x.Path, x.Reason = int(paths.Index[e.V.uplink]), "the leaf does not read the fabric's fields, so the flow stays there until it pauses"
		}
		return x
	}
	switch {
	case e == nil && !c.flows.Room(now, p.Hash):
		x.take(paths, hashed, "the table of flows has no room, so the flow's hash decides")
		return x
	case e == nil && c.hashed && !now.Apart(c.unmarked, c.gap):
		x.take(paths, hashed, "it is new, and packets of it may be in flight on its hash's path")
		return x
	}
	v.look(now)
	var remote [MaxPaths]uint8
	v.remote(p.Leaf, now, &remote)
	x.compare(c.decision, paths, v.Local, &remote)
	x.Fresh = equallyGood(c.decision, paths.Uplink[:paths.N], v.Local, &remote, *c.rng)
	last := uint8(congestion.NoUplink)
	if e != nil {
		last = e.V.uplink
	}
	switch why {
	case flowcutStays:
		x.Path, x.Reason = int(paths.Index[last]), "packets of it are in flight there"
	case flowcutNew:
		x.Reason = "it is new"
	case flowcutLost:
		x.Reason = "its path is gone"
	case flowcutPaused:
		x.Reason = "it has paused for longer than flow_gap"
	case flowcutCut:
		x.Reason = "its last packet has arrived"
	}
	x.least(paths, last, why == flowcutStays)
	return x
}

// Explain follows the flowlet or decides as Choose does.
func (h *hula) Explain(now mono.Time, v *View, p *Packet) Explanation {
	paths := &v.Paths[p.Leaf]
	x := newExplanation(paths)
	last, yes := h.follows(now, paths, p, &x)
	if yes && !h.isSilent(p.Leaf, last) {
		return x
	}
	if yes {
		x.Reason = "answers to probes of its flowlet's path are missing"
	}
	why := x.Reason
	best, ok := h.best(now, paths, p.Leaf)
	if !ok {
		x.take(paths, h.share(paths, p.Hash), why+", and no path to the leaf has answered probes of late, so its hash decides")
		return x
	}
	x.take(paths, uint8(paths.Index[best]), why+", and of the paths that answer probes this one was the least used")
	x.Combined[best] = int(h.leaves[p.Leaf].util)
	return x
}
