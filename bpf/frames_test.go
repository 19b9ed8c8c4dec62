package bpf

import (
	"encoding/binary"
	"net/netip"
	"slices"
)

// Frame builders. Each layer is bytes; a frame is their concatenation.

var (
	ownVTEP   = netip.MustParseAddr("10.0.0.1")
	otherVTEP = netip.MustParseAddr("10.0.9.1")

	ownVTEP6   = netip.MustParseAddr("2001:db8::1")
	otherVTEP6 = netip.MustParseAddr("2001:db8:9::1")
)

const (
	vxlanPort = 4789
	seed      = 0x1234
)

func be(v uint16) []byte { return binary.BigEndian.AppendUint16(nil, v) }

func join(parts ...[]byte) []byte { return slices.Concat(parts...) }

// eth is an Ethernet header; what follows is the caller's.
func eth(etherType uint16, rest ...[]byte) []byte {
	return join([]byte{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2}, be(etherType), join(rest...))
}

// tag is what lies behind a VLAN EtherType.
func tag(tci, next uint16) []byte { return join(be(tci), be(next)) }

// ip4 is an IPv4 header with optionWords words of options, and its payload.
func ip4(proto byte, optionWords int, fragment uint16, payload []byte) []byte {
	hlen := 20 + 4*optionWords
	h := make([]byte, hlen)
	h[0] = 0x40 | byte(hlen/4)
	binary.BigEndian.PutUint16(h[2:], uint16(hlen+len(payload)))
	binary.BigEndian.PutUint16(h[6:], fragment)
	h[8], h[9] = 64, proto
	copy(h[12:], []byte{192, 168, 0, 1, 192, 168, 0, 2})
	for i := 20; i < hlen; i++ {
		h[i] = 1 // no-operation
	}
	return append(h, payload...)
}

// ip6 is an IPv6 header and its payload.
func ip6(next byte, payload []byte) []byte {
	h := make([]byte, 40)
	h[0] = 0x60
	binary.BigEndian.PutUint16(h[4:], uint16(len(payload)))
	h[6], h[7] = next, 64
	for i := range 32 {
		h[8+i] = byte(0x20 + i)
	}
	return append(h, payload...)
}

// tcp is a TCP header without options.
func tcp(src, dst uint16) []byte {
	return join(be(src), be(dst), make([]byte, 8), []byte{0x50, 0x10}, make([]byte, 6))
}

// udp is a UDP header and its payload.
func udp(src, dst uint16, payload []byte) []byte {
	return join(be(src), be(dst), be(uint16(8+len(payload))), be(0), payload)
}

// bth is a RoCEv2 base transport header.
func bth(qp uint32) []byte {
	return []byte{4, 0, 0xff, 0xff, 0x80, byte(qp >> 16), byte(qp >> 8), byte(qp), 0, 0, 0, 1}
}

// outer wraps inner in VXLAN towards dst. reserved are bytes 1 to 3 of the
// VXLAN header; shim lies behind it.
func outer(dst netip.Addr, optionWords int, reserved [3]byte, shim, inner []byte) []byte {
	vxlan := join([]byte{8}, reserved[:], []byte{0, 0, 100, 0}, shim)
	ip := ip4(17, optionWords, 0x4000, udp(50000, vxlanPort, join(vxlan, inner)))
	d := dst.As4()
	copy(ip[16:], d[:])
	checksum(ip[:20+4*optionWords])
	return eth(0x0800, ip)
}

// encap is outer as a plain RFC 7348 peer sends it, to our own VTEP.
func encap(inner []byte) []byte { return outer(ownVTEP, 0, [3]byte{}, nil, inner) }

// outer6 is outer for IPv6.
func outer6(dst netip.Addr, reserved [3]byte, shim, inner []byte) []byte {
	vxlan := join([]byte{8}, reserved[:], []byte{0, 0, 100, 0}, shim)
	return eth(0x86dd, toVTEP6(dst, ip6(17, udp(50000, vxlanPort, join(vxlan, inner)))))
}

// extended is VXLAN to our VTEP behind an extension header of some kind, with so many
// times 8 bytes more.
func extended(kind byte, more int) []byte {
	ext := append([]byte{17, byte(more)}, make([]byte, 6+8*more)...)
	if kind == 44 {
		ext = []byte{17, 0, 0, byte(more), 0, 0, 0, 1} // more: rest of the offset, and the bit for more
	}
	vxlan := join([]byte{8, 0, 0, 0, 0, 0, 100, 0}, make([]byte, 60))
	return eth(0x86dd, toVTEP6(ownVTEP6, ip6(kind, join(ext, udp(50000, vxlanPort, vxlan)))))
}

// toVTEP6 changes the destination of an IPv6 packet.
func toVTEP6(dst netip.Addr, ip []byte) []byte { return with(ip, 24, dst.AsSlice()...) }

// checksum fills in the checksum of an IPv4 header.
func checksum(h []byte) {
	h[10], h[11] = 0, 0
	var sum uint32
	for i := 0; i < len(h); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(h[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	binary.BigEndian.PutUint16(h[10:], ^uint16(sum))
}

// with returns a copy of frame in which bytes from off on are replaced.
func with(frame []byte, off int, b ...byte) []byte {
	f := slices.Clone(frame)
	copy(f[off:], b)
	return f
}
