package bridge

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/loomfabric/loom/internal/rtnl"
	"github.com/loomfabric/loom/overlay"
)

// Entry is one half of what the kernel knows of an address: an entry of a bridge's
// FDB, or of a VXLAN device's.
type Entry struct {
	MAC   overlay.MAC
	VLAN  uint16 // of a bridge that filters VLANs; otherwise 0
	State uint16 // NUD_*
	Flags uint8  // NTF_*
	// Locked marks a source that a locked port has seen and not authorised.
	Locked bool
	// Cached tells whether the message has NDA_CACHEINFO. Bridges and VXLAN devices always
	// say it, and the general code that speaks for them in older kernels never does.
	Cached bool
	Index  int        // device behind which the address is
	Master int        // bridge that says so; 0: it is an entry of the device's own
	DST    netip.Addr // of a VXLAN device: the VTEP behind which it is
	Port   uint16     // of a VXLAN device: UDP port of that VTEP; 0: the device's
	SrcVNI uint32     // of a device with several VNIs: the VNI that it is looked up in
	VNI    uint32     // the VNI that packets carry; 0: the one that it is looked up in
	Via    int        // device by which packets leave; 0: as routes say
	NHID   uint32     // next-hop object, in place of DST: multihoming
}

// ndmsgSize is the size of struct ndmsg.
const ndmsgSize = 12

// parseEntry reads the payload of RTM_NEWNEIGH or RTM_DELNEIGH. False: it is not about a
// forwarding entry, or has no address.
func parseEntry(b []byte) (e Entry, ok bool) {
	if len(b) < ndmsgSize || b[0] != unix.AF_BRIDGE {
		return e, false
	}
	e.Index = rtnl.Index(b[4:8])
	e.State = binary.NativeEndian.Uint16(b[8:])
	e.Flags = b[10]
	for kind, v := range rtnl.Attributes(b[ndmsgSize:]) {
		switch kind {
		case unix.NDA_LLADDR:
			e.MAC, ok = mac(v)
		case unix.NDA_DST:
			e.DST = rtnl.Addr(v)
		case unix.NDA_CACHEINFO:
			e.Cached = true
		case unix.NDA_VLAN:
			e.VLAN = rtnl.Uint16(v)
		case unix.NDA_PORT:
			e.Port = rtnl.BE16(v)
		case unix.NDA_VNI:
			e.VNI = rtnl.Uint32(v)
		case unix.NDA_SRC_VNI:
			e.SrcVNI = rtnl.Uint32(v)
		case unix.NDA_IFINDEX:
			e.Via = rtnl.Index(v)
		case unix.NDA_MASTER:
			e.Master = rtnl.Index(v)
		case ndaNHID:
			e.NHID = rtnl.Uint32(v)
		case ndaFlagsExt:
			e.Locked = rtnl.Uint32(v)&flagsExtLocked != 0
		}
	}
	return e, ok && e.Index > 0 && e.Master >= 0
}
