package balance

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/loomfabric/loom/internal/flowtable"
	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/overlay"
	"github.com/loomfabric/loom/reorder"
)

// conn is an entry of the connection table, the state of ConWeave §3.4.1: 32 bytes
// without pointers. Its Time is when the next packet is not like the last one: at
// once, or never, while none is expected to be.
type conn flowtable.Entry[connFields]

type connFields struct {
	path  overlay.PathID // of packets sent now
	state connState
	marks Marks // of packets until Time; Arg: of the request, or of the TAIL
}

// connState is where a flow is in its epoch, with flags.
type connState uint8

const (
	connBegin    connState = iota + 1 // the next packet begins an epoch
	connAsked                         // the request is under way; due when the reply is late, or a reroute is tried again
	connRerouted                      // the TAIL is under way: until CLEAR nothing may change
	connMoved                         // its path went away: until it is due, after θ_inactive, nothing may change
	connStates   = 7                  // the states' bits

	connAnswered = 1 << 3 // asked: the reply came late
	connAborted  = 1 << 4 // asked: no path was found after the cut-off
	connRefused  = 1 << 5 // the leaf asked not to be sent rerouted packets
	connSilent   = 1 << 6 // the epoch before brought no answer
)

const (
	atOnce = mono.Time(math.MinInt64)
	never  = mono.Time(math.MaxInt64)
)

// entry returns e as what the table knows.
func (e *conn) entry() *flowtable.Entry[connFields] { return (*flowtable.Entry[connFields])(e) }

// is reports whether the flow is in a state.
func (e *conn) is(s connState) bool { return e.V.state&connStates == s }

// begin makes the next packet begin an epoch.
func (e *conn) begin() { e.V.state, e.Time = e.V.state&connRefused|connBegin, atOnce }

// reroute sets the state of a flow after its TAIL. The path that the TAIL takes
// stands in due, which is never anyway.
func (e *conn) reroute(to overlay.PathID, tail overlay.Tstamp) {
	e.Time = never - mono.Time(e.V.path)
	e.V.state, e.V.path = e.V.state&connRefused|connRerouted, to
	e.V.marks.Rerouted, e.V.marks.Arg, e.V.marks.Selector = true, tail, to.Selector()
}

// old returns the path that the TAIL took; meant if rerouted.
func (e *conn) old() overlay.PathID { return overlay.PathID(never - e.Time) }

// conweave is the source side of ConWeave (§3.2). Where the paper leaves room:
//
// A new flow takes the first of Samples random paths that is not busy, and if all
// are, any. One that has been inactive stays where it is, unless its path is busy or
// nothing was heard of it for two epochs, or paths are chosen by their waits; and
// it stays then, too, if all that are looked at are busy. Nothing of it should be under
// way, but if θ_inactive was too short for a queue, or for a host that was not
// scheduled, staying reorders nothing.
//
// No path for a reroute (§3.2.2: "rerouting is aborted"): the epoch goes on, and
// after each further θ_reply it is tried again, until there is a path or the
// reply comes after all, which begins the next epoch. So the epoch does not
// advance faster than round trips, and two bits of it do.
//
// A path that disappears is left at once, in a new epoch. There is no TAIL, for
// what it could travel on is gone. Since nobody will say when the last packet of
// that path has arrived, the flow then stays where it is for θ_inactive. If what
// disappears is the NEW path while the OLD one is still in use, the flow returns
// to the OLD one, as a third path would be one too many.
type conweave struct {
	params   ConWeaveSource
	width    int // selectors
	informed bool
	seed     uint64
	rng      *rand.PCG

	conns flowtable.Table[connFields]

	leaves []leafState
	busy   []mono.Time // by leaf, uplink and selector: until when

	waits waits // of the present vector, if paths are chosen by them

	decisions uint64
	stats     ConWeaveStats
}

// leafState is what is known of a leaf.
type leafState struct {
	unmarked mono.Time // when a packet last went there by hash
	uplinks  uint16    // a bit each: those that flows could be on
	base     baseRTT
}

var _ = register(Scheme{
	Name: "conweave", Summary: "another path when a flow's own is late, and packets put in order behind it",
	New:  func(o *Options) Policy { return newConWeave(o, false) },
	Wire: reorder.SchemeID, Shim: true, NeedsPeer: true, Section: conweaveSection,
	Receiver: newConWeaveReceiver,
})

// ConWeave with an informed start: of the paths that are not busy, new flows and
// reroutes take the one with the shortest wait by own queues and CONGA's feedback, where
// ConWeave takes the first of some random ones. It is ours.
var _ = register(Scheme{
	Name: "conweave-informed", Summary: "as conweave, onto the path with the shortest wait",
	New:  func(o *Options) Policy { return newConWeave(o, true) },
	Wire: reorder.SchemeID, Shim: true, NeedsPeer: true, Queues: true, Section: conweaveSection,
})

func newConWeave(o *Options, informed bool) Policy {
	p := &o.Section.(*ConWeaveParams).Source
	return &conweave{
		params: *p, width: p.Selectors, informed: informed, waits: newWaits(metricWeight, &o.Congestion),
		seed: o.Seed, rng: newRNG(o),
		conns: flowtable.New[connFields](p.Connections, mono.Time(p.Inactive)),
	}
}

// newConWeaveReceiver makes the destination side.
func newConWeaveReceiver(o *Options) (Receiver, error) {
	p := o.Section.(*ConWeaveParams).destination()
	p.Leaves, p.Ports = o.Leaves, o.Ports
	return reorder.New(*p)
}

// Stats returns the counters.
func (c *conweave) Stats() Stats {
	s := c.stats
	return Stats{Decisions: c.decisions, Own: &s}
}

// RoundTrips adds to h how long replies took.
func (c *conweave) RoundTrips(h *reorder.Histogram) { h.Merge(&c.stats.ReplyTime) }

// Retime changes θ_reply and θ_inactive, and makes them fit each other. What flows
// wait for at the moment stays due when it was; the time of replies under way is
// then taken wrongly by as much as θ_reply has changed.
func (c *conweave) Retime(_ mono.Time, t *reorder.Times) error {
	if t.Reply == 0 && t.Inactive == 0 {
		return nil
	}
	p := c.params
	p.Reply = cmp.Or(t.Reply, p.Reply)
	if t.Inactive != 0 {
		p.Inactive = max(t.Inactive, p.Reply, p.ReplyExtra)
	} else {
		p.Reply = min(p.Reply, p.Inactive)
	}
	if err := p.Validate(); err != nil {
		return fmt.Errorf("ConWeave's source side: %w", err)
	}
	c.params = p
	c.conns.SetAge(mono.Time(p.Inactive))
	return nil
}

// Choose marks packets, and moves flows that have waited for a reply too long.
func (c *conweave) Choose(now mono.Time, v *View, pkts []Packet) {
	if len(v.Paths) > len(c.leaves) {
		c.grow(len(v.Paths))
	}
	c.waits.leaf = -1
	if c.informed && slices.ContainsFunc(pkts, func(p Packet) bool { return v.Paths[p.Leaf].N > 0 }) {
		c.waits.look(now, v) // before anything adds to a queue
	}
	conns := &c.conns
	if conns.Cold() {
		for i := range pkts {
			conns.Touch(pkts[i].Hash)
		}
	}
	unknown := 0
	for i := range pkts {
		p := &pkts[i]
		f := conns.First(p.Hash)
		if !f.Is(p.Hash, p.Leaf) {
			f = conns.Find(p.Hash, p.Leaf)
		}
		if f == nil || conns.Aged(now, f) {
			unknown++
		} else if path := v.Paths[p.Leaf].Index[f.V.path.Uplink()]; path >= 0 && now <= f.Time {
			f.Last = now
			p.Path, p.Marks = uint8(path), f.V.marks
			continue
		}
		c.slow(now, v, p, (*conn)(f))
	}
	conns.Seen(len(pkts), unknown)
}

// find returns the flow's entry, nil if it has none.
func (c *conweave) find(hash uint32, leaf uint16) *conn { return (*conn)(c.conns.Find(hash, leaf)) }

// aged reports whether the flow has been inactive.
func (c *conweave) aged(now mono.Time, e *conn) bool { return c.conns.Aged(now, e.entry()) }

// slow is Choose for a packet with which something changes. e is nil if its flow
// has no entry.
func (c *conweave) slow(now mono.Time, v *View, p *Packet, e *conn) {
	p.Marks = Marks{}
	paths := &v.Paths[p.Leaf]
	if paths.N == 0 {
		return
	}
	if v.Capable != nil && !v.Capable.Capable(p.Leaf, now) {
		c.stats.Incapable++
		c.unmarked(now, paths, p, e)
		return
	}
	switch {
	case e == nil:
		if e = c.insert(now, v, p); e == nil {
			c.stats.Overflow++
			c.unmarked(now, paths, p, nil)
			return
		}
	case c.aged(now, e):
		c.again(now, v, p, e)
	case paths.Index[e.V.path.Uplink()] < 0:
		c.move(now, v, p, e)
	}
	e.Last = now
	if e.is(connMoved) && now > e.Time {
		e.begin()
	}
	if e.is(connAsked) && now > e.Time && c.cutOff(now, v, p, e) {
		return // as the TAIL
	}
	opcode := overlay.OpData
	if e.is(connBegin) {
		opcode = overlay.OpRTTRequest
		c.begin(now, p.Leaf, e)
	}
	p.Path, p.Marks = uint8(paths.Index[e.V.path.Uplink()]), e.V.marks
	p.Opcode = opcode
}

// begin starts an epoch: the packet at hand is its request (§3.2.1).
func (c *conweave) begin(now mono.Time, leaf uint16, e *conn) {
	e.V.state, e.Time = e.V.state&(connRefused|connSilent)|connAsked, now.Add(c.reply(leaf))
	e.V.marks = Marks{Epoch: e.V.marks.Epoch.Next(), Shim: true, Selector: e.V.path.Selector(), Arg: overlay.TstampOf(now)}
	c.stats.Epochs++
	c.stats.Requests++
}

// cutOff tries to reroute a flow whose reply is late (§3.2.2). It reports
// whether the packet is the TAIL; if not, it belongs where the flow is.
func (c *conweave) cutOff(now mono.Time, v *View, p *Packet, e *conn) bool {
	if e.V.state&connAborted == 0 {
		c.stats.CutOffs++
	}
	to, ok := e.V.path, false
	if e.V.state&connRefused != 0 {
		e.V.state &^= connRefused // it stands for one attempt: no reply may ever take it back
		c.stats.Refused++
	} else if to, ok = c.sample(now, v, p, e.V.path, true); !ok {
		c.stats.Aborts++
	}
	if !ok {
		if e.V.state&connAnswered != 0 {
			e.begin()
			return false
		}
		e.V.state |= connAborted
		e.Time = now.Add(c.reply(p.Leaf))
		return false
	}
	c.stats.Reroutes++
	c.decisions++
	p.Path = uint8(v.Paths[p.Leaf].Index[e.V.path.Uplink()])
	e.reroute(to, overlay.TstampOf(now))
	p.Marks = e.V.marks
	p.Rerouted, p.Tail, p.Selector = false, true, e.old().Selector()
	return true
}

// move takes a flow off a path that is gone.
func (c *conweave) move(now mono.Time, v *View, p *Packet, e *conn) {
	paths := &v.Paths[p.Leaf]
	c.stats.Moves++
	c.know(p.Leaf, paths)
	if e.is(connRerouted) && paths.Index[e.old().Uplink()] >= 0 {
		e.V.path = e.old()
	} else {
		e.V.path = c.start(now, v, p, e.V.path, false)
	}
	c.stats.Epochs++
	e.V.state, e.Time = connMoved, now.Add(c.params.Inactive)
	e.V.marks = Marks{Epoch: e.V.marks.Epoch.Next(), Shim: true, Selector: e.V.path.Selector()}
}

// unmarked sends a packet without ConWeave. A flow that has an entry stays on its
// path as long as that is there, so as not to be reordered.
func (c *conweave) unmarked(now mono.Time, paths *Paths, p *Packet, e *conn) {
	c.leaves[p.Leaf].unmarked = now + 1
	if e != nil && paths.Index[e.V.path.Uplink()] >= 0 && !c.aged(now, e) {
		e.Last = now
		e.begin()
		p.Path, p.Selector = uint8(paths.Index[e.V.path.Uplink()]), e.V.path.Selector()
		return
	}
	if e != nil {
		e.entry().Remove()
	}
	path := c.byHash(paths, p.Hash)
	p.Path, p.Selector = uint8(paths.Index[path.Uplink()]), path.Selector()
	c.decisions++
}

// byHash returns the path that a flow has without ConWeave.
func (c *conweave) byHash(paths *Paths, hash uint32) overlay.PathID {
	path := paths.byHash(hash, c.seed)
	return overlay.MakePathID(paths.Uplink[path%MaxPaths], c.selector(hash))
}

// selector returns the selector of a flow that does not choose one.
func (c *conweave) selector(hash uint32) uint8 {
	n := uint64(c.width)
	if n == 1 {
		n = maxSelectors
	}
	return uint8(uint64(Remix(uint64(hash)^c.seed^selectorKey)) * n >> 32)
}

// insert makes an entry for a flow; nil if there is no room.
func (c *conweave) insert(now mono.Time, v *View, p *Packet) *conn {
	e := (*conn)(c.conns.Insert(now, p.Hash, p.Leaf))
	if e == nil {
		return nil
	}
	paths := &v.Paths[p.Leaf]
	c.know(p.Leaf, paths)
	e.begin()
	if c.wasUnmarked(now, p.Leaf) {
		// It may be one of those that went by hash a moment ago, and packets of
		// it may be under way there.
		e.V.path = c.byHash(paths, p.Hash)
		c.decisions++
	} else {
		e.V.path = c.start(now, v, p, overlay.MakePathID(0, c.selector(p.Hash)), false)
	}
	return e
}

// know notes the uplinks that flows to a leaf can be on from now on.
func (c *conweave) know(leaf uint16, paths *Paths) {
	for _, u := range paths.Uplink[:paths.N] {
		c.leaves[leaf].uplinks |= 1 << (u % MaxPaths)
	}
}

// grow makes room for more leaves.
func (c *conweave) grow(leaves int) {
	c.leaves = append(c.leaves, make([]leafState, leaves-len(c.leaves))...)
	c.busy = append(c.busy, make([]mono.Time, leaves*MaxPaths*c.width-len(c.busy))...)
}
