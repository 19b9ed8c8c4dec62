package overlay

import "encoding/binary"

// VLANLen is the length of one VLAN tag, bytes.
const VLANLen = 4

// vidMask cuts the VLAN identifier out of a TCI.
const vidMask = 0x0fff

// VLAN is a view of the bytes behind a tag's EtherType: the tag control information
// and the EtherType of the payload (IEEE 802.1Q §9.6).
//
//	 0                   1                   2                   3
//	 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	| PCP |D|        VID            |           EtherType           |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//
// The getters panic on a view shorter than [VLANLen].
type VLAN []byte

// TCI returns priority, drop eligibility and VLAN identifier as one number.
func (v VLAN) TCI() uint16 { return binary.BigEndian.Uint16(v) }

// EtherType returns the type of the payload.
func (v VLAN) EtherType() uint16 { return binary.BigEndian.Uint16(v[2:]) }

// PopVLAN takes the first tag off a frame by moving the addresses up. It returns
// the frame, which now starts VLANLen later in the same memory. It does not change
// a frame that has no tag or is too short for one.
func PopVLAN(frame []byte) []byte {
	if len(frame) < EthernetLen+VLANLen || !IsVLAN(Ethernet(frame).EtherType()) {
		return frame
	}
	// Both loads come before the stores: source and target overlap.
	b := (*[ethType + VLANLen]byte)(frame)
	lo, hi := binary.LittleEndian.Uint64(b[0:]), binary.LittleEndian.Uint32(b[8:])
	binary.LittleEndian.PutUint64(b[VLANLen:], lo)
	binary.LittleEndian.PutUint32(b[VLANLen+8:], hi)
	return frame[VLANLen:]
}

// PushVLAN gives the frame at buf[off:] an 802.1Q tag with the given TCI, by moving
// the addresses down into the headroom. It returns the frame's new start,
// off-VLANLen. Without headroom for a tag, or without a whole Ethernet header at
// off, it changes nothing and returns -1.
func PushVLAN(buf []byte, off int, tci uint16) int {
	if off < VLANLen || len(buf)-off < EthernetLen {
		return -1
	}
	b := (*[ethType + VLANLen]byte)(buf[off-VLANLen:])
	lo, hi := binary.LittleEndian.Uint64(b[VLANLen:]), binary.LittleEndian.Uint32(b[VLANLen+8:])
	binary.LittleEndian.PutUint64(b[0:], lo)
	binary.LittleEndian.PutUint32(b[8:], hi)
	binary.BigEndian.PutUint32(b[ethType:], EtherTypeVLAN<<16|uint32(tci))
	return off - VLANLen
}
