package overlay

import "encoding/binary"

// IPv4Len is the length of an IPv4 header without options, bytes.
const IPv4Len = 20

// IP protocol numbers that the fabric knows.
const (
	ProtoTCP      = 6
	ProtoUDP      = 17
	ProtoFragment = 44 // IPv6 fragment header
	ProtoSCTP     = 132
)

// Offsets and masks inside an IPv4 header.
const (
	ip4VerIHL   = 0
	ip4TOS      = 1
	ip4Total    = 2
	ip4Frag     = 6
	ip4TTL      = 8
	ip4Proto    = 9
	ip4Checksum = 10
	ip4Src      = 12
	ip4Dst      = 16

	ip4DF       = 0x4000 // don't fragment
	ip4FragMask = 0x3fff // more fragments, or an offset
)

// IPv4 is a view of a datagram from its version on (RFC 791 §3.1).
//
//	 0                   1                   2                   3
//	 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|  4    |  IHL  |    DSCP   |ECN|          total length         |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|         identification        |0|D|M|     fragment offset     |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|      TTL      |    protocol   |        header checksum        |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|                            source                             |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|                          destination                          |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//
// The getters and setters panic on a view that is not [IPv4.Valid].
type IPv4 []byte

// Valid reports whether version and header length are possible and the view holds
// the whole header, options included. It checks neither total length nor checksum.
func (ip IPv4) Valid() bool {
	return len(ip) >= IPv4Len && ip[ip4VerIHL]>>4 == 4 && ip[ip4VerIHL]&0xf >= 5 && len(ip) >= ip.HeaderLen()
}

// HeaderLen returns the header's length with options, bytes.
func (ip IPv4) HeaderLen() int { return int(ip[ip4VerIHL]&0xf) * 4 }

// TOS returns the octet of DSCP and ECN (RFC 2474, RFC 3168).
func (ip IPv4) TOS() uint8 { return ip[ip4TOS] }

// TotalLen returns the datagram's length, bytes.
func (ip IPv4) TotalLen() int { return int(binary.BigEndian.Uint16(ip[ip4Total:])) }

// Fragment reports whether this is a fragment: the first, a middle or the last.
func (ip IPv4) Fragment() bool { return binary.BigEndian.Uint16(ip[ip4Frag:])&ip4FragMask != 0 }

// TTL returns the time to live, hops.
func (ip IPv4) TTL() uint8 { return ip[ip4TTL] }

// Proto returns the protocol number.
func (ip IPv4) Proto() uint8 { return ip[ip4Proto] }

// Checksum returns the header checksum.
func (ip IPv4) Checksum() uint16 { return binary.BigEndian.Uint16(ip[ip4Checksum:]) }

// Src returns the source address as a number, first byte most significant.
func (ip IPv4) Src() uint32 { return binary.BigEndian.Uint32(ip[ip4Src:]) }

// Dst returns the destination address as a number, first byte most significant.
func (ip IPv4) Dst() uint32 { return binary.BigEndian.Uint32(ip[ip4Dst:]) }

// DecTTL takes one from the TTL and patches the checksum (RFC 1624 §3, eqn. 3).
// A TTL of zero is left alone; the caller drops a datagram whose TTL is at most
// one before it forwards it.
func (ip IPv4) DecTTL() {
	ttl := ip[ip4TTL]
	if ttl == 0 {
		return
	}
	ip[ip4TTL] = ttl - 1
	// The 16-bit word is TTL . protocol; a patch depends only on what it shrinks by.
	binary.BigEndian.PutUint16(ip[ip4Checksum:], patch(ip.Checksum(), 0x0100, 0))
}

// SetTOS replaces DSCP and ECN and patches the checksum.
func (ip IPv4) SetTOS(tos uint8) {
	c := patch(ip.Checksum(), uint16(ip[ip4TOS]), uint16(tos))
	ip[ip4TOS] = tos
	binary.BigEndian.PutUint16(ip[ip4Checksum:], c)
}

// patch returns the checksum c after one 16-bit word under it changed from old
// to new: HC' = ~(~HC + ~m + m'), RFC 1624 §3, eqn. 3.
func patch(c, old, new uint16) uint16 {
	return ^fold(uint32(^c) + uint32(^old) + uint32(new))
}

// sum16 adds up big-endian 16-bit words without folding carries. b is a header:
// of even length, and at most 60 bytes, so that the sum cannot overflow.
func sum16(b []byte) (sum uint32) {
	for len(b) >= 4 {
		sum += uint32(b[0])<<8 | uint32(b[1])
		sum += uint32(b[2])<<8 | uint32(b[3])
		b = b[4:]
	}
	return sum
}

// fold brings a sum of at most 65536 16-bit words to one word by end-around
// carry.
func fold(sum uint32) uint16 {
	sum = sum>>16 + sum&0xffff
	return uint16(sum + sum>>16)
}
