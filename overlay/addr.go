package overlay

import (
	"encoding/binary"
	"math/bits"
	"net/netip"
)

// Addr is an address of the underlay, the first byte most significant. That of IPv4 is
// mapped into IPv6 (::ffff:0:0/96, RFC 4291 §2.5.5.2), so that what compares and looks up
// addresses does not ask for their family: packets of IPv6 that name a mapped address are
// refused. The zero value is no address.
type Addr struct{ High, Low uint64 }

// mapped is what stands before an IPv4 address in an Addr's lower half.
const mapped = 0xffff << 32

// Addr4 returns the Addr of an IPv4 address.
func Addr4(a uint32) Addr { return Addr{Low: mapped | uint64(a)} }

// AddrOf returns the Addr of an address; the zero value for one that is not valid.
func AddrOf(a netip.Addr) Addr {
	if !a.IsValid() {
		return Addr{}
	}
	b := a.As16()
	return addrAt(&b)
}

// addrAt reads an IPv6 address.
func addrAt(b *[16]byte) Addr {
	return Addr{binary.BigEndian.Uint64(b[:]), binary.BigEndian.Uint64(b[8:])}
}

// Netip returns the address as the rest of the program has it. It is not valid for the
// zero value.
func (a Addr) Netip() netip.Addr {
	if a == (Addr{}) {
		return netip.Addr{}
	}
	var b [16]byte
	binary.BigEndian.PutUint64(b[:], a.High)
	binary.BigEndian.PutUint64(b[8:], a.Low)
	return netip.AddrFrom16(b).Unmap()
}

// Hash returns 32 bits, of which the upper ones are the best. It tells addresses of one
// prefix apart, which VTEPs have, whichever half they count in.
func (a Addr) Hash() uint32 {
	return uint32((bits.RotateLeft64(a.High, 29) ^ a.Low) * 0x9E3779B97F4A7C15 >> 32)
}

// possible reports whether packets of IPv6 may come from such an address, or go to it,
// through a router: addresses of one link, of groups and of the machine itself do not, and
// a mapped one would pass for an IPv4 address (RFC 4291 §2.5.2-§2.5.6, §2.7). ::/64 has no
// others than the last two kinds.
func (a Addr) possible() bool {
	return a.High != 0 && a.High>>54 != 0xfe80>>6 && a.High>>56 != 0xff
}

// FamilyOf returns FlagIPv4 or FlagIPv6 for a valid address.
func FamilyOf(a netip.Addr) uint16 {
	if a.Unmap().Is4() {
		return FlagIPv4
	}
	return FlagIPv6
}

// Headers returns the length of the headers in front of a tenant's frame without the
// shim, bytes: Overhead, or Overhead6 if flags has FlagIPv6.
func Headers(flags uint16) int {
	return Overhead + int(flags&FlagIPv6)*((Overhead6-Overhead)/int(FlagIPv6)) // no branch: queues ask for every frame
}

// MTUOverhead returns the least difference, bytes, between the underlay's MTU and the
// hosts' for plain VXLAN between VTEPs of a family: the inner Ethernet header and the outer
// IP, UDP and VXLAN headers. Headers with the shim need ShimLen more.
func MTUOverhead(vtep netip.Addr) int {
	return Headers(FamilyOf(vtep)) // as much as the inner Ethernet header counts, the outer one does not
}
