package lab

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/loomfabric/loom/config/fabric"
)

// kernelLeaf makes Linux itself carry a leaf's overlay. Each VNI has a bridge with
// the hosts' ports, and a vxlan device that replicates to the other leaves of the
// VNI. It is a baseline to compare with, and helps to tell a lab's fault from a
// daemon's. Beside a leafd it is the fallback: the daemon's XDP programs take the
// frames before the kernel sees them, as long as the daemon runs.
func (l *Lab) kernelLeaf(n fabric.Node) error {
	return l.in(n.Name, func() error {
		// A kernel with br_netfilter has nft's and iptables' rules look at what bridges
		// forward, of which there are none here.
		err := sysctls([][2]string{
			{"net.bridge.bridge-nf-call-iptables", "0"},
			{"net.bridge.bridge-nf-call-ip6tables", "0"},
			{"net.bridge.bridge-nf-call-arptables", "0"},
		})
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		for _, vni := range l.Topo.VNIsOf(n.Index) {
			if err := l.kernelVNI(n, vni); err != nil {
				return fmt.Errorf("VNI %d: %w", vni, err)
			}
		}
		return nil
	})
}

// kernelVNI builds a VNI's bridge in the calling thread's namespace.
func (l *Lab) kernelVNI(n fabric.Node, vni uint32) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU = fmt.Sprintf("br-%d", vni), l.File.Hosts.MTU
	snooping := false // without a querier it only delays what hosts need at once
	bridge := &netlink.Bridge{LinkAttrs: attrs, MulticastSnooping: &snooping}
	attrs.Name = fmt.Sprintf("vx-%d", vni)
	tunnel := &netlink.Vxlan{
		LinkAttrs: attrs, VxlanId: int(vni), SrcAddr: n.VTEP.AsSlice(), Port: fabric.VXLANPort, TTL: 64,
		Learning: !l.File.FRR.EVPN,
	}
	if err := netlink.LinkAdd(bridge); err != nil { // it fills in the index
		return fmt.Errorf("add %s: %w", bridge.Name, err)
	}
	if err := addVXLAN(tunnel, l.File.ReservedBits); err != nil {
		return fmt.Errorf("add %s: %w", tunnel.Name, err)
	}
	flood := l.others(n.Index, vni)
	if l.File.FRR.EVPN {
		flood = nil // FRR writes what BGP says
	}
	for _, vtep := range flood {
		if err := netlink.NeighAppend(&netlink.Neigh{ // head-end replication: the all-zero address
			LinkIndex: tunnel.Index, Family: unix.AF_BRIDGE, Flags: netlink.NTF_SELF,
			State: netlink.NUD_PERMANENT, HardwareAddr: make(net.HardwareAddr, 6), IP: vtep.AsSlice(),
		}); err != nil {
			return fmt.Errorf("flood to %s: %w", vtep, err)
		}
	}
	ports := []string{tunnel.Name}
	for _, host := range l.members(n.Index) {
		if host.VNI != vni {
			continue
		}
		ports = append(ports, host.Port)
		if host.VLAN == 0 {
			continue
		}
		// The bridge works on untagged frames; the port tags and untags.
		if err := tagVLAN(host.Port, host.VLAN); err != nil {
			return err
		}
	}
	for _, p := range ports {
		err := withLink(p, "join "+bridge.Name, func(link netlink.Link) error {
			return errors.Join(netlink.LinkSetMaster(link, bridge), netlink.LinkSetUp(link))
		})
		if err != nil {
			return err
		}
	}
	if l.File.FRR.EVPN {
		if err := evpnBridge(bridge, tunnel, l.gateway(vni)); err != nil {
			return err
		}
	}
	return setUp(bridge.Name)
}

// gateway returns the address that a VNI's bridge has; invalid if it has none.
func (l *Lab) gateway(vni uint32) (p netip.Prefix) {
	for _, h := range l.Topo.Hosts {
		if h.VNI == vni && h.Gateway.IsValid() {
			p = netip.PrefixFrom(h.Gateway, h.Addr.Bits())
		}
	}
	return p
}

// anycastMAC is the MAC address of the gateways of all leaves, one of VRRP's.
var anycastMAC = net.HardwareAddr{0, 0, 0x5e, 0, 1, 1}

// evpnBridge has a bridge believe BGP about what is behind its vxlan device, and answer
// ARP for the addresses that it knows. A gateway gives it an address.
func evpnBridge(bridge, tunnel netlink.Link, gateway netip.Prefix) error {
	if err := errors.Join(netlink.LinkSetLearning(tunnel, false), netlink.LinkSetBrNeighSuppress(tunnel, true)); err != nil {
		return fmt.Errorf("%s: %w", tunnel.Attrs().Name, err)
	}
	if !gateway.IsValid() {
		return nil
	}
	if err := netlink.LinkSetHardwareAddr(bridge, anycastMAC); err != nil {
		return fmt.Errorf("%s: address %s: %w", bridge.Attrs().Name, anycastMAC, err)
	}
	return addAddr(bridge.Attrs().Name, gateway.String())
}

// floodLists returns an error while FRR has not told the kernel of a leaf to whom a
// VNI's broadcasts go.
func (l *Lab) floodLists() error {
	if !l.File.FRR.EVPN {
		return nil
	}
	for _, n := range l.Topo.Leaves {
		err := l.in(n.Name, func() error {
			for _, vni := range l.Topo.VNIsOf(n.Index) {
				have, err := floodList(fmt.Sprintf("vx-%d", vni))
				if err != nil {
					return err
				}
				for _, vtep := range l.others(n.Index, vni) {
					if !slices.Contains(have, vtep) {
						return fmt.Errorf("VNI %d: BGP has no flood list with %s yet", vni, vtep)
					}
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

// floodList lists the VTEPs that a vxlan device sends broadcasts to.
func floodList(name string) (vteps []netip.Addr, err error) {
	err = withLink(name, "flood list", func(link netlink.Link) error {
		list, err := netlink.NeighList(link.Attrs().Index, unix.AF_BRIDGE)
		for _, n := range list {
			zero := n.HardwareAddr.String() == "00:00:00:00:00:00"
			if vtep, ok := netip.AddrFromSlice(n.IP); ok && zero && n.Flags&netlink.NTF_SELF != 0 {
				vteps = append(vteps, vtep.Unmap())
			}
		}
		return err
	})
	return vteps, err
}
