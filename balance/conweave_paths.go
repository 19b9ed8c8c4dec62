package balance

import (
	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/overlay"
)

// slot returns where a path's mark stands in the table of busy ones. With one
// selector, selectors are the flows' own, and the mark is the uplink's.
func (c *conweave) slot(leaf uint16, path overlay.PathID) int {
	return (int(leaf)*MaxPaths+int(path.Uplink()))*c.width + int(path.Selector())%c.width
}

// isBusy reports whether a NOTIFY keeps flows off a path. A mark that would
// last for longer than any can was made before the clock was set back.
func (c *conweave) isBusy(now mono.Time, leaf uint16, path overlay.PathID) bool {
	left := c.busy[c.slot(leaf, path)] - now
	return left > 0 && left <= mono.Time(c.params.PathBusy)
}

// start returns the path of a flow of which nothing is under way: one that is not
// busy, or if all that were looked at are, the one that it had if it can be kept,
// or any.
func (c *conweave) start(now mono.Time, v *View, p *Packet, had overlay.PathID, keep bool) overlay.PathID {
	c.decisions++
	if path, ok := c.sample(now, v, p, had, false); ok {
		return path
	}
	if keep {
		return had
	}
	paths := &v.Paths[p.Leaf]
	return c.path(paths, draw(c.rng, int(paths.N)*c.width), had)
}

// again puts a flow on its path after a pause of θ_inactive.
func (c *conweave) again(now mono.Time, v *View, p *Packet, e *conn) {
	paths := &v.Paths[p.Leaf]
	c.stats.Inactive++
	if e.is(connRerouted) {
		c.stats.Unclear++
	}
	c.know(p.Leaf, paths)
	alive := paths.Index[e.V.path.Uplink()] >= 0
	silent, stays := e.unanswered(), alive && c.stays(now, p.Leaf, e)
	if !stays {
		e.V.path = c.start(now, v, p, e.V.path, alive)
	}
	e.begin()
	if silent && stays {
		e.V.state |= connSilent
	}
}

// unanswered reports whether the flow's epoch has asked for an answer that did
// not come.
func (e *conn) unanswered() bool {
	return e.is(connAsked) && e.V.state&connAnswered == 0 || e.is(connRerouted)
}

// stays reports whether a flow stays on its path after a pause: unless it is busy,
// or two epochs in a row have gone without an answer. With an informed start a flow
// goes where it waits least, as with CONGA after each gap.
func (c *conweave) stays(now mono.Time, leaf uint16, e *conn) bool {
	return !c.informed && !(e.V.state&connSilent != 0 && e.unanswered()) && !c.isBusy(now, leaf, e.V.path)
}

// path returns the i-th of a leaf's paths. With one selector it has that of had.
func (c *conweave) path(paths *Paths, i int, had overlay.PathID) overlay.PathID {
	return c.over(paths.Uplink[i/c.width%MaxPaths], i%c.width, had)
}

// over returns the path over an uplink and by a selector. With one selector it has that
// of had.
func (c *conweave) over(uplink uint8, selector int, had overlay.PathID) overlay.PathID {
	if c.width == 1 {
		return overlay.MakePathID(uplink, had.Selector())
	}
	return overlay.MakePathID(uplink, uint8(selector))
}

// sample draws a few different paths and returns the first that is not busy
// (§3.2.2). elsewhere leaves out the present path, for a reroute.
func (c *conweave) sample(now mono.Time, v *View, p *Packet, present overlay.PathID, elsewhere bool) (overlay.PathID, bool) {
	if c.informed {
		return c.best(now, v, p, present, elsewhere)
	}
	paths := &v.Paths[p.Leaf]
	n := int(paths.N) * c.width
	var drawn [maxSamples + 1]int // in order
	k := 0
	if at := int(paths.Index[present.Uplink()]); elsewhere && at >= 0 {
		drawn[0] = at*c.width + int(present.Selector())%c.width
		k = 1
	}
	for range c.params.Samples {
		if k == n {
			break
		}
		// The i-th of those that were not drawn yet.
		i, at := draw(c.rng, n-k), 0
		for ; at < k && i >= drawn[at]; at++ {
			i++
		}
		copy(drawn[at+1:k+1], drawn[at:k])
		drawn[at] = i
		k++
		path := c.path(paths, i, present)
		if elsewhere && path == present {
			continue // two of the leaf's paths start on one uplink
		}
		if !c.isBusy(now, p.Leaf, path) {
			return path, true
		}
	}
	return present, false
}

// best is sample by waits: of all paths that are not busy, the one with the shortest. Of
// equal ones chance decides.
func (c *conweave) best(now mono.Time, v *View, p *Packet, present overlay.PathID, elsewhere bool) (overlay.PathID, bool) {
	c.waits.face(now, v, p.Leaf)
	paths := &v.Paths[p.Leaf]
	n := int(paths.N)
	uplink, least, at := uint8(MaxPaths), ^uint64(0), draw(c.rng, n)
	for range n {
		u := paths.Uplink[at%MaxPaths]
		if _, ok := c.selectorOn(now, p.Leaf, u, present, elsewhere, false); ok {
			if cost := c.waits.cost(u, uint64(p.Len)); cost < least {
				uplink, least = u, cost
			}
		}
		if at++; at == n {
			at = 0
		}
	}
	if uplink == MaxPaths {
		return present, false
	}
	c.waits.add(uplink, uint64(p.Len))
	return c.selectorOn(now, p.Leaf, uplink, present, elsewhere, true)
}

// selectorOn returns a path over an uplink that is not busy, and with elsewhere
// not the present one; with random one at random, otherwise the first.
func (c *conweave) selectorOn(now mono.Time, leaf uint16, uplink uint8, present overlay.PathID, elsewhere, random bool) (overlay.PathID, bool) {
	first := 0
	if random && c.width > 1 {
		first = draw(c.rng, c.width)
	}
	for i := range c.width {
		path := c.over(uplink, (first+i)%c.width, present)
		if !(elsewhere && path == present) && !c.isBusy(now, leaf, path) {
			return path, true
		}
	}
	return present, false
}

// Handle takes an RTT_REPLY, a CLEAR or a NOTIFY. What does not fit the state of
// the flow that it is about changes nothing: it may be late, a copy, or forged.
func (c *conweave) Handle(now mono.Time, _ *View, m *overlay.Message) bool {
	if int(m.Leaf) >= len(c.leaves) {
		return false
	}
	f := &m.Fabric
	e := c.find(m.Hash, m.Leaf)
	known := e != nil
	switch f.Opcode {
	case overlay.OpNotify:
		known = c.notify(now, m.Leaf, f.Path)
	case overlay.OpRTTReply:
		if known {
			c.replied(now, m.Leaf, e, f)
		}
	case overlay.OpClear:
		if known {
			c.cleared(e, f)
		}
	default:
		return false
	}
	if e != nil && (f.Opcode == overlay.OpNotify && f.Epoch == e.V.marks.Epoch || e.answers(f)) {
		e.V.state &^= connRefused
		if f.Refuses() {
			e.V.state |= connRefused
		}
	}
	return known
}

// answers reports whether a REPLY or CLEAR is that of the flow's epoch, and of
// the very packet that asked for it: the echo tells it from one of an epoch of
// the same two bits.
func (e *conn) answers(f *overlay.Fabric) bool {
	return f.Epoch == e.V.marks.Epoch && f.Shim && f.Arg == e.V.marks.Arg
}

// replied ends an epoch in which the reply came in time (§3.2.1). One that is
// late changes nothing but that a reroute which found no path is not tried again.
func (c *conweave) replied(now mono.Time, leaf uint16, e *conn, f *overlay.Fabric) {
	if !e.is(connAsked) || !e.answers(f) || e.V.state&connAnswered != 0 {
		c.stats.StaleReplies++
		return
	}
	if e.V.state&connAborted != 0 {
		c.stats.LateReplies++
		e.begin()
		return
	}
	took := now.Sub(e.Time.Add(-c.reply(leaf)))
	c.stats.ReplyTime.Add(took)
	if took <= overlay.MaxInactive { // beyond, timestamps wrap
		c.leaves[leaf].base.add(now, overlay.TstampOf(now).Sub(f.Arg))
	}
	if now > e.Time {
		c.stats.LateReplies++
		e.V.state |= connAnswered
		return
	}
	c.stats.Replies++
	e.begin()
}

// cleared ends an epoch in which the flow was rerouted (§3.2.3).
func (c *conweave) cleared(e *conn, f *overlay.Fabric) {
	if !e.is(connRerouted) || !e.answers(f) {
		c.stats.StaleClears++
		return
	}
	c.stats.Clears++
	e.begin()
}

// notify keeps flows off a path for a while (§3.2.2). It reports whether flows
// could have taken that.
func (c *conweave) notify(now mono.Time, leaf uint16, path overlay.PathID) bool {
	if c.leaves[leaf].uplinks&(1<<path.Uplink()) == 0 || c.width > 1 && int(path.Selector()) >= c.width {
		return false
	}
	c.stats.Notifies++
	c.busy[c.slot(leaf, path)] = now.Add(c.params.PathBusy)
	return true
}
