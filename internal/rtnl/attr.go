package rtnl

import (
	"encoding/binary"
	"iter"
	"net/netip"
	"strings"

	"golang.org/x/sys/unix"
)

// Attributes yields the attributes of b (struct rtattr, nlattr): types without their flags,
// and values. It ends at the first one that does not fit into b.
func Attributes(b []byte) iter.Seq2[uint16, []byte] {
	return func(yield func(uint16, []byte) bool) {
		for len(b) >= unix.SizeofRtAttr {
			size := int(binary.NativeEndian.Uint16(b))
			kind := binary.NativeEndian.Uint16(b[2:]) &^ (unix.NLA_F_NESTED | unix.NLA_F_NET_BYTEORDER)
			if size < unix.SizeofRtAttr || size > len(b) || !yield(kind, b[unix.SizeofRtAttr:size]) {
				return
			}
			b = b[min(align(size), len(b)):]
		}
	}
}

// AppendUint32 appends an attribute that is a number.
func AppendUint32(b []byte, kind uint16, value uint32) []byte {
	b = binary.NativeEndian.AppendUint16(b, unix.SizeofRtAttr+4)
	b = binary.NativeEndian.AppendUint16(b, kind)
	return binary.NativeEndian.AppendUint32(b, value)
}

// align rounds a size up to where the next attribute or message begins.
func align(size int) int { return (size + 3) &^ 3 }

// The functions below read a value. One of another length than its type has is 0.

// Uint8 reads a number of one byte.
func Uint8(v []byte) uint8 {
	if len(v) != 1 {
		return 0
	}
	return v[0]
}

// Uint16 reads a number of two bytes in the host's order.
func Uint16(v []byte) uint16 {
	if len(v) != 2 {
		return 0
	}
	return binary.NativeEndian.Uint16(v)
}

// Uint32 reads a number of four bytes in the host's order.
func Uint32(v []byte) uint32 {
	if len(v) != 4 {
		return 0
	}
	return binary.NativeEndian.Uint32(v)
}

// BE16 reads a number of two bytes in network order.
func BE16(v []byte) uint16 {
	if len(v) != 2 {
		return 0
	}
	return binary.BigEndian.Uint16(v)
}

// BE32 reads a number of four bytes in network order.
func BE32(v []byte) uint32 {
	if len(v) != 4 {
		return 0
	}
	return binary.BigEndian.Uint32(v)
}

// Index reads the index of an interface.
func Index(v []byte) int { return int(int32(Uint32(v))) }

// Text reads a name.
func Text(v []byte) string { return strings.TrimRight(string(v), "\x00") }

// Addr reads an IPv4 or IPv6 address. A value of another length is the zero Addr.
func Addr(v []byte) netip.Addr {
	a, _ := netip.AddrFromSlice(v)
	return a.Unmap()
}
