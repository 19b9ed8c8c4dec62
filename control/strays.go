package control

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
)

// stray is a way to VTEPs that the kernel takes and Loom cannot.
type stray struct {
	name  string // of the interface
	encap Encap  // what the kernel puts packets into there; 0: the interface is no port
}

// strayTo is where a stray leads.
type strayTo struct {
	first netip.Prefix
	n     int // destinations
}

// note adds a route's next hops that the node cannot use although they are up. A default
// route none of whose next hops is ours is most likely that of a management network, and
// what is wrong is that there is no other one.
func (w *build) note(dst netip.Prefix, r *Route) {
	if r.Dst.Bits() == 0 && !slices.ContainsFunc(r.Hops, func(h NextHop) bool { _, ours := w.byIndex[h.Ifindex]; return ours }) {
		return
	}
	for _, h := range r.Hops {
		if port, ours := w.byIndex[h.Ifindex]; h.Dead || ours && (h.Encap == 0 || !w.t.Ports[port].Up) {
			continue
		}
		k := stray{w.names[h.Ifindex], h.Encap}
		to := w.strays[k]
		if to.n++; to.n == 1 {
			to.first = dst
		}
		w.strays[k] = to
	}
}

// problem says what a stray is, and what to do.
func (k stray) problem(to strayTo) (problem, fix string) {
	routes := fmt.Sprintf("the route to %v leads", to.first)
	if to.n > 1 {
		routes = fmt.Sprintf("routes to %v and %d more lead", to.first, to.n-1)
	}
	if k.encap != 0 {
		return fmt.Sprintf("%s over interface %s by way of an encapsulation of the kernel's (%v), which Loom does not make", routes, k.name, k.encap),
			"use routes without encap towards VTEPs"
	}
	return fmt.Sprintf("%s over interface %s, which is no port of Loom: nothing is sent there, and VXLAN that comes in there is left to the kernel", routes, k.name),
		fmt.Sprintf("list %s as a port towards the fabric, or keep routes to VTEPs off it", k.name)
}

func (k stray) compare(o stray) int {
	return cmp.Or(cmp.Compare(k.name, o.name), cmp.Compare(k.encap, o.encap))
}

// reportStrays logs strays that are new, and those that are no more.
func (m *Mirror) reportStrays() {
	now := m.builder.strays
	for _, k := range slices.SortedFunc(maps.Keys(now), stray.compare) {
		if _, was := m.strays[k]; !was {
			problem, fix := k.problem(now[k])
			m.Log.Warn(problem, "interface", k.name, "fix", fix)
		}
	}
	for _, k := range slices.SortedFunc(maps.Keys(m.strays), stray.compare) {
		if _, is := now[k]; !is {
			m.Log.Info("no route to a VTEP leads over an interface any more that Loom cannot use", "interface", k.name)
		}
	}
	m.strays = now
	unlisted := make(map[string]bool)
	for k := range now {
		if k.encap == 0 {
			unlisted[k.name] = true
		}
	}
	m.stats.Unlisted = len(unlisted)
}

// mostNamed is how many routes that went or returned at a time are named in the log.
const mostNamed = 8

// reportLost logs the destinations of a spine that have no next hop any more, or have one
// again. A leaf's are its peers, of which report tells.
func (m *Mirror) reportLost() {
	now := m.builder.lost()
	m.stats.Lost = len(now)
	if m.Overlay == nil {
		m.reportPrefixes(slog.LevelWarn, "no route to leaves by way of a port that is up", without(now, m.lost))
		m.reportPrefixes(slog.LevelInfo, "leaves are routed again", m.builder.routed(m.lost))
	}
	m.lost = now
}

func (m *Mirror) reportPrefixes(level slog.Level, message string, prefixes []netip.Prefix) {
	if len(prefixes) == 0 {
		return
	}
	named := prefixes[:min(len(prefixes), mostNamed)]
	m.Log.Log(context.Background(), level, message, "routes", len(prefixes), "prefixes", fmt.Sprint(named))
}

// without returns the prefixes of a that are not in b. Both are in order.
func without(a, b []netip.Prefix) (left []netip.Prefix) {
	for _, p := range a {
		if _, found := slices.BinarySearchFunc(b, p, comparePrefixes); !found {
			left = append(left, p)
		}
	}
	return left
}

func comparePrefixes(a, b netip.Prefix) int {
	return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
}

// lost returns the destinations, in order, that had a next hop within the last
// idRetention and have none.
func (b *Builder) lost() (lost []netip.Prefix) {
	for dst, p := range b.places {
		if !p.here() {
			lost = append(lost, dst)
		}
	}
	slices.SortFunc(lost, comparePrefixes)
	return lost
}

// routed returns those of the destinations that have a next hop.
func (b *Builder) routed(of []netip.Prefix) (routed []netip.Prefix) {
	for _, dst := range of {
		if p := b.places[dst]; p != nil && p.here() {
			routed = append(routed, dst)
		}
	}
	return routed
}

// here reports whether there is a next hop.
func (p *places) here() bool {
	return slices.ContainsFunc(p.of, func(x place) bool { return x.here })
}
