package overlay

import "encoding/binary"

// VLANLen is the length of one VLAN tag, bytes.
const VLANLen = 4

// vidMask cuts the VLAN identifier out of a TCI.
const vidMask = 0x0fff

// VLAN is a view of what follows a tag's EtherType: the tag control information
// and the EtherType of what is tagged (IEEE 802.1Q §9.6).
//
//	 0                   1                   2                   3
//	 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	| PCP |D|        VID            |           EtherType           |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//
// The getters panic on a view that is not [VLAN.Valid].
type VLAN []byte

// TCI returns priority, drop eligibility and VLAN identifier as one number.
func (v VLAN) TCI() uint16 { return binary.BigEndian.Uint16(v) }

// EtherType returns the type of what is tagged.
func (v VLAN) EtherType() uint16 { return binary.BigEndian.Uint16(v[2:]) }

// PopVLAN takes the first tag off a frame by moving the addresses up, and
// returns the frame, which now starts VLANLen later in the same memory. A frame
// without a tag, or too short for one, comes back as it was.
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

// PushVLAN gives the frame that starts at buf[off] an 802.1Q tag with the given
// TCI, by moving the addresses down into the headroom. It returns where the
// frame starts now, off-VLANLen; or -1, having changed nothing, when there is
// no headroom for a tag or no whole Ethernet header at off.
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
