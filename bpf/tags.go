package bpf

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
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
