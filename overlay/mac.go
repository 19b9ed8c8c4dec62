// Package overlay holds the bytes that Loom puts on the wire and takes off it:
// views of Ethernet, IP, UDP and VXLAN headers, the fabric's fields inside the
// VXLAN header, encapsulation and decapsulation in place, the flow hash, ECN
// across the tunnel, VLAN tags, and the table of MAC addresses. It does no I/O,
// reads no clock and allocates nothing per packet.
package overlay

import (
	"encoding/binary"
	"fmt"
)

// MAC is an Ethernet address in transmission order.
type MAC [6]byte

// MACFromUint64 returns the address whose [MAC.Uint64] is v's low 48 bits.
func MACFromUint64(v uint64) MAC {
	return MAC{byte(v >> 40), byte(v >> 32), byte(v >> 24), byte(v >> 16), byte(v >> 8), byte(v)}
}

// Uint64 returns the address as a 48-bit number, first byte most significant.
func (m MAC) Uint64() uint64 {
	// The compiler copies an address onto the stack in four bytes and two. Loads
	// of the same sizes need not wait for both stores.
	return uint64(binary.BigEndian.Uint32(m[0:4]))<<16 | uint64(binary.BigEndian.Uint16(m[4:6]))
}

// IsGroup reports whether the address is multicast or broadcast (IEEE 802
// individual/group bit).
func (m MAC) IsGroup() bool { return m[0]&1 != 0 }

// IsZero reports whether all bits are zero.
func (m MAC) IsZero() bool { return m == MAC{} }

// String returns the address as lower-case hex bytes with colons.
func (m MAC) String() string {
	return fmt.Sprintf("%02x:%02x:%02x:%02x:%02x:%02x", m[0], m[1], m[2], m[3], m[4], m[5])
}
