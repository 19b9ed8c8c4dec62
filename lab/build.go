package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/loomfabric/loom/config/fabric"
	"github.com/loomfabric/loom/config/vocab"
	"github.com/loomfabric/loom/internal/namespace"
)

// buildNodes makes the namespaces of leaves and spines.
func (l *Lab) buildNodes(context.Context) error {
	for _, n := range l.Topo.Leaves {
		if err := l.buildNode(n, false); err != nil {
			return err
		}
	}
	for _, n := range l.Topo.Spines {
		if err := l.buildNode(n, true); err != nil {
			return err
		}
	}
	return nil
}

func (l *Lab) buildNode(n fabric.Node, forward bool) error {
	if err := namespace.Create(l.ns(n.Name)); err != nil {
		return err
	}
	settings := [][2]string{
		// The fabric is IPv4; router solicitations and MLD would only disturb the
		// accounts. Hosts' IPv6 passes a leaf's access ports all the same.
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
	if forward {
		settings = append(settings, [2]string{"net.ipv4.ip_forward", "1"})
	}
	if err := namespace.Do(l.ns(n.Name), func() error { return sysctls(settings) }); err != nil {
		return fmt.Errorf("%s: %w", n.Name, err)
	}
	if !n.VTEP.IsValid() {
		return nil
	}
	h, err := openNS(l.ns(n.Name))
	if err != nil {
		return err
	}
	defer h.Close()
	return h.addAddr("lo", n.VTEP.String()+"/32")
}

func sysctls(settings [][2]string) error {
	for _, s := range settings {
		if err := sysctl(s[0], s[1]); err != nil {
			return err
		}
	}
	return nil
}

// buildLinks makes the leaf–spine links with their addresses.
func (l *Lab) buildLinks(ctx context.Context) error {
	for _, link := range l.Topo.Links {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := l.buildLink(link); err != nil {
			return fmt.Errorf("link %s: %w", link.Name, err)
		}
	}
	return nil
}

func (l *Lab) buildLink(link fabric.Link) error {
	leaf, err := openNS(l.ns(l.Topo.Leaves[link.Leaf].Name))
	if err != nil {
		return err
	}
	defer leaf.Close()
	spine, err := openNS(l.ns(l.Topo.Spines[link.Spine].Name))
	if err != nil {
		return err
	}
	defer spine.Close()
	if err := connect(end{leaf, link.LeafPort, nil}, end{spine, link.SpinePort, nil}, fabric.UnderlayMTU); err != nil {
		return err
	}
	for _, e := range []struct {
		h          *handle
		port, addr string
		p          vocab.Link
	}{
		{leaf, link.LeafPort, link.LeafAddr.String(), link.Up},
		{spine, link.SpinePort, link.SpineAddr.String(), link.Down},
	} {
		if err := errors.Join(l.egress(e.h, e.port, e.p), e.h.addAddr(e.port, e.addr+"/31"), e.h.setUp(e.port)); err != nil {
			return err
		}
	}
	return nil
}

// egress prepares a port's queue. The daemons shape by themselves; the kernel's data
// plane needs a queue that shapes.
func (l *Lab) egress(h *handle, port string, p vocab.Link) error {
	if l.kernel() && p.Rate > 0 {
		return h.tbf(port, uint64(p.Rate), uint32(p.Queue))
	}
	return h.pfifo(port)
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
	ns := l.ns(host.Name)
	if err := namespace.Create(ns); err != nil {
		return err
	}
	h, err := openNS(ns)
	if err != nil {
		return err
	}
	defer h.Close()
	leaf, err := openNS(l.ns(l.Topo.Leaves[host.Leaf].Name))
	if err != nil {
		return err
	}
	defer leaf.Close()
	err = connect(end{h, "eth0", net.HardwareAddr(host.MAC[:])}, end{leaf, host.Port, nil}, fabric.HostMTU)
	if err != nil {
		return err
	}
	if err := namespace.Do(ns, func() error { return errors.Join(noOffloads("eth0"), l.hostSettings()) }); err != nil {
		return err
	}
	if host.VLAN != 0 {
		if err := h.tagVLAN("eth0", host.VLAN); err != nil {
			return err
		}
	}
	return errors.Join(
		l.egress(leaf, host.Port, host.Access),
		h.pfifo("eth0"),
		leaf.setUp(host.Port),
		h.setUp("eth0"),
		h.addAddr("eth0", host.Addr.String()),
		h.addAddr("eth0", host.Addr6.String()))
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
	// default only if net.ipv4.tcp_allowed_congestion_control lists it. The
	// agents choose it for each socket, so only exec's programs differ.
	if err := sysctl("net.ipv4.tcp_congestion_control", l.File.TCP); err != nil && !errors.Is(err, unix.EPERM) {
		have, _ := os.ReadFile("/proc/sys/net/ipv4/tcp_available_congestion_control")
		return fmt.Errorf("tcp %s: %w: this kernel has %s", l.File.TCP, err, strings.TrimSpace(string(have)))
	}
	return nil
}

// usesECN reports whether any port marks.
func (l *Lab) usesECN() bool {
	for _, k := range l.Topo.Links {
		if k.Up.ECN.Kmax > 0 || k.Down.ECN.Kmax > 0 {
			return true
		}
	}
	for _, h := range l.Topo.Hosts {
		if h.Access.ECN.Kmax > 0 {
			return true
		}
	}
	return false
}
