package bridge

import (
	"errors"
	"fmt"

	"github.com/loomfabric/loom/overlay"
)

// errShort says that a message ends before the fixed part of its type does.
var errShort = errors.New("the message is too short")

// Attributes that golang.org/x/sys/unix does not have.
const (
	ndaNHID     = 13 // NDA_NH_ID
	ndaFlagsExt = 15 // NDA_FLAGS_EXT

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

// mac reads a MAC address. False: the value has another length.
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
