package bridge

import (
	"github.com/loomfabric/loom/internal/rtnl"
)

// vniRange is a range of VNIs that a device takes (vnifilter).
type vniRange struct{ first, last uint32 }

// tunnelMsgSize is the size of struct tunnel_msg.
const tunnelMsgSize = 8

// maxVNI is the largest VNI, RFC 7348.
const maxVNI = 1<<24 - 1

// parseVNIs reads the payload of RTM_NEWTUNNEL or RTM_DELTUNNEL.
func parseVNIs(b []byte) (ifindex int, vnis []vniRange, err error) {
	if len(b) < tunnelMsgSize {
		return 0, nil, short("a device's VNIs", len(b))
	}
	for kind, v := range rtnl.Attributes(b[tunnelMsgSize:]) {
		if kind != vnifilterEntry {
			continue
		}
		var r vniRange
		for kind, v := range rtnl.Attributes(v) {
			switch kind {
			case vnifilterEntryStart:
				r.first = rtnl.Uint32(v)
			case vnifilterEntryEnd:
				r.last = rtnl.Uint32(v)
			}
		}
		r.last = max(r.first, r.last)
		if r.first > 0 && r.last <= maxVNI {
			vnis = append(vnis, r)
		}
	}
	return rtnl.Index(b[4:8]), vnis, nil
}

// vlanMsgSize is the size of struct br_vlan_msg.
const vlanMsgSize = 8

// parseVLANStates reads the payload of RTM_NEWVLAN: VLANs of a port that do not forward.
// Messages of AF_BRIDGE about links do not say it.
func parseVLANStates(b []byte) (ifindex int, blocked []VLANState, err error) {
	if len(b) < vlanMsgSize {
		return 0, nil, short("a port's VLANs", len(b))
	}
	for kind, v := range rtnl.Attributes(b[vlanMsgSize:]) {
		if kind != vlanEntry {
			continue
		}
		x := VLANState{State: forwarding}
		for kind, v := range rtnl.Attributes(v) {
			switch kind {
			case vlanEntryInfo:
				if len(v) == 4 { // struct bridge_vlan_info
					x.First = rtnl.Uint16(v[2:])
				}
			case vlanEntryRange:
				x.Last = rtnl.Uint16(v)
			case vlanEntryState:
				x.State = rtnl.Uint8(v)
			}
		}
		x.Last = max(x.First, x.Last)
		if x.State != forwarding && x.First > 0 && x.Last <= maxVLAN {
			blocked = append(blocked, x)
		}
	}
	return rtnl.Index(b[4:8]), blocked, nil
}
