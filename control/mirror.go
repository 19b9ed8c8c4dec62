package control

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/loomfabric/loom/config"
	"github.com/loomfabric/loom/dataplane"
	"github.com/loomfabric/loom/overlay"
)

const (
	// settle is how long events other than a link's are collected before the
	// kernel is asked: routing daemons change many routes at a time.
	settle = 5 * time.Millisecond
	// restLinks and restOther bound the work of an event storm: after a list
	// that took d, the next one of its kind waits for so many d.
	restLinks, restOther = 3, 9
	// listRetry is the pause after a list that failed.
	listRetry = 100 * time.Millisecond
	// resync is how often everything is listed without any event.
	resync = 30 * time.Second
)

// Publisher takes tables; dataplane.Node is one.
type Publisher interface {
	Publish(*dataplane.Tables) error
}

// Options are a mirror's surroundings.
type Options struct {
	Role       dataplane.Role
	Ports      []dataplane.PortConfig
	Kernel     Kernel
	Overlay    *config.Leaf // leaf: its peers and VNIs
	Publisher  Publisher
	Overhead   func() int             // leaf: what uplinks' MTU must exceed hosts' by; nil: what plain VXLAN takes
	VTEPs      []netip.Prefix         // spine: where the leaves' VTEPs are, to tell of routes that lead elsewhere
	Unresolved <-chan dataplane.HopID // next hops that frames wait for; may be nil
	Finder     *Finder                // finds the ports towards the fabric; nil: Ports has them
	Found      func(ports []string)   // called with them when they change; it must not block
	Log        *slog.Logger
}

// Mirror keeps a node's tables in step with the kernel. An event only marks
// its kind as changed; the kind is then listed anew and compared with what was
// known. Lost events (ENOBUFS) mark every kind, so that resynchronisation is
// not a case of its own.
type Mirror struct {
	Options
	builder *Builder
	state   State
	resolve resolver

	wake    chan struct{}
	changed [numKinds]atomic.Bool
	next    atomic.Pointer[change] // that Configure asks for
	refused error                  // why the data plane took no tables at the last try
	pending [numKinds]pending

	strays map[stray]strayTo // that the log has told of
	lost   []netip.Prefix    // likewise
	found  Found             // likewise

	stats  Stats // so far in this step
	shown  atomic.Pointer[Stats]
	tables atomic.Pointer[dataplane.Tables]
}

// pending is when a kind is to be listed.
type pending struct {
	dirty     bool
	due       time.Time // not before
	notBefore time.Time // the rate bound
	listed    bool      // at least once
	failing   bool
}

// Stats counts a mirror's work.
type Stats struct {
	_ struct{} `stat:"control"`

	Lists      perKind `stat:"lists" help:"Times the kernel's objects of a kind were listed."`
	ListErrors perKind `stat:"list_errors" help:"Lists that failed and were tried again."`
	Published  uint64  `stat:"tables_published" help:"Tables given to the data plane."`
	Resolves   uint64  `stat:"resolves" help:"Requests to the kernel to resolve or confirm a neighbour."`
	Unresolved int     `stat:"unresolved_next_hops,gauge" help:"Next hops without a MAC address."`
	Unlisted   int     `stat:"unlisted_ports,gauge" help:"Interfaces that are no ports towards the fabric, and over which routes to VTEPs lead: nothing is sent there, and VXLAN that comes in there is left to the kernel."`
	Lost       int     `stat:"lost_routes,gauge" help:"Destinations that had a next hop within the last 10 minutes and have none: a leaf's peers, a spine's routes."`
	TableFull  int     `stat:"table_full" help:"Times a next hop, peer or VNI was left out because the tables were full."`
}

// perKind has a number for each kind of kernel object.
type perKind [numKinds]uint64

// Index returns the name of a kind.
func (perKind) Index(i int) (label, value string) { return "kind", Kind(i).String() }

// NewMirror returns a mirror; [Mirror.Run] does the work.
func NewMirror(o Options) *Mirror {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	m := &Mirror{Options: o, builder: NewBuilder(o.Role, o.Ports), wake: make(chan struct{}, 1)}
	m.builder.vteps = o.VTEPs
	switch {
	case o.Overhead != nil:
		m.builder.overhead = o.Overhead
	case o.Overlay != nil:
		m.builder.overhead = func() int { return overlay.MTUOverhead(o.Overlay.VTEP) }
	}
	m.shown.Store(&Stats{})
	m.resolve = resolver{kernel: o.Kernel, log: o.Log, tries: make(map[target]*try)}
	return m
}

// Tables is what was published last; nil before the first time.
func (m *Mirror) Tables() *dataplane.Tables { return m.tables.Load() }

// Stats is a copy of the counters.
func (m *Mirror) Stats() Stats { return *m.shown.Load() }

// Run mirrors until ctx ends. It returns an error only if it could not start:
// whatever the kernel refuses later is retried.
func (m *Mirror) Run(ctx context.Context) error {
	stop, err := m.Kernel.Watch(func(k Kind) {
		m.changed[k].Store(true)
		select {
		case m.wake <- struct{}{}:
		default: // one that is waiting covers this one
		}
	}, m.reportWatch)
	if err != nil {
		return err
	}
	defer stop()
	timer := time.NewTimer(0)
	defer timer.Stop()
	var nextResync time.Time // the first list is one
	for {
		select {
		case <-ctx.Done():
			return nil
		case id := <-m.Unresolved:
			m.resolve.hurry(m.tables.Load(), id, time.Now())
		case <-m.wake:
		case <-timer.C:
		}
		now := time.Now()
		if !now.Before(nextResync) {
			nextResync = now.Add(resync)
			for k := range numKinds {
				m.changed[k].Store(true)
			}
		}
		timer.Reset(time.Until(earlier(m.step(now), nextResync)))
	}
}

// reportWatch logs that the kernel's events cannot be read, or can be again.
func (m *Mirror) reportWatch(err error) {
	if err != nil {
		m.Log.Error("cannot read the kernel's events; its state is listed every second instead", "err", err)
		return
	}
	m.Log.Info("the kernel's events can be read again")
}

// step lists what is due, publishes what changed and resolves what is missing.
// It returns when it wants to be called again at the latest.
func (m *Mirror) step(now time.Time) (next time.Time) {
	next = now.Add(resync)
	c := m.configured()
	listed, fresh := false, c != nil
	for k := range numKinds {
		p := &m.pending[k]
		if m.changed[k].Swap(false) && !p.dirty {
			p.dirty, p.due = true, now
			if k != Links && p.listed {
				p.due = now.Add(settle)
			}
		}
		if !p.dirty {
			continue
		}
		at := p.due
		if p.notBefore.After(at) {
			at = p.notBefore
		}
		if at.After(now) {
			next = earlier(next, at)
			continue
		}
		listed, fresh = true, m.list(k) || fresh
		if p.dirty {
			next = earlier(next, p.due)
		}
	}
	if m.publish(fresh) || listed {
		m.resolve.update(&m.state, m.tables.Load(), m.pending[Addresses].dirty && !m.pending[Addresses].failing)
	}
	if c != nil {
		c.done <- m.refused
	}
	next = earlier(next, m.find(fresh, now))
	next = earlier(next, m.resolve.step(now))
	m.stats.Resolves, m.stats.Unresolved, m.stats.TableFull = m.resolve.requests, m.resolve.unresolved, m.builder.Full()
	stats := m.stats
	m.shown.Store(&stats)
	return next
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// list reads one kind and reports whether it differs from what was known.
func (m *Mirror) list(k Kind) bool {
	p := &m.pending[k]
	var got State
	start := time.Now()
	err := m.Kernel.List(k, &got)
	end := time.Now()
	rest := restOther
	if k == Links {
		rest = restLinks
	}
	p.notBefore = end.Add(time.Duration(rest) * end.Sub(start))
	m.stats.Lists[k]++
	if err != nil {
		m.stats.ListErrors[k]++
		p.due = end.Add(listRetry)
		if errors.Is(err, netlink.ErrDumpInterrupted) {
			p.due = end.Add(settle) // it changed while it was read: soon again
		} else if !p.failing {
			p.failing = true
			m.Log.Error("cannot read the kernel's state; the last known one is kept", "kind", k, "err", err)
		}
		return false
	}
	if p.failing {
		m.Log.Info("the kernel's state can be read again", "kind", k)
	}
	first := !p.listed
	p.dirty, p.listed, p.failing = false, true, false
	return m.state.take(k, &got) || first
}

// publish builds tables, once everything they need is known, and hands them on
// if they say something new.
func (m *Mirror) publish(fresh bool) (published bool) {
	if !fresh {
		return false
	}
	for k := range numKinds {
		if !m.pending[k].listed {
			return false
		}
	}
	t := m.builder.Build(&m.state, m.Overlay, time.Now())
	m.reportStrays()
	m.reportLost()
	old := m.tables.Load()
	if t == old {
		return false
	}
	err := m.Publisher.Publish(t)
	if m.refused = err; err != nil {
		m.Log.Error("the data plane refuses new tables and keeps the old ones", "err", err)
		return false
	}
	m.tables.Store(t)
	m.stats.Published++
	m.report(old, t)
	return true
}

// reportSpeed logs that the speed of a link has become unknown, or is known again. What
// the start-up checks found it does not repeat.
func (m *Mirror) reportSpeed(c *dataplane.PortConfig, old, p dataplane.PortState) {
	if c.Kind == dataplane.Access || m.stats.Published <= 1 {
		return
	}
	rate, source := c.Egress.Speed(p.Speed)
	before, _ := c.Egress.Speed(old.Speed)
	switch unknown, was := p.Up && rate == 0, old.Up && before == 0; {
	case unknown && !was:
		m.Log.Warn("the link's speed is unknown: its load is not metered, and CONGA is blind there", "interface", c.Name, "fix", speedFix)
	case was && rate != 0:
		m.Log.Info("the link's speed is known", "interface", c.Name, "rate", rate, "from", source)
	}
}

// reportWays logs that routes lead to a peer by fewer uplinks, or by more: a link has failed
// elsewhere, or is back. Of uplinks that went down or came up the log has said so.
func (m *Mirror) reportWays(old, t *dataplane.Tables, peer int) {
	was, is := old.Peers[peer].Hops, t.Peers[peer].Hops
	ports := func(a *dataplane.Tables, hops []dataplane.HopID, b *dataplane.Tables, others []dataplane.HopID) (names []string) {
		for _, h := range hops {
			port := a.Hops[h].Port
			same := func(o dataplane.HopID) bool { return b.Hops[o].Port == port && b.Hops[o].Gateway == a.Hops[h].Gateway }
			if at(a.Ports, int(port)).Up && at(b.Ports, int(port)).Up && !slices.ContainsFunc(others, same) {
				names = append(names, at(m.Ports, int(port)).Name)
			}
		}
		return names
	}
	lost, found := ports(old, was, t, is), ports(t, is, old, was)
	switch {
	case len(lost) > len(found):
		m.Log.Warn("fewer routes to peer: look at the links and nodes behind the uplinks", "vtep", t.Peers[peer].VTEP, "next_hops", len(is), "was", len(was), "lost", strings.Join(lost, " "))
	case len(found) > len(lost):
		m.Log.Info("more routes to peer", "vtep", t.Peers[peer].VTEP, "next_hops", len(is), "was", len(was), "found", strings.Join(found, " "))
	}
}

// reportVTEP logs that the VTEP's address is gone, or there again.
func (m *Mirror) reportVTEP(gone bool) {
	vtep := m.Overlay.VTEP
	if gone {
		m.Log.Warn("the VTEP is no address of this machine any more: the kernel does not answer for it, and routing daemons may withdraw it",
			"vtep", vtep, "fix", vtepFix(vtep))
		return
	}
	m.Log.Info("the VTEP is an address of this machine again", "vtep", vtep)
}

// at returns the i-th element, or zero.
func at[T any](s []T, i int) (v T) {
	if i < len(s) {
		v = s[i]
	}
	return v
}

// report logs what an operator wants to know of a change.
func (m *Mirror) report(old, t *dataplane.Tables) {
	if old == nil {
		old = &dataplane.Tables{}
	}
	if t.NoVTEP != old.NoVTEP && m.stats.Published > 1 { // the start-up checks found the rest
		m.reportVTEP(t.NoVTEP)
	}
	for i, p := range t.Ports {
		if m.Ports[i].Name == "" {
			continue // nobody's place
		}
		m.reportSpeed(&m.Ports[i], at(old.Ports, i), p)
		m.reportMTU(m.Ports[i].Name, at(old.Ports, i), p)
		if i < len(old.Ports) && p.Up == old.Ports[i].Up && p.Ifindex == old.Ports[i].Ifindex {
			continue
		}
		level := slog.LevelInfo
		if !p.Up {
			level = slog.LevelWarn
		}
		m.Log.Log(context.Background(), level, "port", "interface", m.Ports[i].Name, "exists", p.Ifindex != 0, "up", p.Up,
			"ifindex", p.Ifindex, "mtu", p.MTU)
	}
	for i, p := range t.Peers {
		reached := i < len(old.Peers) && len(old.Peers[i].Hops) > 0
		if reached && old.Peers[i].VTEP == p.VTEP && len(p.Hops) > 0 {
			m.reportWays(old, t, i)
			continue
		}
		switch {
		case !p.VTEP.IsValid():
		case len(p.Hops) == 0 && (reached || i >= len(old.Peers)):
			m.Log.Warn("no route to peer by way of an uplink that is up", "vtep", p.VTEP)
		case len(p.Hops) > 0 && !reached:
			m.Log.Info("peer is routed", "vtep", p.VTEP, "next_hops", len(p.Hops))
		}
	}
}
