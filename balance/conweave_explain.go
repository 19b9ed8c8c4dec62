package balance

import (
	"iter"
	"math"
	"math/bits"
	"time"

	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/overlay"
)

// ConWeavePolicy is ConWeave's source side, for its owner to look at.
type ConWeavePolicy interface {
	Messenger
	// Params returns the parameters in use.
	Params() ConWeaveSource
	// ConnectionSets returns the number of sets of the connection table.
	ConnectionSets() int
	// Connections yields the flows of which something may be under way, of the sets
	// from one to before another: parts of the table, for those who must not look
	// for long at a time.
	Connections(now mono.Time, from, to int) iter.Seq[Connection]
	// ConnectionsOf is Connections for flows of one hash, which may go to several
	// leaves. It looks at one set only.
	ConnectionsOf(now mono.Time, hash uint32) iter.Seq[Connection]
	// BusyUntil returns until when a NOTIFY keeps flows to a leaf off a path; ok
	// is false if none does.
	BusyUntil(now mono.Time, leaf uint16, path overlay.PathID) (until mono.Time, ok bool)
}

// States of a [Connection].
const (
	ConnectionBegins   = "begins"   // its next packet begins an epoch and asks for a reply
	ConnectionAsked    = "asked"    // it waits for that
	ConnectionRerouted = "rerouted" // it waits for a CLEAR
	ConnectionMoved    = "moved"    // it waits for a path that went away to be empty
)

var connectionStates = [...]string{
	connBegin: ConnectionBegins, connAsked: ConnectionAsked, connRerouted: ConnectionRerouted, connMoved: ConnectionMoved,
}

// Connection is an entry of the connection table.
type Connection struct {
	Hash  uint32
	Leaf  uint16
	Path  overlay.PathID // of its next packet
	Old   overlay.PathID // of its packets up to the TAIL; meant if rerouted
	Epoch overlay.Epoch
	State string
	Idle  time.Duration // since its last packet left
}

// Params returns the parameters in use.
func (c *conweave) Params() ConWeaveSource { return c.params }

// ConnectionSets returns the number of sets.
func (c *conweave) ConnectionSets() int { return c.conns.Sets() }

// Connections yields the entries of some sets that are not aged.
func (c *conweave) Connections(now mono.Time, from, to int) iter.Seq[Connection] {
	return func(yield func(Connection) bool) {
		for f := range c.conns.All(now, from, to) {
			e := (*conn)(f)
			if !yield(Connection{
				f.Hash(), f.Leaf(), e.V.path, e.old(), e.V.marks.Epoch, connectionStates[e.V.state&connStates], now.Sub(f.Last),
			}) {
				return
			}
		}
	}
}

// ConnectionsOf yields the entries of a hash that are not aged.
func (c *conweave) ConnectionsOf(now mono.Time, hash uint32) iter.Seq[Connection] {
	return func(yield func(Connection) bool) {
		set := c.conns.SetOf(hash)
		for e := range c.Connections(now, set, set+1) {
			if e.Hash == hash && !yield(e) {
				return
			}
		}
	}
}

// BusyUntil returns the mark that a NOTIFY made.
func (c *conweave) BusyUntil(now mono.Time, leaf uint16, path overlay.PathID) (until mono.Time, ok bool) {
	if int(leaf) >= len(c.leaves) || c.width > 1 && int(path.Selector()) >= c.width || !c.isBusy(now, leaf, path) {
		return 0, false
	}
	return c.busy[c.slot(leaf, path)], true
}

// Explain says where the flow's next packet goes, and what its connection waits
// for.
func (c *conweave) Explain(now mono.Time, v *View, p *Packet) Explanation {
	paths := &v.Paths[p.Leaf]
	x := newExplanation(paths)
	e := c.find(p.Hash, p.Leaf)
	if e != nil && c.aged(now, e) {
		e = nil
	}
	alive := func(path overlay.PathID) bool { return paths.Index[path.Uplink()] >= 0 }
	take := func(path overlay.PathID, why string) Explanation {
		x.Path, x.Reason = int(paths.Index[path.Uplink()]), why
		return x
	}
	capable := v.Capable == nil || v.Capable.Capable(p.Leaf, now)
	switch {
	case e == nil && !capable:
		x.Fresh = 0
		return take(c.byHash(paths, p.Hash), "the leaf does not speak ConWeave, so the flow's hash decides")
	case e == nil:
		return c.explainStart(now, v, p, &x)
	case !alive(e.V.path) && !capable:
		return take(c.byHash(paths, p.Hash), "its path is gone and the leaf no longer speaks ConWeave, so the flow's hash decides")
	case !alive(e.V.path) && e.is(connRerouted) && alive(e.old()):
		return take(e.old(), "the path that it was rerouted to is gone: it returns to the one before")
	case !alive(e.V.path):
		c.fresh(now, v, p, &x)
		x.Reason = "its path is gone: it moves to one that is not busy"
		return x
	case !capable:
		return take(e.V.path, "the leaf no longer speaks ConWeave: the flow stays where it is")
	}
	return take(e.V.path, c.why(now, e))
}

// why says what a flow that stays on its path waits for.
func (c *conweave) why(now mono.Time, e *conn) string {
	switch {
	case e.is(connRerouted):
		return "it was rerouted here, and the leaf has not said yet that everything sent before has arrived (CLEAR)"
	case e.is(connMoved) && now <= e.Time:
		return "its path went away: it stays here until nothing sent before can be under way any more"
	case e.is(connAsked) && now > e.Time:
		return "the reply to its request is late: this packet is the TAIL if there is a path that is not busy to reroute to"
	case e.is(connAsked):
		return "it stays as long as replies come in time; one is awaited"
	}
	return "it stays as long as replies come in time; the last one did"
}

// explainStart is Explain of a flow of which nothing is under way.
func (c *conweave) explainStart(now mono.Time, v *View, p *Packet, x *Explanation) Explanation {
	paths := &v.Paths[p.Leaf]
	had := c.find(p.Hash, p.Leaf)
	if had == nil && (!c.conns.Room(now, p.Hash) || c.wasUnmarked(now, p.Leaf)) {
		x.Path = int(paths.Index[c.byHash(paths, p.Hash).Uplink()])
		x.Reason = "packets to the leaf go, or just went, by hash: the connection table has no room, or the leaf did not speak ConWeave"
		return *x
	}
	if had != nil && paths.Index[had.V.path.Uplink()] >= 0 && c.stays(now, p.Leaf, had) {
		x.Path, x.Reason = int(paths.Index[had.V.path.Uplink()]), "nothing of it is under way, and its path is not busy: it stays there"
		return *x
	}
	c.fresh(now, v, p, x)
	x.Reason = "nothing of it is under way: it takes a random path that is not busy"
	if c.informed {
		x.Reason = "nothing of it is under way: it takes the path with the shortest wait that is not busy"
	}
	if paths.N == 1 {
		x.Path = 0
	}
	return *x
}

// fresh finds the uplinks that a flow could start on now. Of a few samples all
// may be busy: then any uplink is as good, and as likely, as another.
func (c *conweave) fresh(now mono.Time, v *View, p *Packet, x *Explanation) {
	if int(p.Leaf) >= len(c.leaves) {
		if !c.informed {
			return
		}
		c.grow(int(p.Leaf) + 1)
	}
	paths := &v.Paths[p.Leaf]
	var free [MaxPaths]uint8
	n, busy := 0, 0
	for i := range int(paths.N) * c.width {
		path := c.path(paths, i, overlay.MakePathID(0, c.selector(p.Hash)))
		if c.isBusy(now, p.Leaf, path) {
			busy++
		} else if n == 0 || free[n-1] != path.Uplink() {
			free[n%MaxPaths] = path.Uplink()
			n++
		}
	}
	if !c.informed {
		if busy < c.params.Samples {
			x.only(free[:n])
		}
		return
	}
	waits := c.waits
	waits.look(now, v)
	waits.face(now, v, p.Leaf)
	if x.compareWaits(&waits, paths, uint64(p.Len)); n == 0 {
		return
	}
	x.only(free[:n])
	x.keepLeast()
}

// compareWaits fills in how long a packet waits by each uplink, in ns.
func (e *Explanation) compareWaits(w *waits, paths *Paths, length uint64) {
	for _, u := range paths.Uplink[:paths.N] {
		e.Combined[u] = int(w.cost(u, length) / 1000)
	}
}

// keepLeast leaves the uplinks that compare best.
func (e *Explanation) keepLeast() {
	least := math.MaxInt
	for m := e.Fresh; m != 0; m &= m - 1 {
		least = min(least, e.Combined[bits.TrailingZeros16(m)])
	}
	for u := range e.Combined {
		if e.Combined[u] > least {
			e.Fresh &^= 1 << u
		}
	}
}

// only leaves these uplinks.
func (e *Explanation) only(uplinks []uint8) {
	e.Fresh = 0
	for _, u := range uplinks {
		e.Fresh |= 1 << u
	}
}

// wasUnmarked reports whether packets of a leaf may be under way by hash.
func (c *conweave) wasUnmarked(now mono.Time, leaf uint16) bool {
	if int(leaf) >= len(c.leaves) {
		return false
	}
	t := c.leaves[leaf].unmarked
	return t != 0 && !now.Apart(t, mono.Time(c.params.Inactive))
}
