package bpf

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/loomfabric/loom/internal/ethtool"
)

// The kernel's generic netlink family "netdev" (linux/netdev.h), since Linux 6.3.
const (
	netdevFamily     = "netdev"
	netdevVersion    = 1
	netdevGet        = 1      // NETDEV_CMD_DEV_GET
	netdevIfindex    = 1      // NETDEV_A_DEV_IFINDEX
	netdevRXMetadata = 5      // NETDEV_A_DEV_XDP_RX_METADATA_FEATURES, since 6.8
	netdevVLANTag    = 1 << 2 // NETDEV_XDP_RX_METADATA_VLAN_TAG
)

// TellsTags reports whether the driver of an interface tells XDP programs in native
// mode which VLAN tags it took off frames. An older kernel's do not. It asks in the
// network namespace of the calling thread.
func TellsTags(ifindex int) (bool, error) {
	family, err := netlink.GenlFamilyGet(netdevFamily)
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("ask what the driver of interface %d tells XDP programs: %w", ifindex, err)
	}
	req := nl.NewNetlinkRequest(int(family.ID), 0)
	// nl.Genlmsg would send two bytes that the kernel wants to be 0 as they are in memory.
	req.AddRawData([]byte{netdevGet, netdevVersion, 0, 0})
	req.AddRawData(nl.NewRtAttr(netdevIfindex, nl.Uint32Attr(uint32(ifindex))).Serialize())
	answers, err := req.Execute(unix.NETLINK_GENERIC, 0)
	if err != nil {
		return false, fmt.Errorf("ask what the driver of interface %d tells XDP programs: %w", ifindex, err)
	}
	for _, a := range answers {
		attrs, err := nl.ParseRouteAttr(a[nl.SizeofGenlmsg:])
		if err != nil {
			return false, fmt.Errorf("what the driver of interface %d tells XDP programs: %w", ifindex, err)
		}
		for _, attr := range attrs {
			if attr.Attr.Type == netdevRXMetadata && len(attr.Value) == 8 {
				return binary.NativeEndian.Uint64(attr.Value)&netdevVLANTag != 0, nil
			}
		}
	}
	return false, nil
}

// HidesTags says why XDP programs that drivers tell nothing may see frames of an
// interface without their VLAN tags, and what to do about it; "": they see all tags.
// It asks in the network namespace of the calling thread.
func HidesTags(ifindex int) (why, fix string, err error) {
	l, err := netlink.LinkByIndex(ifindex)
	if err != nil {
		return "", "", fmt.Errorf("find interface %d: %w", ifindex, err)
	}
	s, err := ethtool.Open()
	if err != nil {
		return "", "", err
	}
	defer s.Close()
	name := l.Attrs().Name
	if l.Type() == "veth" {
		return hiddenByPeer(s, l)
	}
	// A driver that does not tell of the offload does not have it.
	if strips, _ := s.Get(name, ethtool.RXVLAN); strips {
		return fmt.Sprintf("%s strips VLAN tags (rxvlan)", name), fmt.Sprintf("ethtool -K %s rxvlan off", name), nil
	}
	return "", "", nil
}

// hiddenByPeer is HidesTags for a veth: what it receives is as its peer sends it, and
// its own offload, which can be turned off, changes nothing.
func hiddenByPeer(s *ethtool.Socket, l netlink.Link) (why, fix string, err error) {
	name, a := l.Attrs().Name, l.Attrs()
	if a.NetNsID < 0 { // the peer is in this namespace
		if peer, err := netlink.LinkByIndex(a.ParentIndex); err == nil {
			p := peer.Attrs().Name
			on, err := s.Get(p, ethtool.TXVLAN)
			if err != nil || !on {
				return "", "", err
			}
			return fmt.Sprintf("%s, the peer of %s, hands VLAN tags over beside the frames (txvlan)", p, name),
				fmt.Sprintf("ethtool -K %s txvlan off", p), nil
		}
	}
	return fmt.Sprintf("the peer of %s, which is in another network namespace, may hand VLAN tags over beside the frames (txvlan)", name),
		"use a kernel of 6.8 or newer and native XDP, which see them", nil
}
