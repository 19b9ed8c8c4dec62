package overlay

import (
	"encoding/binary"
	"math/bits"
)

// Offsets of the checksum in an L4 header.
const (
	udpChecksum = 6
	tcpChecksum = 16
)

// FinishChecksum computes the checksum of a TCP segment or UDP datagram that its
// sender left to a network card: hosts behind veth pairs and taps send such frames, and
// kernels' VTEPs pass them on. The checksum field then has the folded sum of the
// pseudo-header alone (Linux: CHECKSUM_PARTIAL), by which they are known. One finished frame in 65536 looks the
// same and does not change, since its checksum comes out as it was, if it was right.
// FinishChecksum reports whether the frame was changed or might have been.
//
// The frame has an IP header at l3. m describes it, perhaps before a tag was taken
// off, as in [ExactKey]. Fragments are left alone: their sender has finished them.
func FinishChecksum(frame []byte, l3 uint8, m *Meta) bool {
	if m.Flags&FlagPorts == 0 {
		return false
	}
	at, l4 := int(l3), int(l3)+int(m.L4)-int(m.L3)
	if at < EthernetLen || l4 < at+IPv4Len || l4 > len(frame) {
		return false
	}
	// One's complement sums do not depend on the byte order (RFC 1071 §2 B): all of
	// them here are of little-endian words. They count modulo 65535.
	var sum uint64
	var end int
	var proto uint8
	if ip := frame[at:l4]; m.Flags&FlagIPv4 != 0 {
		x := binary.LittleEndian.Uint64(ip[ip4Src:])
		sum = x>>32 + x&0xffff_ffff
		end, proto = at+IPv4(ip).TotalLen(), ip[ip4Proto]
	} else {
		if len(ip) < IPv6Len {
			return false
		}
		for i := ip6Src; i < IPv6Len; i += 8 {
			x := binary.LittleEndian.Uint64(ip[i:])
			sum += x>>32 + x&0xffff_ffff
		}
		end, proto = at+IPv6Len+IPv6(ip).PayloadLen(), ip[ip6Next]
	}
	field := l4 + tcpChecksum
	if proto == ProtoUDP {
		field = l4 + udpChecksum
	} else if proto != ProtoTCP {
		return false
	}
	if end > len(frame) || field+2 > end {
		return false
	}
	stored := binary.LittleEndian.Uint16(frame[field:])
	sum += uint64(proto)<<8 + uint64(bits.ReverseBytes16(uint16(end-l4)))
	if stored == 0 || (sum+uint64(^stored))%0xffff != 0 {
		return false
	}
	c := ^fold64(sumLittle(frame[l4:end]))
	if c == 0 {
		c = 0xffff // the other zero: in UDP, 0 would mean that there is no checksum (RFC 768)
	}
	binary.LittleEndian.PutUint16(frame[field:], c)
	return true
}

// sumLittle adds up little-endian words of b, at most 64 KiB, without folding carries.
func sumLittle(b []byte) (sum uint64) {
	for len(b) >= 16 {
		sum += uint64(binary.LittleEndian.Uint32(b)) + uint64(binary.LittleEndian.Uint32(b[4:])) +
			uint64(binary.LittleEndian.Uint32(b[8:])) + uint64(binary.LittleEndian.Uint32(b[12:]))
		b = b[16:]
	}
	for ; len(b) >= 2; b = b[2:] {
		sum += uint64(binary.LittleEndian.Uint16(b))
	}
	if len(b) == 1 {
		sum += uint64(b[0])
	}
	return sum
}

// fold64 brings a sum of 32-bit words to one 16-bit word by end-around carry.
func fold64(sum uint64) uint16 {
	sum = sum>>32 + sum&0xffff_ffff
	sum = sum>>32 + sum&0xffff_ffff
	sum = sum>>16 + sum&0xffff
	sum = sum>>16 + sum&0xffff
	return uint16(sum + sum>>16)
}
