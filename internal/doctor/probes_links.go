package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/loomfabric/loom/internal/admin"
	"github.com/loomfabric/loom/internal/units"
)

// unequalSpeed looks for links of one node that differ in their rates. Where a leaf's
// weights differ, too, somebody has seen to it.
func unequalSpeed(n *Node, add adder) {
	if !n.leaf() {
		var ports []*admin.Port
		for i := range n.Ports {
			if p := &n.Ports[i]; towards(p) && p.Up && p.Open && p.Rate > 0 {
				ports = append(ports, p)
			}
		}
		if text, differ := rates(ports); differ {
			add(n.Name, n.loomctl("ports")+"; weights of the leaves' routes", "the links of spine %s have different rates: %s", n.Name, text)
		}
		return
	}
	for _, peer := range n.Peers {
		var ports []*admin.Port
		weights := make(map[uint16]bool)
		for _, h := range peer.NextHops {
			if p := n.port(h.Port); p != nil && p.Rate > 0 {
				ports = append(ports, p)
				weights[h.Weight] = true
			}
		}
		if text, differ := rates(ports); differ && len(weights) == 1 {
			add(peer.VTEP.String(), "weights of the routes, as in ip route … nexthop via GATEWAY weight 4; or scheme: conga",
				"the next hops of %v have links of different rates and the same weight: %s", peer.VTEP, text)
		}
	}
}

// rates lists ports with their rates, the slowest first, and reports whether these differ.
func rates(ports []*admin.Port) (text string, differ bool) {
	slices.SortStableFunc(ports, func(a, b *admin.Port) int { return cmp.Compare(a.Rate, b.Rate) })
	words := make([]string, len(ports))
	for i, p := range ports {
		words[i] = fmt.Sprintf("%s %v", p.Port, units.Rate(p.Rate))
	}
	return strings.Join(words, ", "), len(ports) > 1 && ports[0].Rate != ports[len(ports)-1].Rate
}

// end is a node's end of a link.
type end struct {
	n *Node
	p *admin.Port
}

// links returns the links that are known of both ends: a next hop of a leaf has the MAC
// address of a port of another node.
func links(all []*Node) (found [][2]end) {
	ports := make(map[string]end) // by MAC address
	for _, n := range all {
		for i := range n.Ports {
			ports[n.Ports[i].MAC] = end{n, &n.Ports[i]}
		}
	}
	seen := make(map[*admin.Port]bool)
	for _, n := range leaves(all) {
		for _, peer := range n.Peers {
			for _, h := range peer.NextHops {
				far, near := ports[h.MAC], n.port(h.Port)
				if h.Resolved && far.n != nil && far.n != n && near != nil && !seen[near] && !seen[far.p] {
					seen[near], seen[far.p] = true, true
					found = append(found, [2]end{{n, near}, far})
				}
			}
		}
	}
	return found
}

func unequalEnds(all []*Node, add nodeAdd) {
	for _, l := range links(all) {
		slow, fast := l[0], l[1]
		if slow.p.Rate > fast.p.Rate {
			slow, fast = fast, slow
		}
		if slow.p.Rate == 0 || slow.p.Rate == fast.p.Rate {
			continue
		}
		add(slow.n, slow.p.Port, slow.n.rateOf(slow.p), "%s has %v (%s), and %s of %s at the other end of the link has %v (%s)",
			slow.p.Port, units.Rate(slow.p.Rate), slow.p.RateFrom, fast.p.Port, fast.n.Name, units.Rate(fast.p.Rate), fast.p.RateFrom)
	}
}

// leastFrames is how many full frames a link's meter has to span: then it reads six or seven
// eighths of the rate just before a full link's next frame, and less with fewer.
const leastFrames = 4

// shortTau looks for links on which a frame takes so long that their meters fall to little
// between two frames, which is when the next one reads them.
func shortTau(n *Node, add adder) {
	tau, err := time.ParseDuration(n.Parameters.Fabric["congestion.tau"])
	if err != nil {
		return
	}
	for i := range n.Ports {
		p := &n.Ports[i]
		if !towards(p) || p.Rate == 0 || p.MTU == 0 {
			continue
		}
		frame := time.Duration(float64(p.MTU) * 8e9 / float64(p.Rate))
		if tau < leastFrames*frame {
			add(p.Port, fmt.Sprintf("congestion: {tau: %v} or more in the files of all nodes, flowlet_gap and ageing with it; then %s", (leastFrames*frame).Round(time.Microsecond), n.restart()),
				"a frame takes %v on %s, and its meter spans %v (congestion.tau): between two frames of a full link the metric falls, and schemes that go by load take it for less than full", frame.Round(time.Microsecond), p.Port, tau)
		}
	}
}

// rateOf says where a port's rate comes from, for somebody who has to change it.
func (n *Node) rateOf(p *admin.Port) string {
	switch p.RateFrom {
	case "shaper":
		return fmt.Sprintf("shaper: {rate: …} of %s in %s; then %s", p.Port, n.Parameters.File, n.reload())
	case "link_rate":
		return fmt.Sprintf("link_rate: of %s in %s; then %s", p.Port, n.Parameters.File, n.reload())
	}
	return n.command("ethtool %s", p.Port) + " shows what the card has agreed on with the other end"
}
