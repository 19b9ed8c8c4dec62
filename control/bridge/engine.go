package bridge

import (
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// Sink takes what a data plane can forward for. Its methods are called by one goroutine.
type Sink interface {
	// SetModel takes a complete model. Before it, the sink has been told to delete the
	// addresses that the model has no place for.
	SetModel(*Model)
	// ChangeAddresses takes a few changes, in their order. It must not keep the slice.
	ChangeAddresses([]Change)
}

const (
	// batch is how many changes a sink is given at a time at most.
	batch = 256
	// linger is how long a VTEP stays a peer that no entry names any more: a routing
	// daemon that starts again deletes all entries, and adds them seconds later.
	linger = 10 * time.Second
	// settleLinks is how long events about links are collected before the model is
	// derived anew, and restLinks how often as long as that took it then waits.
	settleLinks = 2 * time.Millisecond
	restLinks   = 4
	// maxRestLinks is the longest such pause: a port may have been blocked meanwhile.
	maxRestLinks = 500 * time.Millisecond
	// settleLists is the least pause between two lists of objects.
	settleLists = 5 * time.Millisecond
)

// kinds are kinds of objects that are listed together.
type kinds uint8

const (
	links kinds = 1 << iota // and what is on them
	ports                   // of bridges: VLANs, and the map of VLANs to VNIs
	vnis                    // of vnifilter
	filters
	everything = links | ports | vnis | filters
)

// listing is the result of a list of some kinds.
type listing struct {
	kinds   kinds
	links   []Link
	ports   []portInfo
	blocked map[int][]VLANState // by port; with ports
	vnis    map[int]VNISet
	filters Filters
}

// engine turns events and lists into a model and changes. It does no input and output
// but for calling the sink.
type engine struct {
	state *State
	addrs *addresses
	sink  Sink
	ours  func(prog uint32) bool

	start  *Model                // says which VTEP the model has to have; nil: any
	model  *Model                // what the sink has; nil: none yet
	listed kinds                 // what was listed once
	peers  map[vtepKey]time.Time // VTEPs, and since when no entry names them; zero: one does

	dirty   kinds // what has to be listed again
	listing bool
	listDue time.Time                           // not before
	touched struct{ links, ports map[int]bool } // by events while a list is made

	expiry time.Time // when a peer that no entry names stops being one

	entries struct { // the dump of forwarding entries
		wanted  bool
		running bool
		again   int       // times that it was repeated because the kernel's lists moved meanwhile
		due     time.Time // not before
		loss    time.Time // the first one that no dump has made up for; zero: there is none
		calm    time.Time // not before, since events are being lost
	}

	stale  bool      // the model may follow no more from the state
	due    time.Time // when the model is derived
	rested time.Time // not before
	buf    []Change
	stats  Stats
}

func newEngine(sink Sink, ours func(prog uint32) bool) *engine {
	s := NewState()
	e := &engine{state: s, addrs: newAddresses(s.Links), sink: sink, ours: ours, peers: make(map[vtepKey]time.Time), buf: make([]Change, 0, batch), dirty: everything}
	e.entries.wanted = true
	e.touched.links, e.touched.ports = make(map[int]bool), make(map[int]bool)
	return e
}

// message takes an event about anything but an entry.
func (e *engine) message(kind uint16, b []byte, now time.Time) {
	switch kind {
	case unix.RTM_NEWLINK, unix.RTM_DELLINK:
		if len(b) > 0 && b[0] == unix.AF_BRIDGE {
			e.portEvent(kind, b, now)
		} else {
			e.linkEvent(kind, b, now)
		}
	case unix.RTM_NEWVLAN, unix.RTM_DELVLAN:
		e.dirty |= ports
	case unix.RTM_NEWTUNNEL, unix.RTM_DELTUNNEL:
		e.dirty |= vnis
	case unix.RTM_NEWQDISC, unix.RTM_DELQDISC:
		e.dirty |= filters
	}
}

func (e *engine) linkEvent(kind uint16, b []byte, now time.Time) {
	l, err := parseLink(b)
	if err != nil {
		e.stats.Malformed++
		return
	}
	e.setLink(l, kind == unix.RTM_DELLINK, now)
}

func (e *engine) setLink(l Link, gone bool, now time.Time) {
	e.touched.links[l.Index] = true
	if gone {
		e.removeLink(l.Index, now)
	} else if e.state.setLink(l) {
		e.outdate(now)
	}
}

func (e *engine) removeLink(ifindex int, now time.Time) {
	l := e.state.Links[ifindex]
	if l == nil {
		return
	}
	delete(e.state.Links, ifindex)
	delete(e.state.VNIs, ifindex)
	if l.Bridge != nil || l.VXLAN != nil {
		e.addrs.removeLink(ifindex)
	}
	e.outdate(now)
}

func (e *engine) portEvent(kind uint16, b []byte, now time.Time) {
	p, err := parsePort(b)
	if err != nil {
		e.stats.Malformed++
		return
	}
	e.setPort(p, kind == unix.RTM_DELLINK, now)
}

func (e *engine) setPort(p portInfo, gone bool, now time.Time) {
	e.touched.ports[p.Index] = true
	if gone && e.state.leave(p.Index) || !gone && e.state.setPort(p) {
		e.outdate(now)
	}
}

// outdate says that the model may follow no more from the state.
func (e *engine) outdate(now time.Time) {
	if !e.stale {
		e.stale, e.due = true, now.Add(settleLinks)
	}
}

// beginList returns what has to be listed, if anything; endList has to follow.
func (e *engine) beginList(now time.Time) kinds {
	if e.listing || e.dirty == 0 || now.Before(e.listDue) {
		return 0
	}
	k := e.dirty
	e.dirty, e.listing = 0, true
	clear(e.touched.links)
	clear(e.touched.ports)
	return k
}

// failList says that a list could not be made.
func (e *engine) failList(k kinds, now time.Time) {
	e.dirty |= k
	e.listing = false
	e.listDue = now.Add(retry)
}

// endList takes a list. What an event has said of since it began is newer than the list.
func (e *engine) endList(l *listing, now time.Time) {
	e.listing = false
	e.listDue = now.Add(settleLists)
	changed := e.listed&everything != everything
	e.listed |= l.kinds
	if l.kinds&links != 0 {
		changed = e.endLinks(l.links, now) || changed
	}
	if l.kinds&ports != 0 {
		for _, p := range l.ports {
			if !e.touched.ports[p.Index] {
				changed = e.state.setPort(p) || changed
			}
		}
		changed = e.state.setBlocked(l.blocked) || changed
	}
	if l.kinds&vnis != 0 {
		e.state.VNIs, changed = l.vnis, true
	}
	if l.kinds&filters != 0 {
		changed = changed || !l.filters.equal(&e.state.Filters)
		e.state.Filters = l.filters
	}
	if changed {
		e.outdate(now)
	}
}

func (e *engine) endLinks(list []Link, now time.Time) (changed bool) {
	have := make(map[int]bool, len(list))
	for _, l := range list {
		have[l.Index] = true
		if e.touched.links[l.Index] {
			continue
		}
		if old := e.state.Links[l.Index]; old != nil && e.touched.ports[l.Index] {
			l.Master, l.Member = old.Master, old.Member // the bridge has said so since
		}
		changed = e.state.setLink(l) || changed
	}
	for i := range e.state.Links {
		if !have[i] && !e.touched.links[i] {
			e.removeLink(i, now)
			changed = true
		}
	}
	return changed
}

// lose says that events were lost. Everything has to be listed again.
func (e *engine) lose(now time.Time) {
	e.dirty = everything
	x := &e.entries
	if x.loss.IsZero() {
		x.loss = now
	}
	x.wanted, x.again = true, 0
	// A dump during which more is lost is made for nothing.
	x.calm = earliest(now.Add(calm), x.loss.Add(maxCalm))
	e.stats.Lost++
	e.stats.Synced = 0
}

const (
	// maxAgain is how often a dump is repeated at most during which entries were deleted.
	// The kernel goes on in its lists by counting, so such a dump may leave others out.
	maxAgain = 3
	// restEntries is the least pause between two dumps.
	restEntries = 100 * time.Millisecond
	// maxRest is the longest pause: a dump may have waited for others most of its time.
	maxRest = 5 * time.Second
	// calm is how long nothing has to be lost before a dump, and maxCalm how long a dump
	// waits for that at most.
	calm    = 200 * time.Millisecond
	maxCalm = 2 * time.Second
)

// entriesDue returns when a dump of the forwarding entries is to begin; zero: it is not.
func (e *engine) entriesDue() (t time.Time) {
	if e.entries.wanted && !e.entries.running {
		t = e.entries.due
		if e.entries.calm.After(t) {
			t = e.entries.calm
		}
	}
	return t
}

// beginEntries reports whether a dump of the forwarding entries is to be made now;
// endEntries has to follow.
func (e *engine) beginEntries(now time.Time) bool {
	x := &e.entries
	if !x.wanted || x.running || now.Before(x.due) || now.Before(x.calm) || e.listed != everything {
		return false
	}
	x.wanted, x.running = false, true
	x.loss, x.calm = time.Time{}, time.Time{}
	e.addrs.begin()
	e.stats.Dumps++
	return true
}

// endEntries ends a dump that took some time.
func (e *engine) endEntries(complete bool, took time.Duration, now time.Time) {
	x := &e.entries
	x.running = false
	e.addrs.end(complete)
	x.due = now.Add(min(max(took, restEntries), maxRest))
	switch {
	case !complete:
		x.wanted = true
	case e.addrs.deletes > 0 && x.again < maxAgain:
		x.wanted = true
		x.again++
		x.due = now.Add(min(max(3*took, 10*restEntries), maxRest))
	}
	e.stats.Synced = one(!x.wanted)
	e.stats.DumpTime = took.Seconds()
}

// count returns the counters.
func (e *engine) count() Stats {
	e.stats.Addresses, e.stats.Multihomed, e.stats.Peers = e.addrs.said, e.addrs.multi, len(e.peers)
	if e.model != nil {
		e.stats.Networks, e.stats.Left = len(e.model.Domains), len(e.model.Left)
	}
	return e.stats
}

// flush tells the sink what is new. It returns when it wants to be called again at the
// latest; zero: whenever something happens.
func (e *engine) flush(now time.Time) (next time.Time) {
	if e.listed != everything {
		return e.listsDue(now)
	}
	fresh := e.derive(now)
	if fresh != nil {
		e.addrs.setModel(fresh)
	}
	peers := e.updatePeers(now)
	if fresh != nil || peers {
		e.setModel(fresh)
	}
	for len(e.addrs.queue) > 0 {
		e.change(e.addrs.changes(e.buf, batch, false))
	}
	return earliest(e.expiry, e.entriesDue(), e.staleDue(), e.listsDue(now))
}

// earliest returns the earliest of times that are not zero.
func earliest(times ...time.Time) (first time.Time) {
	for _, t := range times {
		if first.IsZero() || !t.IsZero() && t.Before(first) {
			first = t
		}
	}
	return first
}

func (e *engine) listsDue(now time.Time) (t time.Time) {
	if e.dirty == 0 || e.listing {
		return t
	}
	if e.listDue.After(now) {
		return e.listDue
	}
	return now
}

func (e *engine) staleDue() (t time.Time) {
	if e.stale {
		t = e.due
	}
	return t
}

// derive makes a new model if it is time to.
func (e *engine) derive(now time.Time) *Model {
	if !e.stale || now.Before(e.due) && e.model != nil {
		return nil
	}
	if now.Before(e.rested) {
		e.due = e.rested
		return nil
	}
	e.stale = false
	start := time.Now()
	before := e.model
	if before == nil {
		before = e.start
	}
	m := Derive(e.state, before, e.ours)
	e.rested = now.Add(min(restLinks*time.Since(start), maxRestLinks))
	e.stats.Models++
	return m
}

// setModel tells the sink of a model: what has no place in it any more is deleted first.
// fresh is nil if only the peers are others.
func (e *engine) setModel(fresh *Model) {
	if fresh == nil {
		m := *e.model
		fresh = &m
		e.addrs.model = fresh
	}
	for all := e.addrs.changes(e.buf, 0, true); len(all) > 0; {
		n := min(batch, len(all))
		e.change(all[:n])
		all = all[n:]
	}
	fresh.Peers = nil // those of before are the sink's
	for v := range e.peers {
		// The kernel refuses entries of another family, but the VTEP may have been of one.
		if a := v.addr(); a.Is4() == fresh.VTEP.Is4() {
			fresh.Peers = append(fresh.Peers, a)
		}
	}
	slices.SortFunc(fresh.Peers, netip.Addr.Compare)
	e.model = fresh
	e.sink.SetModel(fresh)
}

func (e *engine) change(c []Change) {
	if len(c) > 0 {
		e.stats.Changes += uint64(len(c))
		e.sink.ChangeAddresses(c)
	}
}

// updatePeers adds VTEPs that entries name, and takes out those that none has named for
// some time. It reports whether there was any.
func (e *engine) updatePeers(now time.Time) (changed bool) {
	if !e.addrs.moved && (e.expiry.IsZero() || now.Before(e.expiry)) {
		return false
	}
	e.addrs.moved, e.expiry = false, time.Time{}
	for v := range e.addrs.refs {
		if _, known := e.peers[v]; !known {
			changed = true
		}
		e.peers[v] = time.Time{}
	}
	for v, since := range e.peers {
		if e.addrs.refs[v] > 0 {
			continue
		}
		if since.IsZero() {
			since = now
			e.peers[v] = since
		}
		end := since.Add(linger)
		if !now.Before(end) {
			delete(e.peers, v)
			changed = true
			continue
		}
		e.expiry = earliest(e.expiry, end)
	}
	return changed
}
