package web

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/loomfabric/loom/internal/admin"
	"github.com/loomfabric/loom/internal/natural"
)

// end is one end of a link.
type end struct{ node, port string }

func (e end) compare(o end) int {
	return cmp.Or(natural.Compare(e.node, o.node), natural.Compare(e.port, o.port))
}

// pair is a link. The end at a leaf, or the lower one, is the first.
type pair struct{ a, b end }

// topology is which port is linked to which. A node knows the MAC addresses of its
// ports and of their neighbours; two nodes together say what a link is. What was seen
// stays known while a link is down and its neighbours are gone.
type topology struct {
	pairs map[pair]bool
}

// learn takes in what the nodes say of their ports and neighbours.
func (t *topology) learn(nodes map[string]*admin.Snapshot) {
	owners := make(map[string][]end) // of a MAC address
	ports := make(map[end]bool)
	for name, s := range nodes {
		for i := range s.Ports {
			if p := &s.Ports[i]; inFabric(p) {
				e := end{name, p.Port}
				ports[e] = true
				if p.MAC != "" && strings.Trim(p.MAC, "0:") != "" {
					owners[p.MAC] = append(owners[p.MAC], e)
				}
			}
		}
	}
	sees := make(map[end]map[end]bool) // neighbours by port
	for name, s := range nodes {
		for _, h := range s.NextHops {
			from := end{name, h.Port}
			for _, to := range owners[h.MAC] {
				if to.node != name && ports[from] {
					if sees[from] == nil {
						sees[from] = make(map[end]bool)
					}
					sees[from][to] = true
				}
			}
		}
	}
	if t.pairs == nil {
		t.pairs = make(map[pair]bool)
	}
	for from, all := range sees {
		for to := range all {
			// An address of several ports needs the other end's word for it.
			if sees[to][from] || len(all) == 1 {
				t.pairs[ordered(pair{from, to}, nodes)] = true
			}
		}
	}
	elsewhere := func(from, to end) bool { return len(sees[from]) > 0 && !sees[from][to] }
	for p := range t.pairs {
		if gone(nodes, ports, p.a) || gone(nodes, ports, p.b) || elsewhere(p.a, p.b) && elsewhere(p.b, p.a) {
			delete(t.pairs, p)
		}
	}
}

// gone reports whether a node that answers has no such port.
func gone(nodes map[string]*admin.Snapshot, ports map[end]bool, e end) bool {
	return nodes[e.node] != nil && !ports[e]
}

func inFabric(p *admin.Port) bool { return p.Kind != "access" }

// ordered puts a leaf's end first.
func ordered(p pair, nodes map[string]*admin.Snapshot) pair {
	aLeaf, bLeaf := isLeaf(nodes[p.a.node]), isLeaf(nodes[p.b.node])
	if bLeaf && !aLeaf || aLeaf == bLeaf && p.b.compare(p.a) < 0 {
		return pair{p.b, p.a}
	}
	return p
}

func isLeaf(s *admin.Snapshot) bool { return s != nil && s.VTEP.IsValid() }

// links lists the links, and the ports of the fabric whose other end is not known.
func (t *topology) links(nodes map[string]*admin.Snapshot) []pair {
	all := slices.Collect(maps.Keys(t.pairs))
	linked := make(map[end]bool)
	for _, p := range all {
		linked[p.a], linked[p.b] = true, true
	}
	for name, s := range nodes {
		for i := range s.Ports {
			if e := (end{name, s.Ports[i].Port}); inFabric(&s.Ports[i]) && !linked[e] {
				all = append(all, pair{a: e})
			}
		}
	}
	slices.SortFunc(all, func(x, y pair) int { return cmp.Or(x.a.compare(y.a), x.b.compare(y.b)) })
	return all
}
