package overlay

import (
	"encoding/binary"
	"net/netip"
)

// Offsets in an outer frame as Loom writes it: no tag, no IP options, no extension headers.
const (
	outIP     = EthernetLen
	outUDP    = outIP + IPv4Len
	outVXLAN  = outUDP + UDPLen
	outUDP6   = outIP + IPv6Len
	outVXLAN6 = outUDP6 + UDPLen
)

// The range of outer source ports (RFC 7348 §5 asks for the dynamic range of
// RFC 6335 §6).
const (
	srcPortMin  = 49152
	srcPortMask = 1<<14 - 1
)

// outerTTL is the TTL or hop limit of encapsulated datagrams, hops.
const outerTTL = 64

// Tunnel is the outer header of all frames to one remote VTEP over one next hop. It
// is made once and copied for each frame. It is a plain value without pointers and
// may be shared for reading. Its first 56 bytes are all that IPv4 needs: with what the
// data plane keeps of a path they are one cache line.
type Tunnel struct {
	sum    uint32 // IPv4 header words but for TOS, total length and checksum
	family uint16 // FlagIPv4 or FlagIPv6
	head   [Overhead]byte
	tail   [Overhead6 - Overhead]byte // the rest of a header of IPv6
}

// MakeTunnel returns the header from VTEP src to VTEP dst, from srcMAC to the next
// hop's dstMAC, and to the given UDP port. It panics unless both addresses are of one
// family.
func MakeTunnel(src, dst netip.Addr, srcMAC, dstMAC MAC, port uint16) Tunnel {
	src, dst = src.Unmap(), dst.Unmap()
	t := Tunnel{family: FamilyOf(src)}
	var header [Overhead6]byte
	eth := Ethernet(header[:])
	eth.SetDst(dstMAC)
	eth.SetSrc(srcMAC)
	if t.family == FlagIPv6 {
		eth.SetEtherType(EtherTypeIPv6)
		ip := IPv6(header[outIP:outUDP6])
		ip[ip6Next] = ProtoUDP
		ip[ip6Hops] = outerTTL
		if dst.Is4() {
			panic("overlay: a tunnel from " + src.String() + " to " + dst.String())
		}
		s, d := src.As16(), dst.As16()
		copy(ip[ip6Src:], s[:])
		copy(ip[ip6Dst:], d[:])
		binary.BigEndian.PutUint16(header[outUDP6+2:], port)
	} else {
		eth.SetEtherType(EtherTypeIPv4)
		ip := IPv4(header[outIP:outUDP])
		ip[ip4VerIHL] = 0x45
		binary.BigEndian.PutUint16(ip[ip4Frag:], ip4DF)
		ip[ip4TTL] = outerTTL
		ip[ip4Proto] = ProtoUDP
		s, d := src.As4(), dst.As4()
		copy(ip[ip4Src:], s[:])
		copy(ip[ip4Dst:], d[:])
		t.sum = uint32(fold(sum16(ip)))
		binary.BigEndian.PutUint16(header[outUDP+2:], port)
	}
	copy(t.tail[:], header[copy(t.head[:], header[:]):])
	return t
}

// Family returns FlagIPv4 or FlagIPv6.
func (t *Tunnel) Family() uint16 { return t.family }

// Headers returns the length of the headers without the shim, bytes.
func (t *Tunnel) Headers() int { return Headers(t.family) }

// Template copies the headers of IPv4 as they are before each frame's own fields are written,
// and returns the sum of the IP header's words but for TOS, total length and checksum.
func (t *Tunnel) Template(to *[Overhead]uint8) (sum uint32) {
	*to = t.head
	return t.sum
}

// Encap writes the headers in front of an inner frame of innerLen bytes. The frame
// lies in memory already, at outer[Headers():], or ShimLen bytes behind if f is
// Capable and has a Shim. If f is nil or not Capable, the header is plain RFC 7348.
// Fields are cut to their width. hash is the frame's flow hash. tos is the whole
// outer octet, see [EncapTOS]. The datagram must not be fragmented, so the
// identification of IPv4 is 0 (RFC 6864 §4.1). The UDP checksum is 0 (RFC 7348 §5, for
// IPv6 RFC 6935 §5).
//
// Encap panics when outer does not hold the headers. The caller keeps the
// datagram below 64 KiB, which every MTU does.
func (t *Tunnel) Encap(outer []byte, innerLen int, vni VNI, hash uint32, tos uint8, f *Fabric) {
	if t.family == FlagIPv6 {
		t.encap6(outer, innerLen, vni, hash, tos, f)
		return
	}
	p := (*[Overhead]byte)(outer)
	*p = t.head
	length := uint32(UDPLen + innerLen + VXLAN(outer[outVXLAN:]).Encode(vni, f))
	total := length + IPv4Len
	p[outIP+ip4TOS] = tos
	binary.BigEndian.PutUint16(p[outIP+ip4Total:], uint16(total))
	binary.BigEndian.PutUint16(p[outIP+ip4Checksum:], ^fold(t.sum+uint32(tos)+total))
	binary.BigEndian.PutUint16(p[outUDP:], SourcePort(hash))
	binary.BigEndian.PutUint16(p[outUDP+4:], uint16(length))
}

// encap6 is Encap for IPv6.
func (t *Tunnel) encap6(outer []byte, innerLen int, vni VNI, hash uint32, tos uint8, f *Fabric) {
	p := (*[Overhead6]byte)(outer)
	*(*[Overhead]byte)(p[:]) = t.head
	*(*[Overhead6 - Overhead]byte)(p[Overhead:]) = t.tail
	length := uint16(UDPLen + innerLen + VXLAN(outer[outVXLAN6:]).Encode(vni, f))
	binary.BigEndian.PutUint32(p[outIP:], 6<<28|uint32(tos)<<20|flowLabel(hash))
	binary.BigEndian.PutUint16(p[outIP+ip6Payload:], length)
	binary.BigEndian.PutUint16(p[outUDP6:], SourcePort(hash))
	binary.BigEndian.PutUint16(p[outUDP6+4:], length)
}

// flowLabel returns the outer flow label of a flow. A tunnel's end sets it, so that
// routers which look no further than the IPv6 header tell flows apart (RFC 6438 §3); the
// Linux kernel's do so unless net.ipv6.fib_multipath_hash_policy says otherwise.
func flowLabel(hash uint32) uint32 { return (hash ^ hash>>20) & 0xfffff }

// SourcePort returns the outer UDP source port of a flow, 49152..65535. It uses all
// bits of the hash, because the choice of the uplink may have used some of them.
func SourcePort(hash uint32) uint16 {
	return srcPortMin | uint16(hash^hash>>14^hash>>28)&srcPortMask
}
