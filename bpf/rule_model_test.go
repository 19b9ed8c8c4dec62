package bpf

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/loomfabric/loom/overlay"
)

// ruleModel is the rule of decision 0025, written without regard to how kernel.h does it.
type ruleModel struct {
	port      uint16
	vlans     [VLANs]VLAN
	tables    RuleTables
	addresses map[overlay.FDBKey]overlay.Dest
	shown     map[overlay.FDBKey]bool // the kernel got a frame of it
	noSocket  bool
}

// modelKey is the key of 6 bytes of an address.
func modelKey(network uint16, mac []byte) overlay.FDBKey {
	return overlay.FDBKey(binary.BigEndian.Uint64(append(be(network), mac[:6]...)))
}

func (m *ruleModel) served(to overlay.Dest) bool {
	if to.Remote() {
		return m.tables.Ways[to.Peer()]
	}
	return m.tables.Ports[to.Port()]
}

// access returns what becomes of a frame from a host.
func (m *ruleModel) access(frame []byte) (verdict string) {
	if frame[0]&1 == 1 {
		if bytes.Equal(frame[:5], []byte{1, 0x80, 0xc2, 0, 0}) && frame[5] < 16 {
			return "pass_link_local"
		}
		return "pass_group"
	}
	vid, rest := uint16(0), frame[12:]
	if binary.BigEndian.Uint16(rest) == 0x8100 && len(rest) >= 6 {
		vid = binary.BigEndian.Uint16(rest[2:]) % 4096
		rest = rest[4:]
	}
	if t := binary.BigEndian.Uint16(rest); t == 0x8100 || t == 0x88a8 {
		return "pass_network"
	}
	vlan := m.vlans[vid]
	if vlan.Network == 0 {
		return "pass_network"
	}
	here := overlay.DestLocal(m.port, vid)
	src := modelKey(vlan.Network-1, frame[6:])
	if m.addresses[src] != here {
		return "pass_source"
	}
	to, ok := m.addresses[modelKey(vlan.Network-1, frame)]
	switch {
	case !ok || to == here:
		return "pass_destination"
	case !m.served(to):
		return "pass_not_served"
	case !m.shown[src]:
		m.shown[src] = true
		return "pass_refresh"
	case m.noSocket:
		return "pass_no_socket"
	}
	return "redirect"
}

// uplink returns what becomes of a frame of the underlay, and the frame as the kernel gets
// it. Without metadata, "redirect" is counted as no_meta.
func (m *ruleModel) uplink(frame []byte) (verdict string, out []byte) {
	if binary.BigEndian.Uint16(frame[12:]) == overlay.EtherTypeLocal {
		if m.noSocket {
			return "pass_no_socket", frame
		}
		return "neighbour", frame
	}
	if !toOwnVTEP(frame) {
		return "pass_not_ours", frame
	}
	l4 := 14 + int(frame[14]&15)*4
	if len(frame) < l4+16 {
		return "pass_network", frame
	}
	vx := frame[l4+8 : l4+16]
	capable := vx[0]&15 == 8 && vx[0] != 0x88 && vx[3]&1 == 1
	if !capable && !bytes.Equal(vx[:4], []byte{8, 0, 0, 0}) || !capable && vx[7] != 0 {
		return "pass_network", frame
	}
	out = frame
	opcode := vx[2]&3<<1 | vx[3]>>7
	inner, _ := describes(frame)
	switch {
	case capable && opcode >= 2:
		if m.noSocket {
			return "drop_no_socket", frame
		}
		return "redirect", frame
	case capable && vx[3]&4 != 0:
		if !m.noSocket {
			return "redirect", frame
		}
		// describes wants an inner Ethernet header besides, which a shim need not have.
		end := l4 + int(binary.BigEndian.Uint16(frame[l4+4:]))
		if l4 != 34 || end < l4+20 || end > len(frame) {
			return "drop_no_socket", frame
		}
		return "pass_no_socket", withoutShim(frame)
	case capable:
		out = slices.Clone(frame)
		copy(out[l4+8:], []byte{8, 0, 0, 0})
		out[l4+15] = 0
	}
	src := netip.AddrFrom4([4]byte(frame[26:30]))
	vni := overlay.VNI(vx[4])<<16 | overlay.VNI(vx[5])<<8 | overlay.VNI(vx[6])
	network, known := m.tables.Networks[vni]
	switch {
	case !m.tables.Peers[src]:
		return "pass_peer", out
	case !known:
		return "pass_network", out
	case inner == nil:
		return "pass_destination", out
	}
	if t := binary.BigEndian.Uint16(inner[12:]); t == 0x8100 || t == 0x88a8 {
		return "pass_destination", out
	}
	if inner[0]&1 == 1 {
		return "pass_group", out
	}
	to, ok := m.addresses[modelKey(network, inner)]
	switch {
	case !ok || to.Remote():
		return "pass_destination", out
	case !m.served(to):
		return "pass_not_served", out
	case m.noSocket:
		return "pass_no_socket", out
	}
	return "redirect", frame
}

// toOwnVTEP reports whether a frame is VXLAN to the leaf, as the other programs have it.
func toOwnVTEP(f []byte) bool {
	if len(f) < 34 || binary.BigEndian.Uint16(f[12:]) != 0x0800 || f[14]>>4 != 4 || f[14]&15 < 5 || f[23] != 17 {
		return false
	}
	if l4 := 14 + int(f[14]&15)*4; len(f) < l4+8 || binary.BigEndian.Uint16(f[l4+2:]) != vxlanPort {
		return false
	}
	return binary.BigEndian.Uint16(f[20:])&0x3fff == 0 && netip.AddrFrom4([4]byte(f[30:34])) == ownVTEP
}

// withoutShim returns a frame of 20 bytes of IP header without its shim.
func withoutShim(frame []byte) []byte {
	out := join(frame[:50], frame[54:])
	binary.BigEndian.PutUint16(out[16:], binary.BigEndian.Uint16(out[16:])-4)
	binary.BigEndian.PutUint16(out[38:], binary.BigEndian.Uint16(out[38:])-4)
	copy(out[40:], []byte{0, 0, 8, 0, 0, 0})
	out[49] = 0
	checksum(out[14:34])
	return out
}

// udpChecksum returns the checksum that belongs into the UDP header of an IPv4 frame.
func udpChecksum(f []byte) uint16 {
	l4 := 14 + int(f[14]&15)*4
	length := int(binary.BigEndian.Uint16(f[l4+4:]))
	udp := slices.Clone(f[l4 : l4+length])
	udp[6], udp[7] = 0, 0
	b := join(f[26:34], []byte{0, 17}, udp[4:6], udp, make([]byte, length%2))
	var sum uint32
	for i := 0; i < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	if ^uint16(sum) == 0 {
		return 0xffff
	}
	return ^uint16(sum)
}
