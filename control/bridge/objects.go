package bridge

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"

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

// NextHop is a next-hop object for forwarding entries: a VTEP, or a group of such
// objects. An entry with one is of a host that several leaves have (RFC 7432).
type NextHop struct {
	VTEP  netip.Addr
	Group []Weighted // nil: it is no group
}

// Weighted is a member of a group of next-hop objects.
type Weighted struct {
	ID     uint32
	Weight uint16 // from 1
}

// nhmsgSize is the size of struct nhmsg, and groupSize of struct nexthop_grp.
const (
	nhmsgSize = 8
	groupSize = 8
)

// parseNextHop reads the payload of RTM_NEWNEXTHOP or RTM_DELNEXTHOP. fdb is whether the
// object is for forwarding entries.
func parseNextHop(b []byte) (id uint32, h NextHop, fdb bool, err error) {
	if len(b) < nhmsgSize {
		return 0, h, false, short("a next-hop object", len(b))
	}
	for kind, v := range rtnl.Attributes(b[nhmsgSize:]) {
		switch kind {
		case unix.NHA_ID:
			id = rtnl.Uint32(v)
		case unix.NHA_GATEWAY:
			h.VTEP = rtnl.Addr(v)
		case nhaFDB:
			fdb = true
		case unix.NHA_GROUP:
			for ; len(v) >= groupSize; v = v[groupSize:] {
				// weight_high came with Linux 6.13 into what was 0 before.
				weight := uint16(v[4]) + uint16(v[5])<<8 + 1
				h.Group = append(h.Group, Weighted{ID: binary.NativeEndian.Uint32(v), Weight: weight})
			}
		}
	}
	return id, h, fdb, nil
}
