package doctor

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/loomfabric/loom/internal/admin"
)

// route returns a spine's longest prefix to an address; nil: there is none.
func (n *Node) route(to netip.Addr) (longest *admin.Route) {
	for i := range n.Routes {
		if r := &n.Routes[i]; r.Prefix.Contains(to) && (longest == nil || r.Prefix.Bits() > longest.Prefix.Bits()) {
			longest = r
		}
	}
	return longest
}

// eachWay calls look for each spine and each leaf that has a link to it or to a neighbour
// of it, with the spine's ports of links to that leaf.
func eachWay(all []*Node, look func(spine, leaf *Node, links []string)) {
	for _, s := range all {
		if s.leaf() {
			continue
		}
		for _, l := range leaves(all) {
			var links []string
			for i := range s.Ports {
				if p := &s.Ports[i]; p.Up && p.Open && l.nextTo(p.MAC) {
					links = append(links, p.Port)
				}
			}
			look(s, l, links)
		}
	}
}

// nextTo reports whether a leaf has a next hop with this MAC address.
func (n *Node) nextTo(mac string) bool {
	return slices.ContainsFunc(n.Peers, func(p admin.Peer) bool {
		return slices.ContainsFunc(p.NextHops, func(h admin.NextHop) bool { return h.Resolved && h.MAC == mac })
	})
}

func spineNoRoute(all []*Node, add nodeAdd) {
	eachWay(all, func(s, l *Node, _ []string) {
		if v := l.Parameters.VTEP; v.IsValid() {
			if r := s.route(v); r == nil || len(r.NextHops) == 0 {
				add(s, v.String(), s.command("ip route get %v", v), "spine %s has no route to %s (%v) by way of a port that is up: what others send there by it is dropped", s.Name, l.Name, v)
			}
		}
	})
}

func spineFewerRoutes(all []*Node, add nodeAdd) {
	eachWay(all, func(s, l *Node, links []string) {
		v := l.Parameters.VTEP
		r := s.route(v)
		if r == nil {
			return
		}
		missing := slices.DeleteFunc(slices.Clone(links), func(p string) bool {
			return slices.ContainsFunc(r.NextHops, func(h admin.NextHop) bool { return h.Port == p })
		})
		if len(missing) > 0 && len(missing) < len(links) {
			add(s, v.String(), s.command("ip route show %v", v), "spine %s has %d links to %s (%v), and its route there does not use %s", s.Name, len(links), l.Name, v, strings.Join(missing, ", "))
		}
	})
}
