package overlay

import (
	"encoding/binary"

	"github.com/loomfabric/loom/internal/mono"
)

// What only tests ask of the views.

// Src returns the source address.
func (e Ethernet) Src() MAC { return MAC(e[ethSrc : ethSrc+6]) }

// ID returns the identification field.
func (ip IPv4) ID() uint16 { return binary.BigEndian.Uint16(ip[4:]) }

// DontFragment reports whether DF is set.
func (ip IPv4) DontFragment() bool { return binary.BigEndian.Uint16(ip[ip4Frag:])&ip4DF != 0 }

// ChecksumOK reports whether the header checksum holds (RFC 1071).
func (ip IPv4) ChecksumOK() bool { return fold(sum16(ip[:ip.HeaderLen()])) == 0xffff }

// UpdateChecksum computes the header checksum from scratch.
func (ip IPv4) UpdateChecksum() {
	binary.BigEndian.PutUint16(ip[ip4Checksum:], 0)
	binary.BigEndian.PutUint16(ip[ip4Checksum:], ^fold(sum16(ip[:ip.HeaderLen()])))
}

// HopLimit returns the hops left.
func (ip IPv6) HopLimit() uint8 { return ip[7] }

// Src returns the source address.
func (ip IPv6) Src() [16]byte { return [16]byte(ip[ip6Src : ip6Src+16]) }

// Dst returns the destination address.
func (ip IPv6) Dst() [16]byte { return [16]byte(ip[ip6Dst : ip6Dst+16]) }

// VID returns the VLAN identifier, 0..4095; 0 marks a priority tag.
func (v VLAN) VID() uint16 { return v.TCI() & vidMask }

// PCP returns the priority code point, 0..7.
func (v VLAN) PCP() uint8 { return v[0] >> 5 }

// Learn notes that a frame from mac was seen at d.
func (f *FDB) Learn(vni uint16, mac MAC, d Dest, now mono.Time) Learned {
	return f.LearnKey(MakeFDBKey(vni, mac), d, now)
}
