package control

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/loomfabric/loom/internal/rtnl"
	"github.com/loomfabric/loom/overlay"
)

// What package unix lacks of linux/rtnetlink.h, linux/nexthop.h and linux/neighbour.h.
const (
	rtaVia       = 18
	rtaEncapType = 21
	rtaNexthopID = 30

	nhaID        = 1
	nhaGroup     = 2
	nhaBlackhole = 4
	nhaOIF       = 5
	nhaGateway   = 6
	nhaEncapType = 7
	nhaFDB       = 11

	ndaDst     = 1
	ndaLLAddr  = 2
	ndaIfindex = 8

	rtMsgLen  = 12
	rtHopLen  = 8
	nhMsgLen  = 8
	nhGrpLen  = 8
	ndMsgLen  = 12
	deadFlags = unix.RTNH_F_DEAD | unix.RTNH_F_LINKDOWN
)

// ipOf returns an attribute's address. That of an unspecified address, which stands for
// none, is not valid.
func ipOf(b []byte) netip.Addr {
	a := rtnl.Addr(b)
	if a.IsUnspecified() {
		return netip.Addr{}
	}
	return a
}

// rawRoute is a message of a route.
type rawRoute struct {
	Route
	table   uint32
	nexthop uint32 // ID of the next hop object that it names; 0: none
	fewer   bool   // it is for one TOS or one source, or a copy that a lookup made
}

// parseRoute reads a route (struct rtmsg). It reports false for a message that is not one
// of IP, and for a route of a type that says nothing about where packets go.
func parseRoute(b []byte) (r rawRoute, ok bool) {
	if len(b) < rtMsgLen {
		return r, false
	}
	dst := netip.IPv4Unspecified()
	switch b[0] {
	case unix.AF_INET:
	case unix.AF_INET6:
		dst = netip.IPv6Unspecified()
	default:
		return r, false
	}
	if int(b[1]) > dst.BitLen() {
		return r, false
	}
	bits, flags := int(b[1]), binary.NativeEndian.Uint32(b[8:])
	r.table, r.fewer = uint32(b[4]), b[2] != 0 || b[3] != 0 || flags&unix.RTM_F_CLONED != 0
	switch b[7] {
	case unix.RTN_UNICAST:
	case unix.RTN_UNREACHABLE, unix.RTN_BLACKHOLE, unix.RTN_PROHIBIT, unix.RTN_THROW:
		r.Reject = true
	default:
		return r, false
	}
	hop := NextHop{Dead: flags&deadFlags != 0}
	for kind, value := range rtnl.Attributes(b[rtMsgLen:]) {
		switch kind {
		case unix.RTA_DST:
			if a, ok := netip.AddrFromSlice(value); ok && a.BitLen() == dst.BitLen() {
				dst = a
			}
		case unix.RTA_PRIORITY:
			r.Metric = int(rtnl.Uint32(value))
		case unix.RTA_TABLE:
			r.table = rtnl.Uint32(value)
		case rtaNexthopID:
			r.nexthop = rtnl.Uint32(value)
		case unix.RTA_MULTIPATH:
			r.Hops = parseHops(value)
		default:
			hop.read(kind, value)
		}
	}
	r.Dst = netip.PrefixFrom(dst, bits).Masked()
	switch {
	case r.Reject:
		r.Hops = nil
	case r.Hops == nil && (hop.Ifindex != 0 || hop.Gateway.IsValid()):
		r.Hops = []NextHop{hop}
	}
	return r, true
}

// read takes over an attribute of a route's next hop.
func (h *NextHop) read(kind uint16, value []byte) {
	switch kind {
	case unix.RTA_OIF:
		h.Ifindex = rtnl.Index(value)
	case unix.RTA_GATEWAY:
		h.Gateway = ipOf(value)
	case rtaVia: // family, address: an IPv4 route by way of an IPv6 neighbour, RFC 8950
		if len(value) > 2 {
			h.Gateway = ipOf(value[2:])
		}
	case rtaEncapType:
		h.Encap = Encap(rtnl.Uint16(value))
	}
}

// parseHops reads the next hops of a multipath route (struct rtnexthop).
func parseHops(b []byte) (hops []NextHop) {
	for len(b) >= rtHopLen {
		n := int(binary.NativeEndian.Uint16(b))
		if n < rtHopLen || n > len(b) {
			break
		}
		h := NextHop{Ifindex: rtnl.Index(b[4:8]), Dead: b[2]&deadFlags != 0, Weight: uint16(b[3]) + 1}
		for kind, value := range rtnl.Attributes(b[rtHopLen:n]) {
			h.read(kind, value)
		}
		hops = append(hops, h)
		b = b[min((n+3)&^3, len(b)):]
	}
	return hops
}

// nexthop is a next hop object: a hop, a group of them, or nowhere.
type nexthop struct {
	hop     NextHop
	members []member // of a group; nil: it is none
	reject  bool     // it is a blackhole
	fdb     bool     // it is for VXLAN devices' tables, not for routes
}

// member is a member of a group of next hop objects.
type member struct {
	id     uint32
	weight uint16
}

// parseNexthop reads a next hop object (struct nhmsg). It reports false for a message
// that is none.
func parseNexthop(b []byte) (id uint32, n nexthop, ok bool) {
	if len(b) < nhMsgLen {
		return 0, n, false
	}
	n.hop.Dead = binary.NativeEndian.Uint32(b[4:])&deadFlags != 0
	for kind, value := range rtnl.Attributes(b[nhMsgLen:]) {
		switch kind {
		case nhaID:
			id = rtnl.Uint32(value)
		case nhaGroup:
			n.members = parseGroup(value)
		case nhaBlackhole:
			n.reject = true
		case nhaOIF:
			n.hop.Ifindex = rtnl.Index(value)
		case nhaGateway:
			n.hop.Gateway = ipOf(value)
		case nhaEncapType:
			n.hop.Encap = Encap(rtnl.Uint16(value))
		case nhaFDB:
			n.fdb = true
		}
	}
	return id, n, id != 0
}

// parseGroup reads the members of a group (struct nexthop_grp). Since Linux 6.12 a weight
// has a high byte, which was 0 before.
func parseGroup(b []byte) []member {
	members := make([]member, 0, len(b)/nhGrpLen)
	for ; len(b) >= nhGrpLen; b = b[nhGrpLen:] {
		weight := (uint32(b[5])<<8 | uint32(b[4])) + 1
		members = append(members, member{binary.NativeEndian.Uint32(b), uint16(min(weight, 0xffff))})
	}
	return members
}

// nexthops are next hop objects by ID.
type nexthops map[uint32]nexthop

// resolve gives a route the next hops of its object. Whatever the kernel says of them in
// the route itself (net.ipv4.nexthop_compat_mode), the result is the same. The kernel
// takes no groups as members of groups, of resilient ones neither, and so one step is all;
// a member that is no hop is left out. It reports false if an object does not exist.
func (all nexthops) resolve(r *rawRoute) bool {
	if r.nexthop == 0 || r.Reject {
		return true
	}
	n, ok := all[r.nexthop]
	if !ok {
		return false
	}
	r.Hops = nil
	switch {
	case n.fdb:
	case n.reject:
		r.Reject = true
	case n.members == nil:
		r.Hops = []NextHop{n.hop}
	}
	for _, m := range n.members {
		n, ok := all[m.id]
		switch {
		case !ok:
			return false
		case n.reject && len(all[r.nexthop].members) == 1:
			r.Reject = true
		case n.reject || n.fdb || n.members != nil:
		default:
			n.hop.Weight = m.weight
			r.Hops = append(r.Hops, n.hop)
		}
	}
	return true
}

// parseNeighbour reads an entry of the ARP or neighbour discovery cache (struct ndmsg). It
// reports false for one of another family, as a bridge's, and for what the kernel answers
// in the name of others (NTF_PROXY).
func parseNeighbour(b []byte) (n Neighbour, ok bool) {
	if len(b) < ndMsgLen || b[0] != unix.AF_INET && b[0] != unix.AF_INET6 || b[10]&unix.NTF_PROXY != 0 {
		return n, false
	}
	n.Ifindex = rtnl.Index(b[4:8])
	const usable = unix.NUD_REACHABLE | unix.NUD_STALE | unix.NUD_DELAY | unix.NUD_PROBE | unix.NUD_PERMANENT | unix.NUD_NOARP
	state := rtnl.Uint16(b[8:10])
	for kind, value := range rtnl.Attributes(b[ndMsgLen:]) {
		switch {
		case kind == ndaDst:
			n.Addr = rtnl.Addr(value)
		case kind == ndaLLAddr && state&usable != 0 && len(value) == len(n.MAC):
			n.MAC = overlay.MAC(value)
			n.Usable = !n.MAC.IsZero()
			n.Stale = state&unix.NUD_STALE != 0
		}
	}
	return n, n.Addr.IsValid()
}
