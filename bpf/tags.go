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
	netdevFeatures   = 3      // NETDEV_A_DEV_XDP_FEATURES
	netdevNDOXmit    = 1 << 2 // NETDEV_XDP_ACT_NDO_XMIT
)

// TellsTags reports whether the driver of an interface tells XDP programs in native
// mode which VLAN tags it took off frames. An older kernel's do not. It asks in the
// network namespace of the calling thread.
func TellsTags(ifindex int) (bool, error) {
	what, _, err := netdevFlags(ifindex, netdevRXMetadata)
	if err != nil {
		return false, fmt.Errorf("ask what the driver of interface %d tells XDP programs: %w", ifindex, err)
	}
	return what&netdevVLANTag != 0, nil
}

// TakesRedirects reports whether the driver of an interface takes frames that XDP programs
// of others redirect to it. Since Linux 6.3 it says so; of a veth pair an end does if the
// other one has NAPI, which XDP or GRO there bring. It asks in the network namespace of the
// calling thread.
func TakesRedirects(ifindex int) (bool, error) {
	what, known, err := netdevFlags(ifindex, netdevFeatures)
	if err == nil && !known {
		err = errors.New("the kernel does not say (since Linux 6.3)")
	}
	if err != nil {
		return false, fmt.Errorf("ask whether the driver of interface %d takes frames from XDP: %w", ifindex, err)
	}
	return what&netdevNDOXmit != 0, nil
}

// netdevFlags returns an attribute of an interface that is a set of flags, and whether
// there is one.
func netdevFlags(ifindex int, attribute uint16) (flags uint64, known bool, err error) {
	family, err := netlink.GenlFamilyGet(netdevFamily)
	if errors.Is(err, unix.ENOENT) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, err
	}
	req := nl.NewNetlinkRequest(int(family.ID), 0)
	// nl.Genlmsg would send two bytes that the kernel wants to be 0 as they are in memory.
	req.AddRawData([]byte{netdevGet, netdevVersion, 0, 0})
	req.AddRawData(nl.NewRtAttr(netdevIfindex, nl.Uint32Attr(uint32(ifindex))).Serialize())
	answers, err := req.Execute(unix.NETLINK_GENERIC, 0)
	if err != nil {
		return 0, false, err
	}
	for _, a := range answers {
		attrs, err := nl.ParseRouteAttr(a[nl.SizeofGenlmsg:])
		if err != nil {
			return 0, false, err
		}
		for _, attr := range attrs {
			if attr.Attr.Type == attribute && len(attr.Value) == 8 {
				return binary.NativeEndian.Uint64(attr.Value), true, nil
			}
		}
	}
	return 0, false, nil
}
