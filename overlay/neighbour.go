package overlay

import "encoding/binary"

// arpLen is the size of an ARP message of Ethernet and IPv4 (RFC 826).
const arpLen = 28

// Neighbour Discovery (RFC 4861 §4.3, §4.4, §4.6.1).
const (
	protoICMPv6     = 58
	ndSolicitation  = 135
	ndAdvertisement = 136
	ndLen           = 24 // up to the options
	ndTarget        = 8
	ndSourceLink    = 1 // options
	ndTargetLink    = 2
	ndHopLimit      = 255 // who sends another is no neighbour (§7.1)
	ndOptions       = 8   // most options that are looked at
)

// Announced returns the address that an untagged frame's sender says is its own, and the
// MAC address that goes with it: the sender's fields of ARP, the source of a neighbour
// solicitation, the target of a neighbour advertisement. l3 and flags are [Meta]'s. It
// reports false for every other frame. Whether it is true nobody knows.
func Announced(frame []byte, l3 uint8, flags uint16) (a Addr, m MAC, ok bool) {
	switch {
	case len(frame) < EthernetLen:
	case flags&FlagIPv6 != 0:
		a, m, ok = announcedND(frame, int(l3))
	case Ethernet(frame).EtherType() == EtherTypeARP && len(frame) >= EthernetLen+arpLen:
		p := frame[EthernetLen : EthernetLen+arpLen]
		if binary.BigEndian.Uint64(p)>>16 != 0x000108000604 { // Ethernet, IPv4, their lengths
			return a, m, false
		}
		a, m = Addr4(binary.BigEndian.Uint32(p[14:])), MAC(p[8:14])
		ok = a != Addr4(0) // 0: it asks whether the address is free (RFC 5227)
	}
	return a, m, ok && !m.IsZero() && !m.IsGroup()
}

// announcedND is Announced for IPv6.
func announcedND(frame []byte, l3 int) (a Addr, m MAC, ok bool) {
	ip := IPv6(frame[min(l3, len(frame)):])
	if !ip.Valid() || ip.NextHeader() != protoICMPv6 || ip[ip6Hops] != ndHopLimit {
		return a, m, false
	}
	p := ip[IPv6Len:min(len(ip), IPv6Len+ip.PayloadLen())]
	if len(p) < ndLen {
		return a, m, false
	}
	wanted := byte(0)
	switch p[0] {
	case ndSolicitation:
		wanted, a = ndSourceLink, addrAt((*[16]byte)(ip[ip6Src:]))
	case ndAdvertisement:
		wanted, a = ndTargetLink, addrAt((*[16]byte)(p[ndTarget:]))
		m, ok = MAC(frame[ethSrc:ethSrc+6]), true // the option may be missing (§4.4)
	default:
		return a, m, false
	}
	options := p[ndLen:]
	for range ndOptions {
		if len(options) < 8 || options[1] == 0 {
			break
		}
		if options[0] == wanted {
			m, ok = MAC(options[2:8]), true
			break
		}
		options = options[min(8*int(options[1]), len(options)):]
	}
	return a, m, ok && a != (Addr{})
}
