package web

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/loomfabric/loom/internal/admin"
)

// Drops are news when so many frames a second are dropped for a reason, and so many
// times as many as lately. They are old news until it has been quiet for a while.
const (
	dropFloor  = 100
	dropFactor = 10
	dropQuiet  = 10 * time.Second
	// dropMemory is the weight of the newest rate in what is usual.
	dropMemory = 0.1
)

// eventState is what a node's events were told of.
type eventState struct {
	paths map[pathKey]string // paths that do not deliver, and how
	peers map[netip.Addr]string
	ports map[string]bool // access ports: up
}

type pathKey struct {
	vtep   netip.Addr
	uplink uint8
}

// dropWatch finds bursts of drops.
type dropWatch struct {
	usual map[dropKey]float64
	loud  map[dropKey]time.Time // when a burst was last above what is usual
}

type dropKey struct{ node, reason string }

// happened returns what is different from the round before.
func (m *model) happened(now time.Time, f *Frame) (all []*Event) {
	say := func(level, kind, node, format string, args ...any) {
		all = append(all, &Event{"event", now.UnixMilli(), level, kind, node, fmt.Sprintf(format, args...)})
	}
	for i, n := range m.nodes {
		if was := n.state; was != f.Nodes[i] {
			n.state = f.Nodes[i]
			switch {
			case n.state == NodeSilent && n.now == nil && was < 0:
				say("bad", "node", n.name, "no answer: %s", f.Why[i])
			case n.state == NodeSilent:
				say("bad", "node", n.name, "no answer any more: %s", f.Why[i])
			case n.state == NodeUnready:
				say("warn", "node", n.name, "not ready: %s", f.Why[i])
			case was >= 0:
				say("good", "node", n.name, "%s", map[int]string{NodeSilent: "answers again", NodeUnready: "ready again"}[was])
			default:
				say("info", "node", n.name, "%s answers, version %s", n.now.Role, n.now.Version)
			}
		}
		if n.fresh {
			n.changes(m.nameOf, say)
		}
	}
	for i, state := range f.Links {
		if m.links == nil || m.links[i] == state {
			continue
		}
		name, node := m.layout.Links[i].Name, m.pairs[i].a.node
		switch {
		case state == LinkDown:
			say("bad", "link", node, "link %s is down", name)
		case m.links[i] == LinkDown && state != LinkUnknown:
			say("good", "link", node, "link %s is up again", name)
		}
	}
	for i, n := range m.nodes {
		m.drops.look(now, n.name, f.Drops[i], say)
	}
	return all
}

// nameOf returns the name of the node with a VTEP.
func (m *model) nameOf(vtep netip.Addr) string {
	for _, n := range m.nodes {
		if n.now != nil && n.now.VTEP == vtep {
			return n.name
		}
	}
	return vtep.String()
}

type sayer func(level, kind, node, format string, args ...any)

// changes tells of peers, paths and access ports.
func (n *node) changes(name func(netip.Addr) string, say sayer) {
	was, s := n.events, n.now
	is := eventState{make(map[pathKey]string), make(map[netip.Addr]string), make(map[string]bool)}
	for _, peer := range s.Peers {
		is.peers[peer.VTEP] = peer.State
		switch before, known := was.peers[peer.VTEP]; {
		case was.peers == nil || before == peer.State:
		case !known:
			say("info", "peer", n.name, "peer %s is new", name(peer.VTEP))
		case peer.State == "capable":
			say("good", "peer", n.name, "peer %s speaks the fabric's header", name(peer.VTEP))
		case before == "capable":
			say("warn", "peer", n.name, "peer %s is %s, and is sent plain VXLAN", name(peer.VTEP), peer.State)
		}
	}
	for vtep := range was.peers {
		if _, ok := is.peers[vtep]; !ok {
			say("warn", "peer", n.name, "peer %s is gone", name(vtep))
		}
	}
	for _, peer := range s.Paths {
		for _, p := range peer.Paths {
			key := pathKey{peer.VTEP, p.Uplink}
			before := was.paths[key]
			switch state := p.State; {
			case pathStates[state] >= PathSilent:
				is.paths[key] = state
				if before != state {
					say("bad", "path", n.name, "path to %s by %s is %s", name(peer.VTEP), p.Port, state)
				}
			case before != "" && pathStates[state] == PathAlive:
				say("good", "path", n.name, "path to %s by %s delivers again, it was %s", name(peer.VTEP), p.Port, before)
			case before != "":
				is.paths[key] = before // nothing is known: it is not better
			}
		}
	}
	n.accessPorts(&is, was.ports, say)
	n.events = is
}

// accessPorts tells of ports that are no link of the fabric's.
func (n *node) accessPorts(is *eventState, was map[string]bool, say sayer) {
	for i := range n.now.Ports {
		p := &n.now.Ports[i]
		if inFabric(p) {
			continue
		}
		up := p.Up && p.Open
		is.ports[p.Port] = up
		switch before, known := was[p.Port]; {
		case was == nil || known && before == up:
		case !known:
			say("info", "port", n.name, "port %s is new", p.Port)
		case up:
			say("good", "port", n.name, "port %s is up again", p.Port)
		default:
			say("warn", "port", n.name, "port %s is down%s", p.Port, because(p))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(was)) {
		if _, ok := is.ports[name]; !ok {
			say("warn", "port", n.name, "port %s is gone", name)
		}
	}
}

func because(p *admin.Port) string {
	if p.Error == "" {
		return ""
	}
	return ": " + p.Error
}

// look finds out whether a node drops more than usual.
func (d *dropWatch) look(now time.Time, node string, drops map[string]float64, say sayer) {
	if d.usual == nil {
		d.usual, d.loud = make(map[dropKey]float64), make(map[dropKey]time.Time)
	}
	for _, reason := range slices.Sorted(maps.Keys(drops)) {
		k, x := dropKey{node, reason}, drops[reason]
		if x >= dropFloor && x >= dropFactor*d.usual[k] {
			if _, loud := d.loud[k]; !loud {
				say("warn", "drops", node, "drops %s, %.0f frames/s", reason, x)
			}
			d.loud[k] = now
		}
		if _, ok := d.usual[k]; !ok {
			d.usual[k] = 0
		}
	}
	for k := range d.usual {
		if k.node != node {
			continue
		}
		d.usual[k] += dropMemory * (drops[k.reason] - d.usual[k])
		since, loud := d.loud[k]
		if loud && now.Sub(since) > dropQuiet {
			delete(d.loud, k)
			loud = false
		}
		if !loud && d.usual[k] < 0.01 {
			delete(d.usual, k)
		}
	}
}
