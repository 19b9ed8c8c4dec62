package lab

import (
	"errors"
	"fmt"
	"net"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/loomfabric/loom/config/fabric"
	"github.com/loomfabric/loom/internal/namespace"
)

// kernelLeaf makes Linux itself carry a leaf's overlay. Each VNI has a bridge with
// the hosts' ports, and a vxlan device that replicates to the other leaves of the
// VNI. It is a baseline to compare with, and helps to tell a lab's fault from a
// daemon's. Beside a leafd it is the fallback: the daemon's XDP programs take the
// frames before the kernel sees them, as long as the daemon runs.
func (l *Lab) kernelLeaf(n fabric.Node) error {
	h, err := openNS(l.ns(n.Name))
	if err != nil {
		return err
	}
	defer h.Close()
	for _, vni := range l.Topo.VNIsOf(n.Index) {
		if err := l.kernelVNI(h, n, vni); err != nil {
			return fmt.Errorf("%s: VNI %d: %w", n.Name, vni, err)
		}
	}
	return nil
}

func (l *Lab) kernelVNI(h *handle, n fabric.Node, vni uint32) error {
	bridge, tunnel := fmt.Sprintf("br-%d", vni), fmt.Sprintf("vx-%d", vni)
	battrs := netlink.NewLinkAttrs()
	battrs.Name, battrs.MTU = bridge, fabric.HostMTU
	snooping := false // without a querier it only delays what hosts need at once
	if err := h.LinkAdd(&netlink.Bridge{LinkAttrs: battrs, MulticastSnooping: &snooping}); err != nil {
		return fmt.Errorf("add %s: %w", bridge, err)
	}
	br, err := h.LinkByName(bridge)
	if err != nil {
		return err
	}
	vattrs := netlink.NewLinkAttrs()
	vattrs.Name, vattrs.MTU = tunnel, fabric.HostMTU
	if err := h.LinkAdd(&netlink.Vxlan{
		LinkAttrs: vattrs, VxlanId: int(vni), SrcAddr: n.VTEP.AsSlice(), Port: fabric.VXLANPort, Learning: true,
	}); err != nil {
		return fmt.Errorf("add %s: %w", tunnel, err)
	}
	vx, err := h.LinkByName(tunnel)
	if err != nil {
		return err
	}
	for _, other := range l.Topo.Leaves {
		if other.Index == n.Index || !slices.Contains(l.Topo.VNIsOf(other.Index), vni) {
			continue
		}
		if err := h.NeighAppend(&netlink.Neigh{ // head-end replication: the all-zero address
			LinkIndex: vx.Attrs().Index, Family: unix.AF_BRIDGE, Flags: netlink.NTF_SELF,
			State: netlink.NUD_PERMANENT, HardwareAddr: make(net.HardwareAddr, 6), IP: other.VTEP.AsSlice(),
		}); err != nil {
			return fmt.Errorf("flood to %s: %w", other.VTEP, err)
		}
	}
	ports := []netlink.Link{vx}
	for _, host := range l.Topo.Hosts {
		if host.Leaf != n.Index || host.VNI != vni {
			continue
		}
		port, err := h.LinkByName(host.Port)
		if err != nil {
			return fmt.Errorf("%s: %w", host.Port, err)
		}
		ports = append(ports, port)
		if host.VLAN == 0 {
			continue
		}
		// The bridge works on untagged frames; the port tags and untags.
		err = errors.Join(namespace.Do(h.name, func() error { return noOffloads(host.Port) }), h.tagVLAN(host.Port, host.VLAN))
		if err != nil {
			return err
		}
	}
	for _, p := range ports {
		if err := errors.Join(h.LinkSetMaster(p, br), h.LinkSetUp(p)); err != nil {
			return fmt.Errorf("%s into %s: %w", p.Attrs().Name, bridge, err)
		}
	}
	return h.LinkSetUp(br)
}
