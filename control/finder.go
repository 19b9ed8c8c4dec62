package control

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/gaissmai/bart"

	"github.com/loomfabric/loom/config"
	"github.com/loomfabric/loom/dataplane"
	"github.com/loomfabric/loom/internal/natural"
)

// portRest is how long an interface stays a port after the last route over it has gone.
// It is longer than a routing daemon takes to start again: closing a port takes the XDP
// program off, and what comes in there meanwhile is the kernel's.
const portRest = 5 * time.Minute

// Finder finds out which interfaces are ports towards the fabric: those that the kernel's
// routes to VTEPs lead over. It remembers those that it found, in that order, so that a
// route that flaps closes no port. It is not safe for concurrent use.
type Finder struct {
	most  int // ports
	never map[string]string
	ports []foundPort
}

type foundPort struct {
	name string
	gone time.Time // since when no route leads over it; zero: one does
}

// Found is what a Finder knows at a time.
type Found struct {
	Ports []string // in the order in which they were found
	// Refused are interfaces that routes lead over and that cannot be ports, by name, and
	// why not.
	Refused []Refusal
	// Next is when to look again without an event; zero: not before one.
	Next time.Time
}

// Refusal is an interface that cannot be a port, and why.
type Refusal struct{ Name, Why string }

// NewFinder returns a finder of so many ports at most. never are interfaces that are to be
// none, and why: a leaf's access ports.
func NewFinder(most int, never map[string]string) *Finder { return &Finder{most: most, never: never} }

// Uplinks returns the interfaces of the next hops to peers: a leaf's uplinks. To a peer
// leads the route that `ip route get` would take, unless it is a default route: as long as
// no routing daemon has spoken, that is the management network's.
func (f *Finder) Uplinks(s *State, peers []netip.Addr, now time.Time) Found {
	table := new(bart.Table[*Route])
	for _, r := range living(s) {
		table.Insert(r.Dst, r)
	}
	var routes []*Route
	for _, p := range peers {
		if r, ok := table.Lookup(p); ok && r.Dst.Bits() > 0 {
			routes = append(routes, r)
		}
	}
	return f.follow(s, routes, now)
}

// Look is Uplinks for a leaf with that overlay, and SpinePorts for a spine, where it is
// nil, when nobody is to come back to it.
func (f *Finder) Look(s *State, overlay *config.Leaf) Found {
	return f.look(s, overlay, time.Time{})
}

func (f *Finder) look(s *State, overlay *config.Leaf, now time.Time) Found {
	if overlay != nil {
		return f.Uplinks(s, overlay.Peers, now)
	}
	return f.SpinePorts(s, now)
}

// WidestPort returns the largest MTU of the interfaces that can be ports towards the
// fabric; those above a page's do not count: a port that nobody has chosen yet must not make
// all buffers four times as large.
func WidestPort(s *State) (mtu int) {
	for i := range s.Links {
		if l := &s.Links[i]; unfit(l) == "" && l.MTU <= dataplane.PageMTU {
			mtu = max(mtu, l.MTU)
		}
	}
	return mtu
}

// SpinePorts returns the interfaces of the next hops of routes to single addresses, which
// is what leaves' and spines' loopbacks are: a spine's ports.
func (f *Finder) SpinePorts(s *State, now time.Time) Found {
	var routes []*Route
	for _, r := range living(s) {
		if r.Dst.IsSingleIP() {
			routes = append(routes, r)
		}
	}
	return f.follow(s, routes, now)
}

// living returns the routes that decide for their prefixes, whoever's the interfaces are:
// of each the first one with a next hop that is up.
func living(s *State) (routes []*Route) {
	up := make(map[int]bool, len(s.Links))
	for i := range s.Links {
		up[s.Links[i].Index] = s.Links[i].Up
	}
	for i := range s.Routes {
		r := &s.Routes[i]
		if n := len(routes); n > 0 && routes[n-1].Dst == r.Dst {
			continue
		}
		if r.Reject || slices.ContainsFunc(r.Hops, func(h NextHop) bool { return !h.Dead && up[h.Ifindex] }) {
			routes = append(routes, r)
		}
	}
	return routes
}

// follow brings the ports in line with the routes that count.
func (f *Finder) follow(s *State, routes []*Route, now time.Time) (found Found) {
	links := make(map[int]*Link, len(s.Links))
	for i := range s.Links {
		links[s.Links[i].Index] = &s.Links[i]
	}
	wanted := make(map[string]bool)
	for _, r := range routes {
		for _, h := range r.Hops {
			l := links[h.Ifindex]
			if l == nil || h.Dead || !l.Up || h.Encap != 0 || wanted[l.Name] {
				continue
			}
			if why := cmp.Or(f.never[l.Name], unfit(l)); why != "" {
				found.refuse(l.Name, why)
				continue
			}
			wanted[l.Name] = true
		}
	}
	found.Next = f.rest(wanted, now)
	var fresh []string
	for name := range wanted {
		if !slices.ContainsFunc(f.ports, func(p foundPort) bool { return p.name == name }) {
			fresh = append(fresh, name)
		}
	}
	slices.SortFunc(fresh, natural.Compare)
	for _, name := range fresh {
		if !f.room() {
			found.refuse(name, fmt.Sprintf("there are %d others, and no more are possible", f.most))
			continue
		}
		f.ports = append(f.ports, foundPort{name: name})
	}
	for _, p := range f.ports {
		found.Ports = append(found.Ports, p.name)
	}
	slices.SortFunc(found.Refused, func(a, b Refusal) int { return natural.Compare(a.Name, b.Name) })
	return found
}

// rest drops ports that no route has led over for long, and returns when the next one is.
func (f *Finder) rest(wanted map[string]bool, now time.Time) (next time.Time) {
	f.ports = slices.DeleteFunc(f.ports, func(p foundPort) bool {
		return !wanted[p.name] && !p.gone.IsZero() && now.Sub(p.gone) >= portRest
	})
	for i := range f.ports {
		p := &f.ports[i]
		switch {
		case wanted[p.name]:
			p.gone = time.Time{}
			continue
		case p.gone.IsZero():
			p.gone = now
		}
		if at := p.gone.Add(portRest); next.IsZero() || at.Before(next) {
			next = at
		}
	}
	return next
}

// room makes room for a port, at the cost of the one that has rested longest. It reports
// false if all are in use.
func (f *Finder) room() bool {
	if len(f.ports) < f.most {
		return true
	}
	oldest := -1
	for i, p := range f.ports {
		if !p.gone.IsZero() && (oldest < 0 || p.gone.Before(f.ports[oldest].gone)) {
			oldest = i
		}
	}
	if oldest < 0 {
		return false
	}
	f.ports = slices.Delete(f.ports, oldest, oldest+1)
	return true
}

func (f *Found) refuse(name, why string) {
	if r := (Refusal{name, why}); !slices.Contains(f.Refused, r) {
		f.Refused = append(f.Refused, r)
	}
}

// unfit says why an interface cannot be a port towards the fabric; "": it can. Devices
// that packets only pass through have no wire, and no queues for AF_XDP.
func unfit(l *Link) string {
	switch l.Kind {
	case "bridge", "vxlan", "dummy", "vrf", "geneve", "gre", "gretap", "ip6gre", "ip6tnl", "ipip", "sit", "vti", "xfrm", "wireguard", "ifb", "nlmon":
		return "it is a " + l.Kind + " device"
	case "bond", "team":
		return "it is a " + l.Kind + ": AF_XDP needs the queues of its members; take them out and route over each"
	}
	if l.Loopback {
		return "it is the loopback interface"
	}
	return ""
}

// find looks for ports after the state has changed or a port has rested, and returns
// when to look again at the latest.
func (m *Mirror) find(fresh bool, now time.Time) (next time.Time) {
	next = now.Add(resync)
	if m.Finder == nil || !m.pending[Links].listed || !m.pending[Routes].listed {
		return next
	}
	if !fresh && (m.found.Next.IsZero() || now.Before(m.found.Next)) {
		return earlier(next, cmp.Or(m.found.Next, next))
	}
	old := m.found
	m.found = m.Finder.look(&m.state, m.Overlay, now)
	for _, r := range m.found.Refused {
		if !slices.Contains(old.Refused, r) {
			m.Log.Warn("routes to VTEPs lead over an interface that cannot be a port", "interface", r.Name, "why", r.Why)
		}
	}
	if !slices.Equal(m.found.Ports, old.Ports) {
		m.Log.Info("ports towards the fabric, as routes have it", "interfaces", m.found.Ports)
		m.Found(m.found.Ports)
	}
	return earlier(next, cmp.Or(m.found.Next, next))
}
