package lab

import (
	"errors"
	"fmt"
	"net"

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
	attrs.Name, attrs.MTU = fmt.Sprintf("br-%d", vni), fabric.HostMTU
	snooping := false // without a querier it only delays what hosts need at once
	bridge := &netlink.Bridge{LinkAttrs: attrs, MulticastSnooping: &snooping}
	attrs.Name = fmt.Sprintf("vx-%d", vni)
	tunnel := &netlink.Vxlan{
		LinkAttrs: attrs, VxlanId: int(vni), SrcAddr: n.VTEP.AsSlice(), Port: fabric.VXLANPort, Learning: true,
	}
	for _, link := range []netlink.Link{bridge, tunnel} {
		if err := netlink.LinkAdd(link); err != nil { // it fills in the index
			return fmt.Errorf("add %s: %w", link.Attrs().Name, err)
		}
	}
	for _, vtep := range l.others(n.Index, vni) {
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
	return setUp(bridge.Name)
}
