package overlay

import "encoding/binary"

// MetaLen is the size of a [Meta] in memory, bytes.
const MetaLen = 16

// MetaMagic marks metadata that the XDP program wrote ("LOOM").
const MetaMagic uint32 = 0x4C4F4F4D

// Bits of [Meta.Flags].
const (
	FlagVLAN     uint16 = 1 << iota // the frame is tagged; Meta.VLAN is valid
	FlagIPv4                        // L3 is an IPv4 header
	FlagIPv6                        // L3 is an IPv6 header
	FlagPorts                       // the hash covers both L4 ports
	FlagFragment                    // the packet is an IP fragment
	FlagRoCE                        // the hash covers RoCEv2's destination QP
)

// Meta is the result of dissecting a frame's headers. The XDP program puts it in
// front of the frame as struct loom_meta of bpf/loom.h, in native byte order and
// with the same layout. On access ports and a leaf's uplinks it describes the
// tenant's frame, and offsets count from the start of that frame. On a spine's
// ports it describes the outer frame.
type Meta struct {
	Magic uint32 // MetaMagic
	Hash  uint32 // flow hash
	VLAN  uint16 // TCI of the first tag, 0 if there is none
	Flags uint16 // Flag...
	L3    uint8  // offset of the IP header, 0 if none
	L4    uint8  // offset of the L4 header, 0 unless FlagPorts
	Inner uint8  // uplink: offset of the inner frame inside the outer one; else 0
	Pad   uint8
}

// hashKey separates the fabric's hash from others with the same seed.
const hashKey = 0x4C6F6F6D

// mix folds one word into the running hash: multiplication carries every bit
// upwards, the shift brings the high half back down.
func mix(h, w uint64) uint64 {
	h ^= w
	h *= 0x9E3779B97F4A7C15
	return h ^ h>>32
}

// finish returns the high half of one more product. Unlike the low half's, each
// of its bits depends on all bits of the running hash.
func finish(h uint64) uint32 {
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	return uint32(h >> 32)
}

// Dissect fills all fields of m but Inner from the frame. It returns exactly what
// the XDP program's dissect does:
//
//   - at most two VLAN tags, of either kind, are skipped;
//   - IPv4 and IPv6 hash addresses, protocol and the ports of unfragmented TCP,
//     UDP and SCTP;
//   - RoCEv2 (UDP port 4791) also hashes the destination QP, since queue pairs may
//     share a source port;
//   - IPv6 extension headers are not walked: such packets hash by addresses and
//     next header;
//   - everything else, impossible IP headers included, hashes by both MAC
//     addresses and the EtherType behind the tags.
//
// No input makes it panic. A frame too short for Ethernet yields a zero hash
// and no flags.
func Dissect(frame []byte, seed uint32, m *Meta) {
	*m = Meta{Magic: MetaMagic, Inner: m.Inner}
	if len(frame) < EthernetLen {
		return
	}
	h := uint64(seed) ^ hashKey
	off := EthernetLen
	etherType := Ethernet(frame).EtherType()
	if IsVLAN(etherType) && len(frame) >= off+VLANLen {
		tag := VLAN(frame[off:])
		m.VLAN, m.Flags = tag.TCI(), FlagVLAN
		etherType = tag.EtherType()
		off += VLANLen
		if IsVLAN(etherType) && len(frame) >= off+VLANLen {
			etherType = VLAN(frame[off:]).EtherType()
			off += VLANLen
		}
	}
	switch {
	case etherType == EtherTypeIPv4 && IPv4(frame[off:]).Valid():
		ip := IPv4(frame[off:])
		m.L3 = uint8(off)
		m.Flags |= FlagIPv4
		if ip.Fragment() {
			m.Flags |= FlagFragment
		}
		h = mix(h, binary.LittleEndian.Uint64(ip[ip4Src:]))
		h = hashL4(h, frame, off+ip.HeaderLen(), off+ip.TotalLen(), ip.Proto(), m)
	case etherType == EtherTypeIPv6 && IPv6(frame[off:]).Valid():
		ip := IPv6(frame[off:])
		m.L3 = uint8(off)
		m.Flags |= FlagIPv6
		if ip.NextHeader() == ProtoFragment {
			m.Flags |= FlagFragment
		}
		h = mix(h, binary.LittleEndian.Uint64(ip[ip6Src:]))
		h = mix(h, binary.LittleEndian.Uint64(ip[ip6Src+8:]))
		h = mix(h, binary.LittleEndian.Uint64(ip[ip6Dst:]))
		h = mix(h, binary.LittleEndian.Uint64(ip[ip6Dst+8:]))
		h = hashL4(h, frame, off+IPv6Len, off+IPv6Len+ip.PayloadLen(), ip.NextHeader(), m)
	default:
		dst := binary.LittleEndian.Uint64(frame[ethDst:]) & (1<<48 - 1)
		src := binary.LittleEndian.Uint64(frame[ethSrc-2:]) >> 16
		h = mix(mix(h, dst|uint64(etherType)<<48), src)
	}
	m.Hash = finish(h)
}

// hashL4 mixes in the protocol, and the ports and queue pair that the L4 header
// at off has. The datagram ends at end, which may lie beyond the frame.
func hashL4(h uint64, frame []byte, off, end int, proto uint8, m *Meta) uint64 {
	end = min(end, len(frame))
	if proto != ProtoTCP && proto != ProtoUDP && proto != ProtoSCTP ||
		m.Flags&FlagFragment != 0 || off+4 > end {
		return mix(h, uint64(proto)<<32)
	}
	l4 := frame[off:end]
	m.L4 = uint8(off)
	m.Flags |= FlagPorts
	// Ports below: a product carries them upwards through the whole word.
	h = mix(h, uint64(proto)<<32|uint64(binary.LittleEndian.Uint32(l4)))
	if proto == ProtoUDP && len(l4) >= UDPLen+bthLen && UDP(l4).DstPort() == rocePort {
		m.Flags |= FlagRoCE
		h = mix(h, uint64(binary.BigEndian.Uint32(l4[UDPLen+4:])&0xffffff))
	}
	return h
}
