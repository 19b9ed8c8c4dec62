package overlay

import (
	"encoding/binary"

	"github.com/loomfabric/loom/internal/drop"
)

// Outer holds what [CheckOuter] reads of an outer frame.
type Outer struct {
	Src, Dst Addr   // VTEPs
	Family   uint16 // FlagIPv4 or FlagIPv6
	TOS      uint8  // or traffic class
	TTL      uint8  // or hop limit
	Proto    uint8  // what is in the IP datagram
	L4       int    // start of that
	L4End    int    // end of the IP datagram
}

// Decapped holds the fields of an outer frame that [Decap] accepted.
type Decapped struct {
	Outer
	VNI        VNI
	SrcPort    uint16 // outer UDP
	Inner, End int    // the inner frame is frame[Inner:End]
	Fabric     Fabric
}

// Decap checks an outer frame from its Ethernet header to the start of the
// inner frame. It fills d and returns drop.None, or returns why it refuses the
// frame and leaves d undefined. port is the VXLAN port.
//
// Decap allows IPv4 options, and no extension headers of IPv6. Bytes behind the IP
// datagram (Ethernet padding), or behind the UDP datagram inside it, are not part of the
// inner frame. Decap ignores the UDP checksum over either family: senders should transmit
// zero (RFC 7348 §5, RFC 6935 §5), and a receiver need not check another (RFC 7348 §5).
// The caller decides whether it accepts source, destination and VNI, which is what
// RFC 6936 §4 wants of those who accept zero over IPv6.
func Decap(frame []byte, port uint16, d *Decapped) drop.Reason {
	if reason := CheckOuter(frame, &d.Outer); reason != drop.None {
		return reason
	}
	if d.Proto != ProtoUDP {
		return drop.NotVXLAN
	}
	udp := UDP(frame[d.L4:d.L4End])
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
	d.VNI = vni
	d.SrcPort = udp.SrcPort()
	d.Inner = d.L4 + UDPLen + n
	d.End = d.L4 + length
	return drop.None
}

// CheckOuter checks the Ethernet and IP headers of an outer frame. It fills o and returns
// drop.None, or returns why it refuses the frame and leaves o undefined: the frame is cut
// short or not IP, a length is impossible, it is a fragment, which VTEPs must not make
// (RFC 7348 §4.3); of IPv4, the checksum is wrong (RFC 1812 §5.2.2); of IPv6, there are
// extension headers, which no VTEP has a use for, or an address is not one that routers
// forward from and to. A spine checks nothing else, and [Decap] begins with it.
func CheckOuter(frame []byte, o *Outer) drop.Reason {
	if len(frame) < EthernetLen {
		return drop.Truncated
	}
	switch Ethernet(frame).EtherType() {
	case EtherTypeIPv4: // here, without a call
	case EtherTypeIPv6:
		return checkOuter6(frame, o)
	default:
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
	o.Src = Addr4(binary.BigEndian.Uint32(fixed[ip4Src:]))
	o.Dst = Addr4(binary.BigEndian.Uint32(fixed[ip4Dst:]))
	o.Family, o.TOS, o.TTL, o.Proto = FlagIPv4, fixed[ip4TOS], fixed[ip4TTL], fixed[ip4Proto]
	o.L4, o.L4End = EthernetLen+hlen, EthernetLen+total
	return drop.None
}

func checkOuter6(frame []byte, o *Outer) drop.Reason {
	if len(frame) < EthernetLen+IPv6Len {
		return drop.Truncated
	}
	ip := IPv6(frame[EthernetLen:])
	fixed := (*[IPv6Len]byte)(ip)
	if fixed[0]>>4 != 6 {
		return drop.BadIPVersion
	}
	end := EthernetLen + IPv6Len + ip.PayloadLen()
	if end > len(frame) {
		return drop.BadIPLength
	}
	o.Src, o.Dst = addrAt((*[16]byte)(fixed[ip6Src:])), addrAt((*[16]byte)(fixed[ip6Dst:]))
	switch next := fixed[ip6Next]; {
	case !o.Src.possible() || !o.Dst.possible():
		return drop.BadIPAddress
	case next == ProtoFragment:
		return drop.IPFragment
	case next != ProtoUDP && isExtension(next):
		return drop.ExtensionHeader
	}
	o.Family, o.TOS, o.TTL, o.Proto = FlagIPv6, ip.TrafficClass(), fixed[ip6Hops], fixed[ip6Next]
	o.L4, o.L4End = EthernetLen+IPv6Len, end
	return drop.None
}
