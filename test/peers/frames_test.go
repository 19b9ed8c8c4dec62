package peers

import (
	"encoding/binary"
	"net"
	"net/netip"
)

const (
	ethLen  = 14
	ipLen   = 20
	udpLen  = 8
	headers = ethLen + ipLen + udpLen
	tunnel  = headers + 8 // what VXLAN puts in front of a frame

	// Offsets in a frame without a tag: IPv4 without options, UDP, VXLAN.
	offTTL       = ethLen + 8
	offIPDest    = ethLen + 16
	offUDPSource = ethLen + ipLen
	offUDPDest   = offUDPSource + 2
	offVXLAN     = headers
	offStamp     = headers // in the payload of a tenant's frame: when it was made
	discard      = 9       // UDP port
)

// tenant returns an Ethernet frame of n bytes from one host to another: UDP over IPv4.
func tenant(n int, from, to string) []byte {
	f := make([]byte, n)
	udp(f, mac(from), mac(to), "192.168.0.1", "192.168.0.2", discard)
	return f
}

// wrap puts a frame into VXLAN as RFC 7348 has it.
func wrap(inner []byte, srcMAC, dstMAC net.HardwareAddr, src, dst string) []byte {
	f := make([]byte, tunnel, tunnel+len(inner))
	f = append(f, inner...)
	udp(f, srcMAC, dstMAC, src, dst, vxlanPort)
	binary.BigEndian.PutUint32(f[offVXLAN:], 0x08<<24)
	binary.BigEndian.PutUint32(f[offVXLAN+4:], vni<<8)
	return f
}

// udp writes the headers of a frame that is UDP over IPv4 without a checksum of the payload.
func udp(f []byte, srcMAC, dstMAC net.HardwareAddr, src, dst string, port uint16) {
	copy(f, dstMAC)
	copy(f[6:], srcMAC)
	binary.BigEndian.PutUint16(f[12:], 0x0800)
	ip := f[ethLen:]
	ip[0], ip[8], ip[9] = 0x45, 64, 17
	binary.BigEndian.PutUint16(ip[2:], uint16(len(f)-ethLen))
	copy(ip[12:], netip.MustParseAddr(src).AsSlice())
	copy(ip[16:], netip.MustParseAddr(dst).AsSlice())
	var sum uint32
	for i := 0; i < ipLen; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(ip[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	binary.BigEndian.PutUint16(ip[10:], ^uint16(sum))
	binary.BigEndian.PutUint16(f[offUDPDest:], port)
	binary.BigEndian.PutUint16(f[offUDPDest+2:], uint16(len(f)-ethLen-ipLen))
}

func mac(s string) net.HardwareAddr {
	m, err := net.ParseMAC(s)
	if err != nil {
		panic(err)
	}
	return m
}

// sent is what the generator sends.
type sent struct {
	frame []byte
	ports []int16 // offsets of UDP source ports, which differ from flow to flow
	stamp int16   // offset of the time
}

// wanted is what the sink is to get: frames of a length that have the words of another at
// some offsets.
type wanted struct {
	frame []byte
	words []word
	stamp int16 // offset of the time
}

// word is a part of a frame, of 2, 4 or 8 bytes.
type word struct{ offset, size int16 }

// encapsulated has a host's frame put into VXLAN.
func encapsulated(d *bed, n int) (s sent, w wanted) {
	s = sent{tenant(n, hostMAC, remoteMAC), []int16{offUDPSource}, offStamp}
	w.frame = wrap(s.frame, d.out.mac, d.end.mac, localVTEP, peerVTEP)
	// Who it is for, that it is IPv4, VTEP, port, the VXLAN header, and whose frame is inside.
	w.words = []word{{0, 4}, {4, 2}, {12, 4}, {offIPDest, 4}, {offUDPDest, 2}, {offVXLAN, 8}, {tunnel, 8}, {tunnel + 8, 4}}
	w.stamp = tunnel + offStamp
	return s, w
}

// decapsulated has a frame taken out of VXLAN.
func decapsulated(d *bed, n int) (s sent, w wanted) {
	inner := tenant(n, remoteMAC, hostMAC)
	s = sent{wrap(inner, d.load.mac, d.in.mac, peerVTEP, localVTEP), []int16{offUDPSource, tunnel + offUDPSource}, tunnel + offStamp}
	w = wanted{inner, []word{{0, 8}, {8, 4}, {12, 4}, {offIPDest, 4}, {offUDPDest, 2}}, offStamp}
	return s, w
}

// routed has VXLAN passed on to the next hop.
func routed(d *bed, n int) (s sent, w wanted) {
	inner := tenant(n, hostMAC, remoteMAC)
	s = sent{wrap(inner, d.load.mac, d.in.mac, localVTEP, peerVTEP), []int16{offUDPSource, tunnel + offUDPSource}, tunnel + offStamp}
	w = wanted{wrap(inner, d.out.mac, d.end.mac, localVTEP, peerVTEP), []word{{0, 8}, {8, 4}, {offTTL, 2}, {offIPDest, 4}, {offUDPDest, 2}, {offVXLAN, 8}, {tunnel, 8}}, s.stamp}
	w.frame[offTTL]--
	return s, w
}
