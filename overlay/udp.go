package overlay

import "encoding/binary"

// UDPLen is the length of a UDP header, bytes.
const UDPLen = 8

// DefaultPort is VXLAN's UDP destination port (RFC 7348 §5).
const DefaultPort = 4789

const (
	rocePort = 4791 // RoCEv2's UDP destination port (InfiniBand Annex A17)
	bthLen   = 12   // length of the base transport header behind it, bytes
)

// UDP is a view of a datagram from its source port on (RFC 768).
//
//	 0                   1                   2                   3
//	 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|          source port          |        destination port       |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|             length            |            checksum           |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//
// The getters panic on a view that is not [UDP.Valid].
type UDP []byte

// Valid reports whether the view holds the whole header.
func (u UDP) Valid() bool { return len(u) >= UDPLen }

// SrcPort returns the source port.
func (u UDP) SrcPort() uint16 { return binary.BigEndian.Uint16(u[0:]) }

// DstPort returns the destination port.
func (u UDP) DstPort() uint16 { return binary.BigEndian.Uint16(u[2:]) }

// Length returns the length of header and payload, bytes.
func (u UDP) Length() int { return int(binary.BigEndian.Uint16(u[4:])) }
