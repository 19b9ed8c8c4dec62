package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/loomfabric/loom/config/fabric"
	"github.com/loomfabric/loom/config/vocab"
	"github.com/loomfabric/loom/internal/ethtool"
	"github.com/loomfabric/loom/internal/namespace"
)

// buildNodes makes the namespaces of leaves and spines.
func (l *Lab) buildNodes(context.Context) error {
	for _, n := range l.nodes() {
		if err := namespace.Create(l.ns(n.Name)); err != nil {
			return err
		}
		settings := l.sysctls(n)
		err := l.in(n.Name, func() error {
			if err := sysctls(settings); err != nil || !isLeaf(n) && !l.frr() {
				return err
			}
			return addAddr("lo", hostNet(loopback(n)).String())
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// sysctls are the settings of a leaf's or a spine's kernel.
func (l *Lab) sysctls(n fabric.Node) [][2]string {
	settings := [][2]string{
		// Router solicitations and MLD would only disturb the accounts. Hosts' IPv6 passes a
		// leaf's access ports all the same.
		{"net.ipv6.conf.all.disable_ipv6", "1"},
		{"net.ipv6.conf.default.disable_ipv6", "1"},
		// With ECMP, traffic to a VTEP may arrive on another uplink than the one
		// that leads back.
		{"net.ipv4.conf.all.rp_filter", "0"},
		{"net.ipv4.conf.default.rp_filter", "0"},
		{"net.ipv4.fib_multipath_hash_policy", "1"}, // by ports: the VXLAN source port is the entropy
		// A link that failed at the other end is no next hop.
		{"net.ipv4.conf.all.ignore_routes_with_linkdown", "1"},
		{"net.ipv4.conf.default.ignore_routes_with_linkdown", "1"},
	}
	if !isLeaf(n) || l.frr() { // OSPF may send through a leaf; a gateway routes
		settings = append(settings, [2]string{"net.ipv4.ip_forward", "1"})
	}
	if l.File.Unnumbered() || l.File.IPv6() && !isLeaf(n) {
		settings = append(settings, [2]string{"net.ipv6.conf.all.forwarding", "1"}) // a router takes no default route from others
	}
	if l.File.Unnumbered() || l.File.IPv6() {
		settings = append(settings, [2]string{"net.ipv6.conf.all.keep_addr_on_down", "1"}) // sessions and next hops survive a link's fault
	}
	if l.File.IPv6() {
		settings = append(settings,
			[2]string{"net.ipv6.conf.lo.disable_ipv6", "0"},
			[2]string{"net.ipv6.fib_multipath_hash_policy", "1"},
			[2]string{"net.ipv6.conf.all.ignore_routes_with_linkdown", "1"},
			[2]string{"net.ipv6.conf.default.ignore_routes_with_linkdown", "1"})
	}
	return settings
}

// sysctls writes values below /proc/sys of the calling thread's namespace.
func sysctls(settings [][2]string) error {
	for _, s := range settings {
		path := filepath.Join("/proc/sys", strings.ReplaceAll(s[0], ".", "/"))
		if err := os.WriteFile(path, []byte(s[1]), 0); err != nil {
			return fmt.Errorf("sysctl %s=%s: %w", s[0], s[1], err)
		}
	}
	return nil
}

// connect makes a veth pair between a port of the calling thread's namespace and
// one of another node, with one queue (daemons run one worker), and leaves both ends
// down. A nil address is the kernel's choice.
func (l *Lab) connect(port string, mac net.HardwareAddr, peer, peerPort string, mtu int) error {
	ns, err := netns.GetFromName(l.ns(peer))
	if err != nil {
		return fmt.Errorf("namespace of %s: %w", peer, err)
	}
	defer ns.Close()
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.HardwareAddr, attrs.MTU = port, mac, mtu
	attrs.NumTxQueues, attrs.NumRxQueues = 1, 1
	veth := netlink.NewVeth(attrs)
	veth.PeerName, veth.PeerMTU, veth.PeerNamespace = peerPort, uint32(mtu), netlink.NsFd(ns)
	veth.PeerNumTxQueues, veth.PeerNumRxQueues = 1, 1
	if err := netlink.LinkAdd(veth); err != nil {
		return fmt.Errorf("veth %s to %s of %s: %w", port, peerPort, peer, err)
	}
	return nil
}

// buildLinks makes the leaf–spine links with their addresses.
func (l *Lab) buildLinks(ctx context.Context) error {
	for _, k := range l.Topo.Links {
		if err := ctx.Err(); err != nil {
			return err
		}
		err := l.in(l.Topo.Leaves[k.Leaf].Name, func() error {
			return l.connect(k.LeafPort, nil, l.Topo.Spines[k.Spine].Name, k.SpinePort, l.File.UnderlayMTU())
		})
		if err != nil {
			return fmt.Errorf("link %s: %w", k.Name, err)
		}
	}
	for _, n := range l.nodes() {
		err := l.in(n.Name, func() error {
			for _, p := range l.ports(n) {
				if err := errors.Join(without(p.Name, ethtool.TXChecksum), l.egress(n.Name, p.Name, p.egress), l.address(p), setUp(p.Name)); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// address gives a port its address, or lets the kernel choose one of IPv6's
// link-local ones, which is all that BGP unnumbered needs.
func (l *Lab) address(p port) error {
	if !l.File.Unnumbered() && !l.File.IPv6() {
		return addAddr(p.Name, p.addr.String()+"/31")
	}
	err := sysctls([][2]string{
		{"net.ipv6.conf." + p.Name + ".disable_ipv6", "0"},
		{"net.ipv6.conf." + p.Name + ".accept_dad", "0"}, // addresses are ours; do not wait a second
	})
	if err != nil || l.File.Unnumbered() {
		return err
	}
	return addAddr(p.Name, p.addr.String()+"/127")
}

// egress prepares a queue of a node's port. The daemons shape by themselves; the
// kernel's data plane needs a queue that shapes.
func (l *Lab) egress(node, port string, p vocab.Link) error {
	if l.File.KernelLeaf(node) && p.Rate > 0 {
		return tbf(port, uint64(p.Rate), uint32(p.Queue))
	}
	return pfifo(port)
}

// buildHosts makes the hosts and their access links.
func (l *Lab) buildHosts(ctx context.Context) error {
	for _, host := range l.Topo.Hosts {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := l.buildHost(host); err != nil {
			return fmt.Errorf("host %s: %w", host.Name, err)
		}
	}
	return nil
}

func (l *Lab) buildHost(host fabric.Host) error {
	if err := namespace.Create(l.ns(host.Name)); err != nil {
		return err
	}
	leaf := l.Topo.Leaves[host.Leaf].Name
	err := l.in(host.Name, func() error {
		if err := l.connect("eth0", host.MAC[:], leaf, host.Port, l.File.Hosts.MTU); err != nil {
			return err
		}
		if err := errors.Join(l.hostSettings(), l.hostOffloads("eth0")); err != nil {
			return err
		}
		if host.VLAN != 0 {
			if err := tagVLAN("eth0", host.VLAN); err != nil {
				return err
			}
		}
		err := errors.Join(
			pfifo("eth0"), setUp("eth0"), addAddr("eth0", host.Addr.String()), addAddr("eth0", host.Addr6.String()))
		if err == nil && host.Gateway.IsValid() {
			err = netlink.RouteReplace(&netlink.Route{Gw: host.Gateway.AsSlice()})
		}
		if err == nil && l.File.Subflows > 0 {
			err = takeSubflows(host.Addr.Addr(), l.File.Subflows)
		}
		return err
	})
	if err != nil {
		return err
	}
	return l.in(leaf, func() error { return errors.Join(l.egress(leaf, host.Port, host.Access), setUp(host.Port)) })
}

// hostOffloads sets what a host leaves to its interface, and what that does for it.
func (l *Lab) hostOffloads(name string) error {
	s, err := ethtool.Open()
	if err != nil {
		return err
	}
	defer s.Close()
	if l.File.Hosts.Checksums == "host" {
		err = s.Set(name, ethtool.TXChecksum, false)
	}
	if l.fastPath() != 0 {
		err = errors.Join(err, s.Set(name, ethtool.GRO, true))
	}
	return err
}

// hostSettings sets the kernel parameters that a run's results depend on, in the
// calling thread's namespace.
func (l *Lab) hostSettings() error {
	ecn := "0"
	if l.usesECN() {
		ecn = "1"
	}
	if err := sysctls([][2]string{
		{"net.ipv4.tcp_ecn", ecn},
		{"net.ipv4.tcp_no_metrics_save", "1"}, // a flow must not learn from the one before
		{"net.ipv6.conf.all.accept_dad", "0"},
		{"net.ipv6.conf.eth0.accept_dad", "0"},
		{"net.ipv6.conf.eth0.accept_ra", "0"},
	}); err != nil {
		return err
	}
	// EPERM: the kernel has it, but outside the first namespace it may be a
	// default only if net.ipv4.tcp_allowed_congestion_control lists it. A run chooses
	// it for each socket, so only exec's programs differ.
	err := sysctls([][2]string{{"net.ipv4.tcp_congestion_control", l.File.TCP}})
	if err != nil && !errors.Is(err, unix.EPERM) {
		have, _ := os.ReadFile("/proc/sys/net/ipv4/tcp_available_congestion_control")
		return fmt.Errorf("tcp %s: %w: this kernel has %s", l.File.TCP, err, strings.TrimSpace(string(have)))
	}
	return nil
}

// usesECN reports whether any port marks.
func (l *Lab) usesECN() bool {
	marks := false
	for _, k := range l.Topo.Links {
		marks = marks || k.Up.ECN.Kmax > 0 || k.Down.ECN.Kmax > 0
	}
	for _, h := range l.Topo.Hosts {
		marks = marks || h.Access.ECN.Kmax > 0
	}
	return marks
}
