package bridge

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"net/netip"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/loomfabric/loom/overlay"
)

// errShort says that a message ends before the fixed part of its type does.
var errShort = errors.New("the message is too short")

// Attributes that golang.org/x/sys/unix does not have.
const (
	ndaNHID     = 13 // NDA_NH_ID
	ndaFlagsExt = 15 // NDA_FLAGS_EXT

	nhaFDB = 11 // NHA_FDB

	bridgeVLANInfo   = 2 // IFLA_BRIDGE_VLAN_INFO
	bridgeTunnelInfo = 3 // IFLA_BRIDGE_VLAN_TUNNEL_INFO

	vlanPVID       = 1 << 1 // BRIDGE_VLAN_INFO_PVID
	vlanUntagged   = 1 << 2 // BRIDGE_VLAN_INFO_UNTAGGED
	vlanRangeBegin = 1 << 3 // BRIDGE_VLAN_INFO_RANGE_BEGIN
	vlanRangeEnd   = 1 << 4 // BRIDGE_VLAN_INFO_RANGE_END

	vlanEntry      = 1 // BRIDGE_VLANDB_ENTRY
	vlanEntryInfo  = 1 // BRIDGE_VLANDB_ENTRY_INFO
	vlanEntryRange = 2 // BRIDGE_VLANDB_ENTRY_RANGE
	vlanEntryState = 3 // BRIDGE_VLANDB_ENTRY_STATE

	tunnelID    = 1 // IFLA_BRIDGE_VLAN_TUNNEL_ID
	tunnelVID   = 2 // IFLA_BRIDGE_VLAN_TUNNEL_VID
	tunnelFlags = 3 // IFLA_BRIDGE_VLAN_TUNNEL_FLAGS

	vnifilterEntry      = 1 // VXLAN_VNIFILTER_ENTRY
	vnifilterEntryStart = 1 // VXLAN_VNIFILTER_ENTRY_START
	vnifilterEntryEnd   = 2 // VXLAN_VNIFILTER_ENTRY_END

	multiBoolMST = 1 << 2 // BR_BOOLOPT_MST_ENABLE

	flagsExtLocked = 1 << 1 // NTF_EXT_LOCKED
)

// maxVLAN is the largest VLAN that can be used, 802.1Q.
const maxVLAN = 4094

// attributes yields the attributes of b: types without their flags, and values.
// It ends at the first one that does not fit into b.
func attributes(b []byte) iter.Seq2[uint16, []byte] {
	return func(yield func(uint16, []byte) bool) {
		for len(b) >= unix.SizeofRtAttr {
			size := int(binary.NativeEndian.Uint16(b))
			kind := binary.NativeEndian.Uint16(b[2:]) &^ (unix.NLA_F_NESTED | unix.NLA_F_NET_BYTEORDER)
			if size < unix.SizeofRtAttr || size > len(b) || !yield(kind, b[unix.SizeofRtAttr:size]) {
				return
			}
			b = b[min((size+3)&^3, len(b)):]
		}
	}
}

// The functions below read a value. One of another length than its type has is 0.

func u8(v []byte) uint8 {
	if len(v) != 1 {
		return 0
	}
	return v[0]
}

func u16(v []byte) uint16 {
	if len(v) != 2 {
		return 0
	}
	return binary.NativeEndian.Uint16(v)
}

func be16(v []byte) uint16 {
	if len(v) != 2 {
		return 0
	}
	return binary.BigEndian.Uint16(v)
}

func u32(v []byte) uint32 {
	if len(v) != 4 {
		return 0
	}
	return binary.NativeEndian.Uint32(v)
}

func index(v []byte) int { return int(int32(u32(v))) }

func text(v []byte) string { return strings.TrimRight(string(v), "\x00") }

func addr(v []byte) netip.Addr {
	a, _ := netip.AddrFromSlice(v)
	return a.Unmap()
}

func mac(v []byte) (m overlay.MAC, ok bool) {
	if len(v) != len(m) {
		return m, false
	}
	return overlay.MAC(v), true
}

// short returns the error for a message of n bytes.
func short(what string, n int) error {
	return fmt.Errorf("parse %s of %d bytes: %w", what, n, errShort)
}
