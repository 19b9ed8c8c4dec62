package doctor

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/loomfabric/loom/dataplane"
	"github.com/loomfabric/loom/internal/admin"
	"github.com/loomfabric/loom/liveness"
	"github.com/loomfabric/loom/overlay"
)

func linkDown(n *Node, add adder) {
	if n.Machine == nil {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(n.Machine.Links)) {
		if !n.Machine.Links[name].AdminUp {
			add(name, n.command("ip link set dev %s up", name), "%s is administratively down", name)
		}
	}
}

func carrier(n *Node, add adder) {
	for i := range n.Ports {
		p := &n.Ports[i]
		if l := n.link(p.Port); towards(p) && !p.Up && p.Error == "" && (l == nil || l.AdminUp) {
			add(p.Port, n.command("ip link show dev %s", p.Port)+"; then cable, optics, and the port at the other end", "%s has no carrier", p.Port)
		}
	}
}

// link returns what is known of a port's interface; nil: nothing.
func (n *Node) link(name string) *Link {
	if n.Machine == nil {
		return nil
	}
	return n.Machine.Links[name]
}

func portClosed(n *Node, add adder) {
	for i := range n.Ports {
		if p := &n.Ports[i]; !p.Open && (towards(p) || n.link(p.Port) != nil) {
			add(p.Port, n.loomctl("ports"), "%s is not open: %s", p.Port, either(p.Error == "", "its sockets are not bound", p.Error))
		}
	}
}

func queues(n *Node, add adder) {
	w := n.Parameters.Workers
	eachLink(n, func(name string, l *Link) {
		if l.RX != w || l.TX < w {
			add(name, n.command("ethtool -L %s combined %d", name, w), "%s has %d receive and %d transmit queues for %d workers", name, l.RX, l.TX, w)
		}
	})
}

// eachLink looks at the ports' interfaces that exist.
func eachLink(n *Node, look func(name string, l *Link)) {
	if n.Machine == nil {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(n.Machine.Links)) {
		look(name, n.Machine.Links[name])
	}
}

func rss(n *Node, add adder) {
	eachLink(n, func(name string, l *Link) {
		p := n.port(name)
		if p == nil || !towards(p) || n.Parameters.Workers < 2 {
			return
		}
		for _, f := range slices.Sorted(maps.Keys(l.HashesPorts)) {
			if !l.HashesPorts[f] {
				add(name, n.command("ethtool -N %s rx-flow-hash %v sdfn", name, f), "%s chooses the receive queue of %v without ports: all that comes from a leaf goes to one worker", name, f)
			}
		}
	})
}

func mtu(n *Node, add adder) {
	for i := range n.Ports {
		if p := &n.Ports[i]; towards(p) && p.MTU > 0 && p.MTU < p.MTUNeeded {
			add(p.Port, n.command("ip link set dev %s mtu %d", p.Port, p.MTUNeeded), "%s has MTU %d, and needs %d: longer packets are dropped", p.Port, p.MTU, p.MTUNeeded)
		}
	}
}

func mtuFabric(all []*Node, add nodeAdd) {
	need, asks := 0, ""
	for _, n := range leaves(all) {
		for i := range n.Ports {
			if p := &n.Ports[i]; towards(p) && p.MTUNeeded > need {
				need, asks = p.MTUNeeded, n.Name
			}
		}
	}
	for _, n := range all {
		for i := range n.Ports {
			if p := &n.Ports[i]; towards(p) && p.MTU > 0 && p.MTU < need {
				add(n, p.Port, n.command("ip link set dev %s mtu %d", p.Port, need), "%s of %s has MTU %d, and %s sends packets of %d", p.Port, n.Name, p.MTU, asks, need)
			}
		}
	}
}

func speed(n *Node, add adder) {
	for i := range n.Ports {
		if p := &n.Ports[i]; towards(p) && p.Up && p.Open && p.Rate == 0 {
			add(p.Port, fmt.Sprintf("link_rate: 10Gbit (or what it is) for %s in %s; then %s", p.Port, n.Parameters.File, n.reload()), "the speed of %s is unknown: its load is not metered", p.Port)
		}
	}
}

func genericXDP(n *Node, add adder) {
	for i := range n.Ports {
		if p := &n.Ports[i]; p.Open && p.XDPMode == "generic" {
			add(p.Port, "a driver with native XDP; xdp_mode: native in "+n.Parameters.File+" has the log say why it is not", "%s has its XDP program in generic mode", p.Port)
		}
	}
}

// zeroCopy are drivers that have AF_XDP's zero-copy mode in every release that Loom runs on.
var zeroCopy = []string{"i40e", "ixgbe", "ice", "igb", "igc", "mlx5_core", "stmmac"}

func copyMode(n *Node, add adder) {
	eachLink(n, func(name string, l *Link) {
		if p := n.port(name); p != nil && p.Open && p.CopyMode == "copy" && slices.Contains(zeroCopy, l.Driver) {
			add(name, "copy_mode: zerocopy in "+n.Parameters.File+" has the log say why; then "+n.restart(), "%s is in copy mode, and its driver %s has zero-copy", name, l.Driver)
		}
	})
}

func lro(n *Node, add adder) {
	eachLink(n, func(name string, l *Link) {
		if l.LRO {
			add(name, n.command("ethtool -K %s lro off", name), "%s makes one frame of several segments (LRO): they are longer than a buffer, and cannot be forwarded as they came", name)
		}
	})
}

func promiscuity(n *Node, add adder) {
	eachLink(n, func(name string, l *Link) {
		if p := n.port(name); p != nil && p.Kind == "access" && p.Open && l.Promiscuity == 0 && !n.Parameters.KernelOverlay {
			add(name, n.restart(), "access port %s takes frames to its own address only: those to hosts elsewhere do not come in", name)
		}
	})
}

func noRoute(n *Node, add adder) {
	for _, p := range n.Peers {
		if len(p.NextHops) == 0 {
			add(p.VTEP.String(), n.command("ip route get %v", p.VTEP), "no route leads to peer %v by an uplink that is up", p.VTEP)
		}
	}
}

func fewerRoutes(n *Node, add adder) {
	used := make(map[string]bool) // uplinks that lead to any peer
	for _, p := range n.Peers {
		for _, h := range p.NextHops {
			used[h.Port] = true
		}
	}
	if len(n.Peers) == 1 { // there is nothing to compare with but the uplinks
		for _, u := range n.uplinks() {
			used[u] = true
		}
	}
	for _, p := range n.Peers {
		var missing []string
		for _, u := range n.uplinks() {
			if used[u] && !slices.ContainsFunc(p.NextHops, func(h admin.NextHop) bool { return h.Port == u }) {
				missing = append(missing, u)
			}
		}
		if len(missing) > 0 && len(p.NextHops) > 0 {
			add(p.VTEP.String(), n.command("ip route show %v", p.VTEP), "the route to %v leads over %d uplinks, and not over %s", p.VTEP, len(p.NextHops), strings.Join(missing, ", "))
		}
	}
}

func neighbour(n *Node, add adder) {
	type hop struct {
		port    string
		gateway netip.Addr
	}
	seen := make(map[hop]bool)
	for _, p := range n.Peers {
		for _, h := range p.NextHops {
			if k := (hop{h.Port, h.Gateway}); !h.Resolved && !seen[k] {
				seen[k] = true
				add(h.Port, n.command("ip neigh flush to %v", h.Gateway), "neighbour %v behind %s does not answer", h.Gateway, h.Port)
			}
		}
	}
}

func path(n *Node, add adder) {
	for _, peer := range n.Paths {
		var bad, ports []string
		for _, p := range peer.Paths {
			if p.State == liveness.Silent.String() || p.State == liveness.Lossy.String() {
				bad, ports = append(bad, fmt.Sprintf("%s is %s (loss %.1f%%)", p.Port, p.State, 100*p.Loss)), append(ports, p.Port)
			}
		}
		if bad != nil {
			add(peer.VTEP.String(), fmt.Sprintf("on the nodes behind %s: ip route get %v; loomctl doctor", strings.Join(ports, ", "), peer.VTEP), "of the paths to %v, that by %s", peer.VTEP, strings.Join(bad, ", that by "))
		}
	}
}

func pathMTU(n *Node, add adder) {
	for _, peer := range n.Paths {
		for _, p := range peer.Paths {
			if p.State == liveness.Narrow.String() {
				add(p.Port, n.command("ip link show dev %s", p.Port)+"; the MTU of each link behind it", "long packets to %v do not get through by %s, short ones do", peer.VTEP, p.Port)
			}
		}
	}
}

func plainPeer(n *Node, add adder) {
	for _, p := range n.Peers {
		if p.State == overlay.Silent.String() {
			add(p.VTEP.String(), fmt.Sprintf("ping %v; systemctl status leafd on that machine", p.VTEP), "peer %v has fallen silent, and is sent plain VXLAN", p.VTEP)
		}
	}
}

// allSelectors is how many selectors a HELLO goes by, one after the other.
const allSelectors = 16

func polarisation(n *Node, add adder) {
	for _, peer := range n.Paths {
		came := make(map[string]bool)
		for _, a := range peer.Arrivals {
			for _, port := range a.Ports {
				came[port] = true
			}
		}
		known := !slices.ContainsFunc(peer.Arrivals, func(a dataplane.Arrival) bool { return a.Selectors < allSelectors })
		if len(peer.Arrivals) == 0 || !known {
			continue // it has not said enough yet
		}
		var missing []string
		for _, p := range peer.Paths {
			if x := n.port(p.Port); x != nil && x.Up && !came[p.Port] {
				missing = append(missing, p.Port)
			}
		}
		if len(missing) > 0 {
			add(peer.VTEP.String(), fmt.Sprintf("on the nodes behind %s: ip route show %v; sysctl net.ipv4.fib_multipath_hash_policy", strings.Join(missing, ", "), n.Parameters.VTEP),
				"what %v sends, by %d uplinks with %d selectors and as many outer ports, arrives by %d of %d uplinks: nothing comes by %s",
				peer.VTEP, len(peer.Arrivals), allSelectors, len(came), len(peer.Paths), strings.Join(missing, ", "))
		}
	}
}
