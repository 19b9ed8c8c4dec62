package overlay

import "encoding/binary"

// EtherTypes that the fabric knows.
const (
	EtherTypeIPv4 = 0x0800
	EtherTypeARP  = 0x0806
	EtherTypeVLAN = 0x8100 // IEEE 802.1Q customer tag
	EtherTypeIPv6 = 0x86dd
	EtherTypeQinQ = 0x88a8 // IEEE 802.1Q service tag
	// EtherTypeLocal is IEEE 802's for local experiments. It stands in messages for the
	// other end of a link, and in the empty frame inside messages about no flow.
	EtherTypeLocal = 0x88b5
)

// EthernetLen is the length of an Ethernet header without tags, bytes.
const EthernetLen = 14

// Offsets inside an Ethernet header.
const (
	ethDst  = 0
	ethSrc  = 6
	ethType = 12
)

// Ethernet is a view of a frame from its destination address on.
//
//	 0                   1                   2                   3
//	 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|                        destination                            |
//	+                               +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|                               |            source             |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+                               +
//	|                                                               |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|           EtherType           |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//
// The getters and setters panic on a view shorter than [EthernetLen].
type Ethernet []byte

// Dst returns the destination address.
func (e Ethernet) Dst() MAC { return MAC(e[ethDst : ethDst+6]) }

// EtherType returns the type behind the addresses; in a tagged frame that is the
// tag's.
func (e Ethernet) EtherType() uint16 { return binary.BigEndian.Uint16(e[ethType:EthernetLen]) }

// DstKey returns the FDB key of the destination address in the VNI with index
// vni.
func (e Ethernet) DstKey(vni uint16) FDBKey {
	return FDBKey(vni)<<48 | FDBKey(binary.BigEndian.Uint64(e[ethDst:])>>16)
}

// SrcKey returns the FDB key of the source address in the VNI with index vni.
func (e Ethernet) SrcKey(vni uint16) FDBKey {
	return FDBKey(vni)<<48 | FDBKey(binary.BigEndian.Uint64(e[ethSrc:])>>16)
}

// SetDst replaces the destination address.
func (e Ethernet) SetDst(m MAC) { copy(e[ethDst:ethDst+6], m[:]) }

// SetSrc replaces the source address.
func (e Ethernet) SetSrc(m MAC) { copy(e[ethSrc:ethSrc+6], m[:]) }

// SetEtherType replaces the type behind the addresses.
func (e Ethernet) SetEtherType(t uint16) { binary.BigEndian.PutUint16(e[ethType:EthernetLen], t) }

// IsVLAN reports whether the EtherType announces a VLAN tag, of either kind.
func IsVLAN(etherType uint16) bool {
	return etherType == EtherTypeVLAN || etherType == EtherTypeQinQ
}
