package overlay

import (
	"encoding/binary"
	"net/netip"
)

// Offsets in an outer frame as Loom writes it: no tag, no IP options.
const (
	outIP    = EthernetLen
	outUDP   = outIP + IPv4Len
	outVXLAN = outUDP + UDPLen
)

// The range of outer source ports (RFC 7348 §5 asks for the dynamic range of
// RFC 6335 §6).
const (
	srcPortMin  = 49152
	srcPortMask = 1<<14 - 1
)

// outerTTL is the TTL of encapsulated datagrams, hops.
const outerTTL = 64

// Tunnel is the outer header of all frames to one remote VTEP over one next hop. It
// is made once and copied for each frame. It is a plain value without pointers and
// may be shared for reading.
type Tunnel struct {
	header [Overhead]byte
	sum    uint32 // IPv4 header words but for TOS, total length and checksum
}

// MakeTunnel returns the header from VTEP src to VTEP dst, from srcMAC to the next
// hop's dstMAC, and to the given UDP port. It panics unless both addresses are IPv4.
func MakeTunnel(src, dst netip.Addr, srcMAC, dstMAC MAC, port uint16) Tunnel {
	var t Tunnel
	eth := Ethernet(t.header[:])
	eth.SetDst(dstMAC)
	eth.SetSrc(srcMAC)
	eth.SetEtherType(EtherTypeIPv4)
	ip := IPv4(t.header[outIP:outUDP])
	ip[ip4VerIHL] = 0x45
	binary.BigEndian.PutUint16(ip[ip4Frag:], ip4DF)
	ip[ip4TTL] = outerTTL
	ip[ip4Proto] = ProtoUDP
	s, d := src.Unmap().As4(), dst.Unmap().As4()
	copy(ip[ip4Src:], s[:])
	copy(ip[ip4Dst:], d[:])
	t.sum = uint32(fold(sum16(ip)))
	binary.BigEndian.PutUint16(t.header[outUDP+2:], port)
	return t
}

// Encap writes the headers in front of an inner frame of innerLen bytes. The frame
// lies in memory already, at outer[Overhead:], or at outer[MaxOverhead:] if f is
// Capable and has a Shim. If f is nil or not Capable, the header is plain RFC 7348.
// Fields are cut to their width. hash is the frame's flow hash. tos is the whole
// outer octet, see [EncapTOS]. The datagram must not be fragmented, so its
// identification is 0 (RFC 6864 §4.1); the UDP checksum is 0 (RFC 7348 §5).
//
// Encap panics when outer does not hold the headers. The caller keeps the
// datagram below 64 KiB, which every MTU does.
func (t *Tunnel) Encap(outer []byte, innerLen int, vni VNI, hash uint32, tos uint8, f *Fabric) {
	p := (*[Overhead]byte)(outer)
	*p = t.header
	length := uint32(UDPLen + innerLen + VXLAN(outer[outVXLAN:]).Encode(vni, f))
	total := length + IPv4Len
	p[outIP+ip4TOS] = tos
	binary.BigEndian.PutUint16(p[outIP+ip4Total:], uint16(total))
	binary.BigEndian.PutUint16(p[outIP+ip4Checksum:], ^fold(t.sum+uint32(tos)+total))
	binary.BigEndian.PutUint16(p[outUDP:], SourcePort(hash))
	binary.BigEndian.PutUint16(p[outUDP+4:], uint16(length))
}

// SourcePort returns the outer UDP source port of a flow, 49152..65535. It uses all
// bits of the hash, because the choice of the uplink may have used some of them.
func SourcePort(hash uint32) uint16 {
	return srcPortMin | uint16(hash^hash>>14^hash>>28)&srcPortMask
}
