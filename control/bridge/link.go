package bridge

import (
	"encoding/binary"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/loomfabric/loom/internal/rtnl"
	"github.com/loomfabric/loom/overlay"
)

// Link is a network interface: what bridging needs of it. A Link is not changed once
// others have it.
type Link struct {
	Index  int
	Name   string
	Kind   string // "bridge", "vxlan", "veth" …; "": hardware
	MAC    overlay.MAC
	MTU    int
	Up     bool   // administratively
	Master int    // bridge, bond or VRF that it is a member of; 0: none
	Lower  int    // interface that it is on; 0: none, or one of another namespace
	XDP    uint32 // ID of the XDP program on it; 0: none

	VLAN     uint16 // of kind vlan: its VLAN
	Protocol uint16 // of kind vlan: its EtherType

	Bridge *Bridge // of kind bridge; otherwise nil
	VXLAN  *VXLAN  // of kind vxlan; otherwise nil
	Member *Member // of a member of a bridge; otherwise nil

	VLANs   []VLANRange   // of a member of a bridge that filters VLANs, and of the bridge
	Tunnels []TunnelRange // of a member with vlan_tunnel
	Blocked []VLANState   // VLANs of a member that do not forward though the member does
}

// Bridge is what a bridge says of itself.
type Bridge struct {
	Filtering bool          // it filters VLANs
	Protocol  uint16        // EtherType of its VLANs
	Ageing    time.Duration // of addresses; 0: they do not age
	MST       bool          // each VLAN has a state of its own
	Netfilter bool          // its frames pass iptables' rules, whatever the sysctl says
}

// VXLAN is what a VXLAN device says of itself.
type VXLAN struct {
	VNI       uint32 // of a device with one VNI
	Local     netip.Addr
	Port      uint16 // UDP
	External  bool   // collect_metadata: the VNI comes with each frame
	VNIFilter bool   // it takes only the VNIs that were given to it
	Learning  bool
	// ZeroChecksum says that over IPv6 it takes UDP checksums of zero (udp6zerocsumrx).
	ZeroChecksum bool
	// Extension names a change of the header: "gbp", "gpe", "remcsum"; "": none.
	Extension string
	Reserved  uint64 // bits of the header that have to be 0 in what the device takes
}

// Member is the state of a bridge's port.
type Member struct {
	State    uint8 // STP: BR_STATE_*
	Learning bool
	Isolated bool
	Locked   bool
	Tunnel   bool // vlan_tunnel: a VLAN has the VNI of Tunnels
}

// forwarding is BR_STATE_FORWARDING.
const forwarding = 3

// VLANRange is a range of VLANs that a port is a member of.
type VLANRange struct {
	First, Last uint16
	PVID        bool // untagged frames are of it
	Untagged    bool // its frames leave without tag
}

// VLANState is the state of a range of VLANs on a port, which a daemon with a spanning tree
// for each VLAN sets.
type VLANState struct {
	First, Last uint16
	State       uint8 // BR_STATE_*
}

// state returns the state of a VLAN on a port.
func (l *Link) state(vlan uint16) uint8 {
	for _, b := range l.Blocked {
		if b.First <= vlan && vlan <= b.Last {
			return b.State
		}
	}
	return forwarding
}

// TunnelRange maps VLANs to as many VNIs.
type TunnelRange struct {
	First, Last uint16
	VNI         uint32 // of First
}

// parseLink reads the payload of RTM_NEWLINK or RTM_DELLINK of AF_UNSPEC, which has all
// but VLANs and Tunnels.
func parseLink(b []byte) (l Link, err error) {
	if len(b) < unix.SizeofIfInfomsg {
		return l, short("a link", len(b))
	}
	l.Index = rtnl.Index(b[4:8])
	l.Up = binary.NativeEndian.Uint32(b[8:])&unix.IFF_UP != 0
	foreign := false // Lower is of another namespace
	for kind, v := range rtnl.Attributes(b[unix.SizeofIfInfomsg:]) {
		switch kind {
		case unix.IFLA_IFNAME:
			l.Name = rtnl.Text(v)
		case unix.IFLA_ADDRESS:
			l.MAC, _ = mac(v)
		case unix.IFLA_MTU:
			l.MTU = int(rtnl.Uint32(v))
		case unix.IFLA_MASTER:
			l.Master = rtnl.Index(v)
		case unix.IFLA_LINK:
			l.Lower = rtnl.Index(v)
		case unix.IFLA_LINK_NETNSID:
			foreign = true
		case unix.IFLA_XDP:
			l.XDP = parseXDP(v)
		case unix.IFLA_LINKINFO:
			l.parseInfo(v)
		}
	}
	if foreign || l.Lower == l.Index {
		l.Lower = 0
	}
	return l, nil
}

func parseXDP(b []byte) (prog uint32) {
	for kind, v := range rtnl.Attributes(b) {
		switch kind {
		case unix.IFLA_XDP_PROG_ID, unix.IFLA_XDP_DRV_PROG_ID, unix.IFLA_XDP_SKB_PROG_ID, unix.IFLA_XDP_HW_PROG_ID:
			prog = rtnl.Uint32(v)
		}
	}
	return prog
}

// parseInfo reads IFLA_LINKINFO.
func (l *Link) parseInfo(b []byte) {
	var data, slave []byte
	var slaveKind string
	for kind, v := range rtnl.Attributes(b) {
		switch kind {
		case unix.IFLA_INFO_KIND:
			l.Kind = rtnl.Text(v)
		case unix.IFLA_INFO_DATA:
			data = v
		case unix.IFLA_INFO_SLAVE_KIND:
			slaveKind = rtnl.Text(v)
		case unix.IFLA_INFO_SLAVE_DATA:
			slave = v
		}
	}
	switch l.Kind {
	case "bridge":
		l.Bridge = parseBridge(data)
	case "vxlan":
		l.VXLAN = parseVXLAN(data)
	case "vlan":
		for kind, v := range rtnl.Attributes(data) {
			switch kind {
			case unix.IFLA_VLAN_ID:
				l.VLAN = rtnl.Uint16(v)
			case unix.IFLA_VLAN_PROTOCOL:
				l.Protocol = rtnl.BE16(v)
			}
		}
	}
	if slaveKind == "bridge" {
		l.Member = parseMember(slave)
	}
}

// clockTick is the unit of times in a bridge's attributes: USER_HZ is 100 everywhere.
const clockTick = 10 * time.Millisecond

func parseBridge(b []byte) *Bridge {
	br := &Bridge{Protocol: unix.ETH_P_8021Q}
	for kind, v := range rtnl.Attributes(b) {
		switch kind {
		case unix.IFLA_BR_AGEING_TIME:
			br.Ageing = time.Duration(rtnl.Uint32(v)) * clockTick
		case unix.IFLA_BR_VLAN_FILTERING:
			br.Filtering = rtnl.Uint8(v) != 0
		case unix.IFLA_BR_VLAN_PROTOCOL:
			br.Protocol = rtnl.BE16(v)
		case unix.IFLA_BR_NF_CALL_IPTABLES, unix.IFLA_BR_NF_CALL_IP6TABLES, unix.IFLA_BR_NF_CALL_ARPTABLES:
			br.Netfilter = br.Netfilter || rtnl.Uint8(v) != 0
		case unix.IFLA_BR_MULTI_BOOLOPT:
			if len(v) == 8 { // struct br_boolopt_multi: values, mask
				br.MST = rtnl.Uint32(v[:4])&multiBoolMST != 0
			}
		}
	}
	return br
}

// vxlanReservedBits is IFLA_VXLAN_RESERVED_BITS, of Linux 6.14.
const vxlanReservedBits = 33

func parseVXLAN(b []byte) *VXLAN {
	x := &VXLAN{}
	for kind, v := range rtnl.Attributes(b) {
		switch kind {
		case unix.IFLA_VXLAN_ID:
			x.VNI = rtnl.Uint32(v)
		case unix.IFLA_VXLAN_LOCAL, unix.IFLA_VXLAN_LOCAL6:
			if a := rtnl.Addr(v); !a.IsUnspecified() {
				x.Local = a
			}
		case unix.IFLA_VXLAN_PORT:
			x.Port = rtnl.BE16(v)
		case unix.IFLA_VXLAN_LEARNING:
			x.Learning = rtnl.Uint8(v) != 0
		case unix.IFLA_VXLAN_COLLECT_METADATA:
			x.External = rtnl.Uint8(v) != 0
		case unix.IFLA_VXLAN_VNIFILTER:
			x.VNIFilter = rtnl.Uint8(v) != 0
		case unix.IFLA_VXLAN_UDP_ZERO_CSUM6_RX:
			x.ZeroChecksum = rtnl.Uint8(v) != 0
		case unix.IFLA_VXLAN_GBP: // a flag without a value
			x.Extension = "gbp"
		case unix.IFLA_VXLAN_GPE:
			x.Extension = "gpe"
		case unix.IFLA_VXLAN_REMCSUM_TX, unix.IFLA_VXLAN_REMCSUM_RX:
			if rtnl.Uint8(v) != 0 {
				x.Extension = "remcsum"
			}
		case vxlanReservedBits:
			if len(v) == 8 {
				x.Reserved = binary.BigEndian.Uint64(v)
			}
		}
	}
	return x
}

func parseMember(b []byte) *Member {
	m := &Member{Learning: true}
	for kind, v := range rtnl.Attributes(b) {
		on := rtnl.Uint8(v) != 0
		switch kind {
		case unix.IFLA_BRPORT_STATE:
			m.State = rtnl.Uint8(v)
		case unix.IFLA_BRPORT_LEARNING:
			m.Learning = on
		case unix.IFLA_BRPORT_ISOLATED:
			m.Isolated = on
		case unix.IFLA_BRPORT_LOCKED:
			m.Locked = on
		case unix.IFLA_BRPORT_VLAN_TUNNEL:
			m.Tunnel = on
		}
	}
	return m
}

// portInfo is what messages of AF_BRIDGE say of a bridge's port, or of the bridge itself.
type portInfo struct {
	Index   int
	Master  int
	Member  *Member // nil: it is not said
	VLANs   []VLANRange
	Tunnels []TunnelRange
}

// parsePort reads the payload of RTM_NEWLINK or RTM_DELLINK of AF_BRIDGE.
func parsePort(b []byte) (p portInfo, err error) {
	if len(b) < unix.SizeofIfInfomsg {
		return p, short("a bridge port", len(b))
	}
	p.Index = rtnl.Index(b[4:8])
	for kind, v := range rtnl.Attributes(b[unix.SizeofIfInfomsg:]) {
		switch kind {
		case unix.IFLA_MASTER:
			p.Master = rtnl.Index(v)
		case unix.IFLA_PROTINFO:
			p.Member = parseMember(v)
		case unix.IFLA_AF_SPEC:
			p.parseSpec(v)
		}
	}
	return p, nil
}

// parseSpec reads IFLA_AF_SPEC. A range is two attributes: its begin, and its end.
func (p *portInfo) parseSpec(b []byte) {
	var vlan VLANRange
	var tunnel TunnelRange
	inVLANs, inTunnels := false, false
	for kind, v := range rtnl.Attributes(b) {
		switch kind {
		case bridgeVLANInfo:
			if len(v) != 4 { // struct bridge_vlan_info
				continue
			}
			flags, vid := binary.NativeEndian.Uint16(v), binary.NativeEndian.Uint16(v[2:])
			if flags&vlanRangeEnd == 0 || !inVLANs {
				vlan = VLANRange{First: vid, PVID: flags&vlanPVID != 0, Untagged: flags&vlanUntagged != 0}
			}
			vlan.Last = vid
			if inVLANs = flags&vlanRangeBegin != 0; !inVLANs && 0 < vlan.First && vlan.First <= vlan.Last && vlan.Last <= maxVLAN {
				p.VLANs = append(p.VLANs, vlan)
			}
		case bridgeTunnelInfo:
			vni, vid, flags := parseTunnelInfo(v)
			if flags&vlanRangeEnd == 0 || !inTunnels {
				tunnel = TunnelRange{First: vid, VNI: vni}
			}
			tunnel.Last = vid
			if inTunnels = flags&vlanRangeBegin != 0; !inTunnels && 0 < tunnel.First && tunnel.First <= tunnel.Last && tunnel.Last <= maxVLAN {
				p.Tunnels = append(p.Tunnels, tunnel)
			}
		}
	}
}

func parseTunnelInfo(b []byte) (vni uint32, vid, flags uint16) {
	for kind, v := range rtnl.Attributes(b) {
		switch kind {
		case tunnelID:
			vni = rtnl.Uint32(v)
		case tunnelVID:
			vid = rtnl.Uint16(v)
		case tunnelFlags:
			flags = rtnl.Uint16(v)
		}
	}
	return vni, vid, flags
}
