package bpf

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/loomfabric/loom/overlay"
)

// Flags of the expected metadata, short for the table.
const (
	fVLAN = overlay.FlagVLAN
	fV4   = overlay.FlagIPv4
	fV6   = overlay.FlagIPv6
	fPort = overlay.FlagPorts
	fFrag = overlay.FlagFragment
	fRoCE = overlay.FlagRoCE
)

// tenantFrames are what hosts send: an access port sees them as they are, an
// uplink inside VXLAN. The metadata is the same.
var tenantFrames = []struct {
	name   string
	frame  []byte
	flags  uint16
	vlan   uint16
	l3, l4 uint8
}{
	{"IPv4 TCP", eth(0x0800, ip4(6, 0, 0, tcp(1000, 80))), fV4 | fPort, 0, 14, 34},
	{"IPv4 UDP", eth(0x0800, ip4(17, 0, 0, udp(1000, 53, nil))), fV4 | fPort, 0, 14, 34},
	{"IPv4 SCTP", eth(0x0800, ip4(132, 0, 0, tcp(1000, 53))), fV4 | fPort, 0, 14, 34},
	{"IPv4 UDP, ports 0", eth(0x0800, ip4(17, 0, 0, udp(0, 0, nil))), fV4 | fPort, 0, 14, 34},
	{"IPv4 ICMP", eth(0x0800, ip4(1, 0, 0, make([]byte, 8))), fV4, 0, 14, 0},
	{"IPv4 DF", eth(0x0800, ip4(6, 0, 0x4000, tcp(1000, 80))), fV4 | fPort, 0, 14, 34},
	{"IPv4 one option word", eth(0x0800, ip4(6, 1, 0, tcp(1000, 80))), fV4 | fPort, 0, 14, 38},
	{"IPv4 all options", eth(0x0800, ip4(17, 10, 0, udp(7, 4791, bth(9)))), fV4 | fPort | fRoCE, 0, 14, 74},
	{"IPv4 first fragment", eth(0x0800, ip4(17, 0, 0x2000, udp(1000, 4791, bth(9)))), fV4 | fFrag, 0, 14, 0},
	{"IPv4 last fragment", eth(0x0800, ip4(17, 0, 0x00b9, udp(1000, 4791, bth(9)))), fV4 | fFrag, 0, 14, 0},
	{"IPv4 total length ends before ports", with(eth(0x0800, ip4(6, 0, 0, tcp(1, 2))), 16, 0, 23), fV4, 0, 14, 0},
	{"IPv4 total length ends behind ports", with(eth(0x0800, ip4(6, 0, 0, tcp(1, 2))), 16, 0, 24), fV4 | fPort, 0, 14, 34},
	{"IPv4 total length of less than a header", with(eth(0x0800, ip4(6, 0, 0, tcp(1, 2))), 16, 0, 3), fV4, 0, 14, 0},
	{"IPv4 total length beyond the frame", with(eth(0x0800, ip4(6, 0, 0, tcp(1, 2))), 16, 0xff, 0xff), fV4 | fPort, 0, 14, 34},
	{"IPv4 cut behind its header", eth(0x0800, ip4(6, 0, 0, tcp(1, 2))[:20]), fV4, 0, 14, 0},
	{"IPv4 cut within its header", eth(0x0800, ip4(6, 0, 0, tcp(1, 2))[:19]), 0, 0, 0, 0},
	{"IPv4 cut within its options", eth(0x0800, ip4(6, 3, 0, tcp(1, 2))[:31]), 0, 0, 0, 0},
	{"IPv4 header length 4", with(eth(0x0800, ip4(6, 0, 0, tcp(1, 2))), 14, 0x44), 0, 0, 0, 0},
	{"IPv4 EtherType, version 6", with(eth(0x0800, ip4(6, 0, 0, tcp(1, 2))), 14, 0x65), 0, 0, 0, 0},
	{"IPv4 padded to 60 bytes", join(eth(0x0800, ip4(1, 0, 0, nil)), make([]byte, 26)), fV4, 0, 14, 0},

	{"IPv6 TCP", eth(0x86dd, ip6(6, tcp(1000, 80))), fV6 | fPort, 0, 14, 54},
	{"IPv6 UDP", eth(0x86dd, ip6(17, udp(1000, 53, nil))), fV6 | fPort, 0, 14, 54},
	{"IPv6 ICMPv6", eth(0x86dd, ip6(58, make([]byte, 8))), fV6, 0, 14, 0},
	{"IPv6 hop-by-hop header", eth(0x86dd, ip6(0, join([]byte{6, 0, 1, 4, 0, 0, 0, 0}, tcp(1, 2)))), fV6, 0, 14, 0},
	{"IPv6 fragment", eth(0x86dd, ip6(44, join([]byte{17, 0, 0, 1, 0, 0, 0, 7}, udp(1, 2, nil)))), fV6 | fFrag, 0, 14, 0},
	{"IPv6 payload length 0", with(eth(0x86dd, ip6(6, tcp(1, 2))), 18, 0, 0), fV6, 0, 14, 0},
	{"IPv6 payload length 3", with(eth(0x86dd, ip6(6, tcp(1, 2))), 18, 0, 3), fV6, 0, 14, 0},
	{"IPv6 cut within its header", eth(0x86dd, ip6(6, tcp(1, 2))[:39]), 0, 0, 0, 0},
	{"IPv6 EtherType, version 4", with(eth(0x86dd, ip6(6, tcp(1, 2))), 14, 0x45), 0, 0, 0, 0},

	{"RoCEv2 over IPv4", eth(0x0800, ip4(17, 0, 0, udp(1000, 4791, bth(0xabcdef)))), fV4 | fPort | fRoCE, 0, 14, 34},
	{"RoCEv2 over IPv6", eth(0x86dd, ip6(17, udp(1000, 4791, bth(0xabcdef)))), fV6 | fPort | fRoCE, 0, 14, 54},
	{"RoCEv2 over VLAN", eth(0x8100, tag(5, 0x0800), ip4(17, 0, 0, udp(1000, 4791, bth(1)))), fVLAN | fV4 | fPort | fRoCE, 5, 18, 38},
	{"RoCEv2 port on TCP", eth(0x0800, ip4(6, 0, 0, tcp(1000, 4791))), fV4 | fPort, 0, 14, 34},
	{"RoCEv2 as source port", eth(0x0800, ip4(17, 0, 0, udp(4791, 1000, bth(1)))), fV4 | fPort, 0, 14, 34},
	{"RoCEv2 cut within its BTH", eth(0x0800, ip4(17, 0, 0, udp(1000, 4791, bth(1)[:11]))), fV4 | fPort, 0, 14, 34},
	{"RoCEv2, BTH only in the padding", join(eth(0x0800, ip4(17, 0, 0, udp(1000, 4791, nil))), bth(1)), fV4 | fPort, 0, 14, 34},

	{"VLAN IPv4", eth(0x8100, tag(0x6064, 0x0800), ip4(6, 0, 0, tcp(1, 2))), fVLAN | fV4 | fPort, 0x6064, 18, 38},
	{"VLAN IPv6", eth(0x8100, tag(100, 0x86dd), ip6(6, tcp(1, 2))), fVLAN | fV6 | fPort, 100, 18, 58},
	{"VLAN 0", eth(0x8100, tag(0, 0x0800), ip4(6, 0, 0, tcp(1, 2))), fVLAN | fV4 | fPort, 0, 18, 38},
	{"VLAN ARP", eth(0x8100, tag(100, 0x0806), make([]byte, 28)), fVLAN, 100, 0, 0},
	{"802.1ad in front of 802.1Q", eth(0x88a8, tag(7, 0x8100), tag(8, 0x0800), ip4(6, 0, 0, tcp(1, 2))), fVLAN | fV4 | fPort, 7, 22, 42},
	{"802.1Q twice, IPv6", eth(0x8100, tag(7, 0x8100), tag(8, 0x86dd), ip6(17, udp(1, 2, nil))), fVLAN | fV6 | fPort, 7, 22, 62},
	{"three tags", eth(0x8100, tag(7, 0x8100), tag(8, 0x8100), tag(9, 0x0800), ip4(6, 0, 0, tcp(1, 2))), fVLAN, 7, 0, 0},
	{"VLAN cut within its tag", eth(0x8100, []byte{0, 7, 8}), 0, 0, 0, 0},
	{"VLAN cut within its second tag", eth(0x8100, tag(7, 0x88a8), []byte{0, 8}), fVLAN, 7, 0, 0},

	{"ARP", eth(0x0806, make([]byte, 28)), 0, 0, 0, 0},
	{"802.3 length", eth(46, make([]byte, 46)), 0, 0, 0, 0},
	{"nothing but Ethernet", eth(0x1234), 0, 0, 0, 0},
}

// fabricShim are bytes 1 to 3 of a VXLAN header that a shim follows, and the
// shim.
var (
	fabricShim = [3]byte{0x12, 0x34, 5}
	shim       = []byte{1, 2, 3, 4}
)

func TestTenantFrames(t *testing.T) {
	access, uplink, uplink6 := newRunner(t, config(Access)), newRunner(t, config(Uplink)), newRunner(t, config6())
	for _, c := range tenantFrames {
		t.Run(c.name, func(t *testing.T) {
			var reference overlay.Meta
			overlay.Dissect(c.frame, seed, &reference)
			want := overlay.Meta{
				Magic: overlay.MetaMagic, Hash: reference.Hash,
				VLAN: c.vlan, Flags: c.flags, L3: c.l3, L4: c.l4,
			}
			for _, w := range []struct {
				how   string
				r     *runner
				frame []byte
				inner uint8
			}{
				{"bare", access, c.frame, 0},
				{"VXLAN", uplink, encap(c.frame), 50},
				{"VXLAN, Capable", uplink, outer(ownVTEP, 0, [3]byte{0, 0, 1}, nil, c.frame), 50},
				{"VXLAN, Shim without Capable", uplink, outer(ownVTEP, 0, [3]byte{0, 0, 4}, nil, c.frame), 50},
				{"VXLAN, shim", uplink, outer(ownVTEP, 0, fabricShim, shim, c.frame), 54},
				{"VXLAN behind IPv4 options", uplink, outer(ownVTEP, 2, [3]byte{}, nil, c.frame), 58},
				{"VXLAN over IPv6", uplink6, outer6(ownVTEP6, [3]byte{}, nil, c.frame), 70},
				{"VXLAN over IPv6, shim", uplink6, outer6(ownVTEP6, fabricShim, shim, c.frame), 74},
				{"VXLAN, padded", uplink, join(encap(c.frame), make([]byte, 30)), 50},
			} {
				want.Inner = w.inner
				w.r.t = t
				if m := w.r.expect(w.frame, "redirect"); m != want {
					t.Errorf("%s:\n got %+v\nwant %+v", w.how, m, want)
				}
			}
		})
	}
}

// The hash tells flows apart by what it should, and by nothing else.
func TestHashCovers(t *testing.T) {
	r := newRunner(t, config(Access))
	roce := func(qp uint32) []byte { return eth(0x0800, ip4(17, 0, 0, udp(1000, 4791, bth(qp)))) }
	udpFrame := eth(0x0800, ip4(17, 0, 0, udp(1000, 53, make([]byte, 8))))
	v6 := eth(0x86dd, ip6(6, tcp(1000, 80)))
	arp := eth(0x0806, make([]byte, 28))
	first, last := ip4(17, 0, 0x2000, udp(1000, 53, nil)), ip4(17, 0, 0x00b9, udp(77, 99, nil))
	for _, c := range []struct {
		name string
		a, b []byte
		same bool
	}{
		{"destination QP", roce(1), roce(2), false},
		{"high byte of the QP", roce(1), roce(1 | 1<<16), false},
		{"BTH flags", roce(1), with(roce(1), 14+20+8+1, 0x40), true},
		{"source address", udpFrame, with(udpFrame, 14+12, 9), false},
		{"destination address", udpFrame, with(udpFrame, 14+16, 9), false},
		{"source port", udpFrame, with(udpFrame, 14+20, 9), false},
		{"destination port", udpFrame, with(udpFrame, 14+22, 9), false},
		{"protocol", udpFrame, with(udpFrame, 14+9, 6), false},
		{"TTL, DSCP, identification", udpFrame, with(with(udpFrame, 15, 0xb8), 18, 1, 2, 0, 0, 9), true},
		{"payload", udpFrame, with(udpFrame, 14+28, 9), true},
		{"MAC addresses of IP", udpFrame, with(udpFrame, 0, 2, 9, 9, 9, 9, 9, 2, 8), true},
		{"VLAN of IP", udpFrame, join(udpFrame[:12], be(0x8100), tag(9, 0x0800), udpFrame[14:]), true},
		{"fragments of one datagram", eth(0x0800, first), eth(0x0800, last), true},
		{"first byte of the IPv6 source", v6, with(v6, 14+8, 9), false},
		{"last byte of the IPv6 source", v6, with(v6, 14+23, 9), false},
		{"first byte of the IPv6 destination", v6, with(v6, 14+24, 9), false},
		{"last byte of the IPv6 destination", v6, with(v6, 14+39, 9), false},
		{"IPv6 flow label", v6, with(v6, 15, 1, 2, 3), true},
		{"non-IP destination MAC", arp, with(arp, 5, 9), false},
		{"non-IP source MAC", arp, with(arp, 11, 9), false},
		{"EtherType", arp, with(arp, 12, 9, 9), false},
		{"non-IP payload", arp, with(arp, 14, 9, 9), true},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, b := r.expect(c.a, "redirect"), r.expect(c.b, "redirect")
			if (a.Hash == b.Hash) != c.same {
				t.Errorf("hashes %#x and %#x: same %v, want %v", a.Hash, b.Hash, a.Hash == b.Hash, c.same)
			}
		})
	}

	cfg := config(Access)
	cfg.Seed++
	if other := newRunner(t, cfg); other.expect(arp, "redirect").Hash == r.expect(arp, "redirect").Hash {
		t.Error("the seed makes no difference")
	}
}

func TestLinkLocal(t *testing.T) {
	r := newRunner(t, config(Access))
	lldp := eth(0x88cc, make([]byte, 46))
	for _, c := range []struct {
		dst  [6]byte
		want string
	}{
		{[6]byte{1, 0x80, 0xc2, 0, 0, 0}, "pass_link_local"},    // STP
		{[6]byte{1, 0x80, 0xc2, 0, 0, 2}, "pass_link_local"},    // LACP
		{[6]byte{1, 0x80, 0xc2, 0, 0, 0x0e}, "pass_link_local"}, // LLDP
		{[6]byte{1, 0x80, 0xc2, 0, 0, 0x0f}, "pass_link_local"},
		{[6]byte{1, 0x80, 0xc2, 0, 0, 0x10}, "redirect"},
		{[6]byte{1, 0x80, 0xc2, 0, 1, 0}, "redirect"},
		{[6]byte{0, 0x80, 0xc2, 0, 0, 0}, "redirect"},
		{[6]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, "redirect"},
	} {
		r.expect(with(lldp, 0, c.dst[:]...), c.want)
		r.expect(with(lldp, 0, c.dst[:]...)[:14], c.want)
	}
}

// TestLinkLocalProtocols: only what the kernel or a daemon of the link speaks passes.
// IP to a link-local address would reach the node's own stack.
func TestLinkLocalProtocols(t *testing.T) {
	r := newRunner(t, config(Access))
	dst := []byte{1, 0x80, 0xc2, 0, 0, 0x0e}
	for _, c := range []struct {
		frame []byte
		want  string
	}{
		{eth(0x0026, []byte{0x42, 0x42, 3}), "pass_link_local"}, // LLC: STP
		{eth(0x05ff, make([]byte, 46)), "pass_link_local"},
		{eth(0x8808, make([]byte, 46)), "pass_link_local"},
		{eth(0x8809, make([]byte, 46)), "pass_link_local"},
		{eth(0x888e, make([]byte, 46)), "pass_link_local"},
		{eth(0x88cc, make([]byte, 46)), "pass_link_local"},
		{eth(0x88f7, make([]byte, 46)), "pass_link_local"},
		{eth(0x0600, make([]byte, 46)), "redirect"},
		{eth(0x0800, ip4(17, 0, 0, udp(1, 3784, nil))), "redirect"},           // BFD
		{eth(0x86dd, ip6(58, []byte{134, 0, 0, 0, 64, 0, 7, 8})), "redirect"}, // router advertisement
		{eth(0x0806, make([]byte, 28)), "redirect"},
		{eth(0x8100, tag(7, 0x0800), ip4(17, 0, 0, udp(1, 3784, nil))), "redirect"},
	} {
		r.expect(with(c.frame, 0, dst...), c.want)
	}
}

// TestLinkLocalLimit: a host cannot flood the kernel with LLDP.
func TestLinkLocalLimit(t *testing.T) {
	r := newRunner(t, config(Access))
	lldp := with(eth(0x88cc, make([]byte, 46)), 0, 1, 0x80, 0xc2, 0, 0, 0x0e)
	const each, limit = 50_000, 1000
	begin := time.Now()
	if _, _, err := r.prog.Benchmark(lldp, each, func() {}); err != nil {
		t.Fatal(err)
	}
	windows := int(time.Since(begin)>>30) + 2 // this test run was in so many, at most
	n := r.read()
	passed := int(n["pass_link_local"])
	if passed < limit || passed > windows*limit*runtime.NumCPU() || passed+int(n["redirect"]+n["no_meta"]) != each {
		t.Errorf("of %d frames in %v %d passed, %v", each, time.Since(begin), passed, n)
	}
}

// notVXLAN is traffic of an underlay that must stay with the kernel whatever
// the port.
var notVXLAN = []struct {
	name  string
	frame []byte
}{
	{"BGP", eth(0x0800, toVTEP(ip4(6, 0, 0x4000, tcp(40000, 179))))},
	{"VXLAN port on TCP", eth(0x0800, toVTEP(ip4(6, 0, 0x4000, tcp(40000, vxlanPort))))},
	{"BFD", eth(0x0800, toVTEP(ip4(17, 0, 0, udp(49152, 3784, make([]byte, 24)))))},
	{"VXLAN port as source", eth(0x0800, toVTEP(ip4(17, 0, 0, udp(vxlanPort, 50000, make([]byte, 24)))))},
	{"ICMP", eth(0x0800, toVTEP(ip4(1, 0, 0, make([]byte, 64))))},
	{"ARP", eth(0x0806, make([]byte, 46))},
	{"LLDP", with(eth(0x88cc, make([]byte, 46)), 0, 1, 0x80, 0xc2, 0, 0, 0x0e)},
	{"IPv6", eth(0x86dd, ip6(17, udp(1, vxlanPort, make([]byte, 30))))},
	{"first fragment", with(vxlanFrame, 20, 0x20)},
	{"last fragment", with(vxlanFrame, 20, 0x00, 0xb9)},
	{"tagged", join(vxlanFrame[:12], be(0x8100), tag(5, 0x0800), vxlanFrame[14:])},
	{"EtherType IPv6", with(vxlanFrame, 12, 0x86, 0xdd)},
	{"IP version 6", with(vxlanFrame, 14, 0x65)},
	{"header length 4", with(vxlanFrame, 14, 0x44)},
	{"header length beyond the frame", with(vxlanFrame, 14, 0x4f)[:60]},
	{"other UDP port", with(vxlanFrame, 36, 0x12, 0xb6)},
	{"cut within the UDP header", vxlanFrame[:41]},
	{"cut within the IP header", vxlanFrame[:33]},
}

var vxlanFrame = encap(eth(0x0800, ip4(6, 0, 0, tcp(1000, 80))))

// toVTEP changes the destination of an IPv4 datagram to our own VTEP.
func toVTEP(ip []byte) []byte {
	a := ownVTEP.As4()
	return with(ip, 16, a[:]...)
}

// notVXLAN6 is the same over IPv6.
var notVXLAN6 = []struct {
	name  string
	frame []byte
}{
	{"BGP", eth(0x86dd, toVTEP6(ownVTEP6, ip6(6, tcp(40000, 179))))},
	{"VXLAN port on TCP", eth(0x86dd, toVTEP6(ownVTEP6, ip6(6, tcp(40000, vxlanPort))))},
	{"BFD", eth(0x86dd, toVTEP6(ownVTEP6, ip6(17, udp(49152, 3784, make([]byte, 24)))))},
	{"VXLAN port as source", eth(0x86dd, toVTEP6(ownVTEP6, ip6(17, udp(vxlanPort, 50000, make([]byte, 24)))))},
	{"neighbour solicitation", eth(0x86dd, toVTEP6(ownVTEP6, ip6(58, make([]byte, 64))))},
	{"MLD", eth(0x86dd, toVTEP6(ownVTEP6, ip6(0, join([]byte{58, 0, 5, 2, 0, 0, 1, 0}, make([]byte, 24)))))},
	{"last fragment", extended(44, 8)},
	{"authentication header", extended(51, 0)},
	{"options of another port", with(extended(60, 0), 64, 0x12, 0xb6)},
	{"options, cut", extended(60, 3)[:80]},
	{"IP version 4", with(vxlanFrame6, 14, 0x45)},
	{"EtherType IPv4", with(vxlanFrame6, 12, 0x08, 0)},
	{"tagged", join(vxlanFrame6[:12], be(0x8100), tag(5, 0x86dd), vxlanFrame6[14:])},
	{"other UDP port", with(vxlanFrame6, 56, 0x12, 0xb6)},
	{"cut within the UDP header", vxlanFrame6[:61]},
	{"cut within the IP header", vxlanFrame6[:53]},
}

var vxlanFrame6 = outer6(ownVTEP6, [3]byte{}, nil, eth(0x0800, ip4(6, 0, 0, tcp(1000, 80))))

func TestUnderlayPasses(t *testing.T) {
	for i, cfg := range []Config{config(Uplink), config6(), config(Spine)} {
		kind, r := cfg.Kind, newRunner(t, cfg)
		for _, c := range append(slices.Clone(notVXLAN), notVXLAN6...) {
			t.Run(fmt.Sprint(i, kind, "/", c.name), func(t *testing.T) {
				r.t = t
				r.expect(c.frame, "pass_not_ours")
			})
		}
	}
}

// Messages of the node at the other end of a link are ours on the underlay, whichever
// address they go to; on an access port they are a host's frames.
func TestNeighbourMessages(t *testing.T) {
	fields := &overlay.Fabric{Capable: true, Scheme: 1, Opcode: overlay.OpExplore, Shim: true}
	b := make([]byte, overlay.LinkMessageLen)
	overlay.EncodeLink(b, overlay.MAC{2, 0, 0, 0, 0, 2}, overlay.MAC{2, 0, 0, 0, 0, 1}, fields)
	for _, kind := range []Kind{Access, Uplink, Spine} {
		r, want := newRunner(t, config(kind)), "neighbour"
		if kind == Access {
			want = "redirect"
		}
		r.expect(b, want)
		r.expect(b[:14], want)
		r.expect(with(b, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff), want)
		if kind != Access {
			r.expect(with(b, 12, 0x88, 0xb6), "pass_not_ours")
			r.expect(join(b[:12], be(0x8100), tag(5, 0x88b5), b[14:]), "pass_not_ours")
		}
	}
}

func TestUplinkVerdicts(t *testing.T) {
	inner := eth(0x0800, ip4(6, 0, 0, tcp(1000, 80)))
	for _, c := range []struct {
		name  string
		frame []byte
		want  string
	}{
		{"ours", vxlanFrame, "redirect"},
		{"other destination", outer(otherVTEP, 0, [3]byte{}, nil, inner), "pass_not_ours"},
		// Malformed but ours: user space drops it under a named reason.
		{"wrong checksum", with(vxlanFrame, 24, 0, 0), "redirect"},
		{"no VNI flag", with(vxlanFrame, 42, 0), "redirect"},
		{"reserved bits", with(vxlanFrame, 43, 0xff), "redirect"},
		{"UDP length beyond the frame", with(vxlanFrame, 38, 0xff, 0xff), "no_meta"},
		{"UDP length 0", with(vxlanFrame, 38, 0, 0), "no_meta"},
		{"UDP length of an inner frame of 13 bytes", with(vxlanFrame, 38, 0, 8+8+13), "no_meta"},
		{"UDP length of an inner frame of 14 bytes", with(vxlanFrame, 38, 0, 8+8+14), "redirect"},
		{"shim and an inner frame of 13 bytes", outer(ownVTEP, 0, fabricShim, shim, inner[:13]), "no_meta"},
		{"no inner frame", encap(nil), "no_meta"},
		{"cut behind the UDP header", vxlanFrame[:42], "no_meta"},
		{"cut within the inner frame", vxlanFrame[:len(vxlanFrame)-1], "no_meta"},
		{"IPv6, not ours", vxlanFrame6, "pass_not_ours"},
	} {
		t.Run(c.name, func(t *testing.T) { newRunner(t, config(Uplink)).expect(c.frame, c.want) })
	}
	for _, c := range []struct {
		name  string
		frame []byte
		want  string
	}{
		{"ours", vxlanFrame6, "redirect"},
		{"other destination", outer6(otherVTEP6, [3]byte{}, nil, inner), "pass_not_ours"},
		{"the other half of the destination", with(vxlanFrame6, 53, 9), "pass_not_ours"},
		{"IPv4", vxlanFrame, "pass_not_ours"},
		{"no VNI flag", with(vxlanFrame6, 62, 0), "redirect"},
		{"link-local source", with(vxlanFrame6, 22, 0xfe, 0x80), "redirect"},
		{"hop limit 0", with(vxlanFrame6, 21, 0), "redirect"},
		{"UDP length beyond the frame", with(vxlanFrame6, 58, 0xff, 0xff), "no_meta"},
		{"shim and an inner frame of 13 bytes", outer6(ownVTEP6, fabricShim, shim, inner[:13]), "no_meta"},
		{"cut behind the UDP header", vxlanFrame6[:62], "no_meta"},
		// Those that user space drops by name, although they are no VXLAN that a VTEP sends.
		{"hop-by-hop options", extended(0, 0), "no_meta"},
		{"long routing header", extended(43, 4), "no_meta"},
		{"destination options", extended(60, 1), "no_meta"},
		{"first fragment", extended(44, 1), "no_meta"},
		{"options to another VTEP", with(extended(60, 1), 53, 9), "pass_not_ours"},
	} {
		t.Run("IPv6 "+c.name, func(t *testing.T) { newRunner(t, config6()).expect(c.frame, c.want) })
	}
}

// A port other than 4789 is honoured, byte order included.
func TestOtherVXLANPort(t *testing.T) {
	frame := with(vxlanFrame, 36, 0x21, 0x18) // 8472, Linux's own default
	for _, kind := range []Kind{Uplink, Spine} {
		cfg := config(kind)
		cfg.VXLANPort = 8472
		r := newRunner(t, cfg)
		r.expect(frame, "redirect")
		r.expect(vxlanFrame, "pass_not_ours")
	}
}

func TestSpineVerdicts(t *testing.T) {
	r := newRunner(t, config(Spine))
	inner := eth(0x0800, ip4(6, 0, 0, tcp(1000, 80)))
	to := func(a string) []byte { return outer(netip.MustParseAddr(a), 0, [3]byte{}, nil, inner) }
	for _, c := range []struct {
		name  string
		frame []byte
		want  string
	}{
		{"within the /24", to("10.0.0.200"), "redirect"},
		{"the /32", to("10.0.8.8"), "redirect"},
		{"beside the /32", to("10.0.8.9"), "pass_not_ours"},
		{"outside", to("10.1.0.1"), "pass_not_ours"},
		{"options", outer(ownVTEP, 5, [3]byte{}, nil, inner), "redirect"},
		{"wrong checksum", with(vxlanFrame, 24, 0, 0), "redirect"},
		{"UDP length 0", with(vxlanFrame, 38, 0, 0), "redirect"},
		{"cut behind the UDP header", vxlanFrame[:42], "redirect"},
		{"within the /64", outer6(netip.MustParseAddr("2001:db8::7:1"), [3]byte{}, nil, inner), "redirect"},
		{"the /128", outer6(netip.MustParseAddr("2001:db8:8::8"), [3]byte{}, nil, inner), "redirect"},
		{"beside the /128", outer6(netip.MustParseAddr("2001:db8:8::9"), [3]byte{}, nil, inner), "pass_not_ours"},
		{"outside, IPv6", outer6(otherVTEP6, [3]byte{}, nil, inner), "pass_not_ours"},
		{"IPv6, cut behind the UDP header", vxlanFrame6[:62], "redirect"},
		{"IPv6, options", extended(60, 0), "pass_not_ours"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r.t = t
			m := r.expect(c.frame, c.want)
			if c.want != "redirect" {
				return
			}
			var want overlay.Meta
			overlay.Dissect(c.frame, seed, &want)
			if m != want {
				t.Errorf("metadata\n%+v, want that of the outer 5-tuple\n%+v", m, want)
			}
			flags := fV4 | fPort
			if c.frame[12] == 0x86 {
				flags = fV6 | fPort
			}
			if l4 := l4Of(c.frame); m.L3 != 14 || int(m.L4) != l4 || m.Flags != flags {
				t.Errorf("L3 %d, L4 %d, flags %#x; want 14, %d, %#x", m.L3, m.L4, m.Flags, l4, flags)
			}
		})
	}
}

// Whoever has the other end of a veth pair can send frames by XDP_REDIRECT, and the
// kernel keeps the metadata that they come with. User space believes what stands right
// in front of a frame, and nothing else may stand there.
func TestForeignMetadata(t *testing.T) {
	forged := overlay.Meta{Magic: overlay.MetaMagic, Hash: 1, VLAN: 7, Flags: fVLAN | fV4 | fPort, L3: 250, L4: 254, Inner: 50}
	before, err := binary.Append(nil, binary.NativeEndian, &forged)
	if err != nil {
		t.Fatal(err)
	}
	frame := tenantFrames[0].frame
	short := encap(frame)[:14+20+8] // of VXLAN no more than the port
	for _, c := range []struct {
		name    string
		kind    Kind
		frame   []byte
		verdict string
	}{
		{"access", Access, frame, "redirect"},
		{"access, link-local", Access, join([]byte{0x01, 0x80, 0xc2, 0, 0, 0x0e}, frame[6:12], be(0x88cc), frame[14:]), "pass_link_local"},
		{"uplink", Uplink, encap(frame), "redirect"},
		{"uplink, no metadata", Uplink, short, "no_meta"},
		{"uplink, kernel's", Uplink, notVXLAN[0].frame, "pass_not_ours"},
		{"spine", Spine, encap(frame), "redirect"},
	} {
		for _, n := range []int{4, 16, 32} { // the kernel takes multiples of four
			t.Run(fmt.Sprintf("%s, %d bytes", c.name, n), func(t *testing.T) {
				r := newRunner(t, config(c.kind))
				want := r.expect(c.frame, c.verdict)
				r.meta = append(make([]byte, max(n-len(before), 0)), before[max(len(before)-n, 0):]...)
				if got := r.expect(c.frame, c.verdict); got != want {
					t.Errorf("metadata %+v, without the forged one %+v", got, want)
				}
			})
		}
	}
}

// There is a name for each verdict of loom.h; their order is what all the other
// tests check.
func TestVerdictNames(t *testing.T) {
	spec, err := loadLoom()
	if err != nil {
		t.Fatal(err)
	}
	if n := int(spec.Maps["counters"].MaxEntries); n != len(verdictNames) {
		t.Errorf("%d counters in the object, %d names", n, len(verdictNames))
	}
}

func TestMetricsPageDescribesVerdicts(t *testing.T) {
	page, err := os.ReadFile("../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n## Verdicts\n")
	section, _, _ = strings.Cut(section, "\n## ")
	var got []string
	for _, m := range regexp.MustCompile("(?m)^\\| `(\\w+)` \\| .+ \\|$").FindAllStringSubmatch(section, -1) {
		got = append(got, m[1])
	}
	if !slices.Equal(got, verdictNames[:]) {
		t.Errorf("docs/metrics.md describes the verdicts %v, want %v", got, verdictNames)
	}
}
