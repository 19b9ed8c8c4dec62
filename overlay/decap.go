package overlay

import (
	"encoding/binary"

	"github.com/loomfabric/loom/internal/drop"
)

// Decapped holds the fields of an outer frame that [Decap] accepted.
type Decapped struct {
	Src, Dst   uint32 // VTEPs, first byte most significant
	VNI        VNI
	TOS        uint8  // outer
	SrcPort    uint16 // outer UDP
	Inner, End int    // the inner frame is frame[Inner:End]
	Fabric     Fabric
}

// Decap checks an outer frame from its Ethernet header to the start of the
// inner frame. It fills d and returns drop.None, or returns why it refuses the
// frame and leaves d undefined. port is the VXLAN port.
//
// Decap allows IPv4 options. Bytes behind the IP datagram (Ethernet padding), or
// behind the UDP datagram inside it, are not part of the inner frame. Decap
// ignores the UDP checksum: senders should transmit zero, and a receiver need
// not check another (RFC 7348 §5). The caller decides whether it accepts source,
// destination and VNI.
func Decap(frame []byte, port uint16, d *Decapped) drop.Reason {
	if reason := CheckOuter(frame); reason != drop.None {
		return reason
	}
	ip := frame[EthernetLen:]
	fixed := (*[IPv4Len]byte)(ip)
	hlen := IPv4(ip).HeaderLen()
	total := int(binary.BigEndian.Uint16(fixed[ip4Total:]))
	if fixed[ip4Proto] != ProtoUDP {
		return drop.NotVXLAN
	}
	udp := UDP(ip[hlen:total])
	if !udp.Valid() {
		return drop.BadUDPLength
	}
	if udp.DstPort() != port {
		return drop.NotVXLAN
	}
	length := udp.Length()
	if length < UDPLen || length > len(udp) {
		return drop.BadUDPLength
	}
	// Most headers are plain; those are decoded here, without a call.
	var vni VNI
	n := VXLANLen
	if vx := VXLAN(udp[UDPLen:length]); vx.Valid() && binary.BigEndian.Uint64(vx)&^(vxVNIMask<<vxVNIShift) == vxPlain {
		vni, d.Fabric = vx.VNI(), Fabric{}
	} else {
		var reason drop.Reason
		if vni, n, reason = vx.Decode(&d.Fabric); reason != drop.None {
			return reason
		}
	}
	if length < UDPLen+n+EthernetLen {
		return drop.BadInner
	}
	d.Src = binary.BigEndian.Uint32(fixed[ip4Src:])
	d.Dst = binary.BigEndian.Uint32(fixed[ip4Dst:])
	d.VNI = vni
	d.TOS = fixed[ip4TOS]
	d.SrcPort = udp.SrcPort()
	d.Inner = EthernetLen + hlen + UDPLen + n
	d.End = EthernetLen + hlen + length
	return drop.None
}

// CheckOuter checks the Ethernet and IPv4 headers of an outer frame. It returns
// drop.None, or why it refuses the frame: the frame is cut short or not IPv4, its
// header or total length is impossible, its checksum is wrong (RFC 1812 §5.2.2),
// or it is a fragment, which VTEPs must not make (RFC 7348 §4.3). A spine checks
// nothing else, and [Decap] begins with it.
func CheckOuter(frame []byte) drop.Reason {
	if len(frame) < EthernetLen {
		return drop.Truncated
	}
	if Ethernet(frame).EtherType() != EtherTypeIPv4 {
		return drop.BadEtherType
	}
	if len(frame) < EthernetLen+IPv4Len {
		return drop.Truncated
	}
	ip := frame[EthernetLen:]
	fixed := (*[IPv4Len]byte)(ip)
	hlen := int(fixed[ip4VerIHL]&0xf) * 4
	if fixed[ip4VerIHL]>>4 != 4 || hlen < IPv4Len {
		return drop.BadIPVersion
	}
	total := int(binary.BigEndian.Uint16(fixed[ip4Total:]))
	if total < hlen || total > len(ip) {
		return drop.BadIPLength
	}
	// The checksum is taken over 32-bit words in memory order: the one's
	// complement sum does not care about byte order or word size (RFC 1071 §2).
	sum := uint64(binary.LittleEndian.Uint32(fixed[0:])) +
		uint64(binary.LittleEndian.Uint32(fixed[4:])) +
		uint64(binary.LittleEndian.Uint32(fixed[8:])) +
		uint64(binary.LittleEndian.Uint32(fixed[12:])) +
		uint64(binary.LittleEndian.Uint32(fixed[16:]))
	for at := IPv4Len; at < hlen; at += 4 {
		sum += uint64(binary.LittleEndian.Uint32(ip[at:]))
	}
	sum = sum>>32 + sum&0xffffffff // below 2^32 + 15
	sum = sum>>32 + sum>>16&0xffff + sum&0xffff
	if fold(uint32(sum)) != 0xffff {
		return drop.BadIPChecksum
	}
	if binary.BigEndian.Uint16(fixed[ip4Frag:])&ip4FragMask != 0 {
		return drop.IPFragment
	}
	return drop.None
}
