package overlay

import "encoding/binary"

// IPv6Len is the length of an IPv6 header without extensions, bytes.
const IPv6Len = 40

// Offsets inside an IPv6 header.
const (
	ip6Payload = 4
	ip6Next    = 6
	ip6Hops    = 7
	ip6Src     = 8
	ip6Dst     = 24
)

// IPv6 is a view of a packet from its version on (RFC 8200 §3).
//
//	 0                   1                   2                   3
//	 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|  6    |    DSCP   |ECN|              flow label               |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|         payload length        |  next header  |   hop limit   |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|                        source (16 bytes)                      |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|                      destination (16 bytes)                   |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//
// The getters and setters panic on a view that is not [IPv6.Valid].
type IPv6 []byte

// Valid reports whether the version is 6 and the view holds the whole fixed header.
func (ip IPv6) Valid() bool { return len(ip) >= IPv6Len && ip[0]>>4 == 6 }

// TrafficClass returns the octet of DSCP and ECN.
func (ip IPv6) TrafficClass() uint8 { return ip[0]<<4 | ip[1]>>4 }

// SetTrafficClass replaces DSCP and ECN; IPv6 has no header checksum.
func (ip IPv6) SetTrafficClass(tos uint8) {
	ip[0] = ip[0]&0xf0 | tos>>4
	ip[1] = ip[1]&0x0f | tos<<4
}

// PayloadLen returns the length of what follows the fixed header, bytes.
func (ip IPv6) PayloadLen() int { return int(binary.BigEndian.Uint16(ip[ip6Payload:])) }

// NextHeader returns the protocol number of what follows the fixed header.
func (ip IPv6) NextHeader() uint8 { return ip[ip6Next] }

// DecHopLimit takes one from the hop limit. A limit of zero is left alone, as by
// [IPv4.DecTTL].
func (ip IPv6) DecHopLimit() {
	if ip[ip6Hops] > 0 {
		ip[ip6Hops]--
	}
}

// isExtension reports whether a next header is one of IPv6's extension headers (RFC 7045
// §4) that may stand in front of UDP. The fragment header counts apart.
func isExtension(next uint8) bool {
	switch next {
	case 0, 43, 51, 60, 135, 139, 140, 253, 254: // hop-by-hop, routing, AH, destination, mobility, HIP, shim6, experiments
		return true
	}
	return false
}
