package overlay

import (
	"encoding/binary"
	"math/bits"
)

// FlowKey is a flow's exact identity: its addresses, protocol and ports, or its MAC
// addresses and EtherType if it is not IP. It is unique in a virtual network, except
// for RoCEv2's queue pairs that share a source port. It is comparable; no flow has
// the zero value.
type FlowKey struct {
	Src, Dst         [16]byte // IPv4 addresses and MAC addresses stand at the front
	SrcPort, DstPort uint16   // 0 without ports; the EtherType in both without IP
	Proto            uint8    // 0 without IP
	Version          uint8    // 4 or 6; 2 for MAC addresses
}

// Reverse returns the key of the packets that go the other way.
func (k FlowKey) Reverse() FlowKey {
	k.Src, k.Dst, k.SrcPort, k.DstPort = k.Dst, k.Src, k.DstPort, k.SrcPort
	return k
}

// Hash returns a hash of 64 bits, wide enough to tell flows apart by it alone: among
// 2^16 flows two have the same one with a probability of 10^-10. Another seed makes
// another function.
func (k *FlowKey) Hash(seed uint64) uint64 {
	return hashFlowKey(seed, &k.Src, &k.Dst, k.SrcPort, k.DstPort, k.Proto, k.Version)
}

// ReverseHash returns the Hash of Reverse.
func (k *FlowKey) ReverseHash(seed uint64) uint64 {
	return hashFlowKey(seed, &k.Dst, &k.Src, k.DstPort, k.SrcPort, k.Proto, k.Version)
}

// hashFlowKey folds products of 128 bits (the construction of wyhash, Wang Yi 2019).
func hashFlowKey(seed uint64, src, dst *[16]byte, sport, dport uint16, proto, version uint8) uint64 {
	le := binary.LittleEndian
	const a, b, c = 0xa0761d6478bd642f, 0xe7037ed1a0b428db, 0x8ebc6af09c88c6e3
	h := fold128(seed^a^uint64(sport)<<32^uint64(dport)<<16^uint64(proto)<<8^uint64(version), b)
	h = fold128(le.Uint64(src[:])^h^b, le.Uint64(dst[:])^c)
	if version == 6 { // all others have zeroes there
		h = fold128(le.Uint64(src[8:])^h^c, le.Uint64(dst[8:])^a)
	}
	return fold128(h^a, b)
}

func fold128(x, y uint64) uint64 {
	high, low := bits.Mul64(x, y)
	return high ^ low
}

// Pair returns the key of all flows between the same two hosts.
func (k FlowKey) Pair() FlowKey {
	k.SrcPort, k.DstPort, k.Proto = 0, 0, 0
	return k
}

// TCP flags (RFC 9293 §3.1).
const (
	TCPSyn uint8 = 0x02
	TCPRst uint8 = 0x04
	TCPAck uint8 = 0x10
)

// tcpFlagsAt is the offset of the flags in a TCP header (RFC 9293 §3.1), bytes.
const tcpFlagsAt = 13

// ExactKey fills k from a frame with an IP header at l3 (0: none). m describes the
// frame, perhaps before a tag was taken off: its flags and its distance between L3
// and L4 count. ExactKey returns the TCP flags, 0 if the frame has none.
func ExactKey(frame []byte, l3 uint8, m *Meta, k *FlowKey) (tcpFlags uint8) {
	*k = FlowKey{}
	at := int(l3)
	switch {
	case m.Flags&FlagIPv4 != 0 && len(frame) >= at+IPv4Len:
		ip := IPv4(frame[at:])
		copy(k.Src[:4], ip[ip4Src:])
		copy(k.Dst[:4], ip[ip4Dst:])
		k.Version, k.Proto = 4, ip.Proto()
	case m.Flags&FlagIPv6 != 0 && len(frame) >= at+IPv6Len:
		ip := IPv6(frame[at:])
		copy(k.Src[:], ip[ip6Src:])
		copy(k.Dst[:], ip[ip6Dst:])
		k.Version, k.Proto = 6, ip.NextHeader()
	case len(frame) < EthernetLen:
		return 0
	default:
		copy(k.Src[:6], frame[ethSrc:])
		copy(k.Dst[:6], frame[ethDst:])
		k.Version = 2
		k.SrcPort = Ethernet(frame).EtherType()
		k.DstPort = k.SrcPort
		return 0
	}
	l4 := at + int(m.L4) - int(m.L3) // m may count from before a tag was taken off
	if m.Flags&FlagPorts == 0 || len(frame) < l4+4 {
		return 0
	}
	k.SrcPort, k.DstPort = binary.BigEndian.Uint16(frame[l4:]), binary.BigEndian.Uint16(frame[l4+2:])
	if k.Proto == ProtoTCP && len(frame) > l4+tcpFlagsAt {
		tcpFlags = frame[l4+tcpFlagsAt]
	}
	return tcpFlags
}
