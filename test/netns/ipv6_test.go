package netns

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/loomfabric/loom/internal/testenv"
	"github.com/loomfabric/loom/overlay"
)

// TestIPv6Underlay: a fabric whose VTEPs and links are of IPv6 does what one of IPv4 does:
// hosts reach each other with full-size frames, leaves prove themselves, both spines carry
// traffic, a leaf hands over, and the fabric survives a link.
func TestIPv6Underlay(t *testing.T) {
	f := up(t, "pair6.yaml")
	for _, size := range []int{56, 1472} {
		if out, ok := testenv.Ping(t, f.ns["h0"], f.addr("h3"), size, 3); !ok {
			t.Fatalf("%d bytes:\n%s", size, out)
		}
	}
	transfer(t, f.ns["h5"], f.ns["h2"], f.addr("h2"), 1<<20)
	if n := f.daemons["L0"].metric("loom_peer_capable"); n != 1 {
		t.Errorf("L0 sends the fabric's header to %d peers\n%s", n, f.daemons["L0"].tail())
	}
	// Each connection has ports of its own, and one in two takes the same uplink as the first.
	eventually(t, 20*time.Second, func() string {
		transfer(t, f.ns["h0"], f.ns["h3"], f.addr("h3"), 1<<20)
		for _, leaf := range []string{"L0", "L1"} {
			for _, port := range []string{"up-s0-0", "up-s1-0"} {
				if n := f.daemons[leaf].sent(port); n < 200 { // a megabyte has 700, HELLOs are ten a second
					return fmt.Sprintf("%s sent %d frames by %s", leaf, n, port)
				}
			}
		}
		return ""
	})

	handOverAddresses(t, f.daemons["L0"], f.ns["h0"], f.ns["h3"], f.addr("h3"))

	if err := f.lab.Fail("L0-S0.0"); err != nil {
		t.Fatal(err)
	}
	transfer(t, f.ns["h0"], f.ns["h3"], f.addr("h3"), 1<<20)
	transfer(t, f.ns["h3"], f.ns["h0"], f.addr("h0"), 1<<20)
	before := f.daemons["L0"].sent("up-s0-0")
	transfer(t, f.ns["h0"], f.ns["h3"], f.addr("h3"), 1<<20)
	if n := f.daemons["L0"].sent("up-s0-0") - before; n > 0 {
		t.Errorf("%d frames were sent by a link that is down", n)
	}
	if err := f.lab.Restore("L0-S0.0"); err != nil {
		t.Fatal(err)
	}
	eventually(t, 10*time.Second, func() string {
		before := f.daemons["L0"].sent("up-s0-0")
		for range 4 {
			transfer(t, f.ns["h0"], f.ns["h3"], f.addr("h3"), 256<<10)
		}
		if n := f.daemons["L0"].sent("up-s0-0") - before; n < 10 {
			return fmt.Sprintf("%d frames were sent by the link that is back\n%s", n, f.daemons["L0"].tail())
		}
		return ""
	})
}

// Offsets in a VXLAN packet over IPv6.
const (
	at6UDP   = atIP + 40
	at6VXLAN = at6UDP + 8
)

// packet6 is packet for VTEPs of IPv6.
func (o outer) packet6(t *testing.T, inner []byte) []byte {
	t.Helper()
	ip := &layers.IPv6{
		Version: 6, TrafficClass: o.tos, HopLimit: o.ttl, NextHeader: layers.IPProtocolUDP, SrcIP: o.from.AsSlice(), DstIP: o.to.AsSlice(),
	}
	udp := &layers.UDP{SrcPort: 50000, DstPort: 4789}
	if err := udp.SetNetworkLayerForChecksum(ip); err != nil {
		t.Fatal(err)
	}
	buf := gopacket.NewSerializeBuffer()
	err := gopacket.SerializeLayers(buf, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true},
		&layers.Ethernet{DstMAC: o.dst, SrcMAC: o.src, EthernetType: layers.EthernetTypeIPv6},
		ip, udp, &layers.VXLAN{ValidIDFlag: true, VNI: o.vni}, gopacket.Payload(inner))
	if err != nil {
		t.Fatal(err)
	}
	return buf.Bytes() // with a checksum, as Linux sends it by default
}

// extension6 puts an extension header of 8 bytes in front of UDP.
func extension6(kind byte) func([]byte) []byte {
	return func(b []byte) []byte {
		out := append(b[:at6UDP:at6UDP], 17, 0, 0, 0, 0, 0, 0, 0)
		out = append(out, b[at6UDP:]...)
		out[atIP+6] = kind
		binary.BigEndian.PutUint16(out[atIP+4:], uint16(len(out)-at6UDP))
		return out
	}
}

// outer6Cases are refused by leaves and spines alike.
var outer6Cases = []crooked{
	{"EtherType of IPv4", func(b []byte) []byte { return put16(b, 12, 0x0800) }, ""},
	{"IP version 5", func(b []byte) []byte { b[atIP] = 0x50; return b }, ""},
	{"TCP", func(b []byte) []byte { b[atIP+6] = 6; return b }, ""},
	{"another UDP port", func(b []byte) []byte { return put16(b, at6UDP+2, 4788) }, ""},
	{"cut within the outer headers", func(b []byte) []byte { return b[:at6UDP+4] }, ""},
	{"cut within the inner frame", func(b []byte) []byte { return b[:len(b)-20] }, "bad_ip_length"},
	{"link-local source", func(b []byte) []byte { return put16(b, atIP+8, 0xfe80) }, "bad_ip_address"},
	{"multicast source", func(b []byte) []byte { return put16(b, atIP+8, 0xff02) }, "bad_ip_address"},
	{"IPv4-mapped source", func(b []byte) []byte { clear(b[atIP+8 : atIP+18]); return put16(b, atIP+18, 0xffff) }, "bad_ip_address"},
}

// leaf6Cases get through a spine, and are refused by the leaf.
var leaf6Cases = []crooked{
	{"UDP length beyond the datagram", func(b []byte) []byte { return put16(b, at6UDP+4, 1000) }, "bad_udp_length"},
	{"no room for VXLAN", func(b []byte) []byte { return put16(b, at6UDP+4, 8+4) }, "truncated"},
	{"VXLAN without VNI flag", func(b []byte) []byte { b[at6VXLAN] = 0; return b }, "bad_vxlan_flags"},
	{"reserved bits before the VNI", func(b []byte) []byte { b[at6VXLAN+1] = 0x80; return b }, "reserved_bits"},
	{"unknown VNI", func(b []byte) []byte { b[at6VXLAN+6] = 99; return b }, "vni_unknown"},
	{"spoofed VTEP", func(b []byte) []byte { b[atIP+23] = 77; return b }, "vtep_unknown"},
	{"looped VTEP", func(b []byte) []byte { copy(b[atIP+8:atIP+24], b[atIP+24:]); return b }, "vtep_looped"},
	{"hop-by-hop options", extension6(0), "extension_header"},
	{"routing header", extension6(43), "extension_header"},
	{"destination options", extension6(60), "extension_header"},
	{"fragment", extension6(44), "ip_fragment"},
	{"inner VLAN tag", func(b []byte) []byte { return put16(b, at6VXLAN+8+12, 0x8100) }, "inner_vlan"},
}

// TestMalformedIPv6 injects each frame on a link between a spine and a leaf, and on one
// between a leaf and a spine.
func TestMalformedIPv6(t *testing.T) {
	f := up(t, "pair6.yaml")
	h0, far := overlay.MAC(f.host("h0").MAC), overlay.MAC{2, 0, 0, 0, 0, 9}
	out := openWire(t, f.ns["h0"], "eth0")
	out.send(frame(broadcast, h0, 0, "I am here"))
	spine := append([]crooked{
		{"hop limit 1", func(b []byte) []byte { b[atIP+7] = 1; return b }, "ttl_expired"},
		{"hop limit 0", func(b []byte) []byte { b[atIP+7] = 0; return b }, "ttl_expired"},
		{"not a leaf's VTEP", func(b []byte) []byte { b[atIP+39] = 9; return b }, ""},
	}, outer6Cases...)
	for _, c := range []struct {
		link, from, fromPort, to, toPort string
		cases                            []crooked
	}{
		{"L0-S0.0", "S0", "dn-l0-0", "L0", "up-s0-0", append(leaf6Cases, outer6Cases...)},
		{"L1-S0.0", "L1", "up-s0-0", "S0", "dn-l1-0", spine},
	} {
		o := outer{
			dst: f.ns[c.to].Link(t, c.toPort).Attrs().HardwareAddr, src: f.ns[c.from].Link(t, c.fromPort).Attrs().HardwareAddr,
			from: f.topo.Leaves[1].VTEP, to: f.topo.Leaves[0].VTEP, vni: 10, ttl: 64,
		}
		inject(t, openWire(t, f.ns[c.from], c.fromPort), out, f.daemons[c.to], c.toPort, c.cases, func(text string) ([]byte, []byte) {
			inner := frame(h0, far, 0, c.to+" "+text)
			return o.packet6(t, inner), inner
		})
	}
	transfer(t, f.ns["h3"], f.ns["h0"], f.addr("h0"), 1<<20)
}

// TestKernelVXLAN6: Loom's leaf and a VTEP of the kernel's understand each other over IPv6,
// in both directions, whether the kernel sends UDP checksums or not. Then leafd follows that
// kernel's bridge.
func TestKernelVXLAN6(t *testing.T) {
	s, own, far := newSite6(t)
	host1 := testenv.NewNamespace(t, "lnhost")
	s.access(s.far, host1, addr1)
	in(t, s.far,
		"ip link add br0 type bridge mcast_snooping 0", fmt.Sprintf("ip link add vx100 mtu 1500 type vxlan id 100 local %v dstport 4789 udp6zerocsumrx", far),
		"ip link set vx100 master br0", "ip link set acc0 master br0", "ip link set vx100 up", "ip link set br0 up",
		fmt.Sprintf("bridge fdb append 00:00:00:00:00:00 dev vx100 dst %v self permanent", own))
	s.runSpine()
	leaf := s.runLeaf("leaf0", s.leaf0, own, far)
	both := func() {
		t.Helper()
		if out, ok := testenv.Ping(t, s.host0, addr1, 1472, 3); !ok {
			t.Fatalf("full-size frames:\n%s\n%s", out, leaf.tail())
		}
		transfer(t, s.host0, host1, addr1, 1<<20)
		transfer(t, host1, s.host0, addr0, 1<<20)
	}
	// The links are new: for one or two seconds the kernels check their own addresses, and none
	// of them can ask for a neighbour. Loom's nodes hold frames for so long, and lose none.
	eventually(t, 10*time.Second, func() string {
		if out, ok := testenv.Ping(t, s.host0, addr1, 1472, 1); !ok {
			return "the first frame:\n" + out + leaf.tail()
		}
		return ""
	})
	both()
	in(t, s.far, "ip link set vx100 down", "ip link del vx100",
		fmt.Sprintf("ip link add vx100 mtu 1500 type vxlan id 100 local %v dstport 4789 nolearning udp6zerocsumrx udp6zerocsumtx", far),
		"ip link set vx100 master br0", "ip link set vx100 up",
		fmt.Sprintf("bridge fdb append 00:00:00:00:00:00 dev vx100 dst %v self permanent", own),
		fmt.Sprintf("bridge fdb add %v dev vx100 dst %v self extern_learn", s.host0.Link(t, "eth0").Attrs().HardwareAddr, own),
		fmt.Sprintf("bridge fdb add %v dev vx100 master extern_learn", s.host0.Link(t, "eth0").Attrs().HardwareAddr))
	both()
	if n := leaf.metric("loom_drops_total"); n > 0 {
		t.Errorf("%d frames were dropped: %v", n, leaf.stats().Drops)
	}

	follower := s.run("leafd", "leaf1", s.far, "overlay: kernel\nuplinks: auto\n")
	known(t, follower, 1)
	both()
	for _, port := range []string{"up0", "acc0"} {
		if n := follower.sent(port); n < 1<<20/1448 {
			t.Errorf("the follower sent %d frames by %s\n%s", n, port, follower.tail())
		}
	}
	follower.stop()
	eventually(t, 5*time.Second, func() string { // the other leafd has to see that it is gone
		if out, ok := testenv.Ping(t, s.host0, addr1, 1472, 1); !ok {
			return "with the kernel alone again:\n" + out
		}
		return ""
	})
}

// newSite6 is newSite over IPv6. It returns the VTEPs of leaf0 and of the far end.
func newSite6(t *testing.T) (s *site, own, far netip.Addr) {
	t.Helper()
	testenv.NeedRoot(t)
	s = &site{
		t: t, queues: 1, dir: t.TempDir(), ring: 1024,
		host0: testenv.NewNamespace(t, "lnhost"), leaf0: testenv.NewNamespace(t, "lnleaf"),
		spine: testenv.NewNamespace(t, "lnspine"), far: testenv.NewNamespace(t, "lnfar"),
	}
	own, far = netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("2001:db8::2")
	s.access(s.leaf0, s.host0, addr0)
	testenv.VethPair(t, s.leaf0, "up0", s.spine, "dn0", testenv.VethOptions{MTU: 1600})
	testenv.VethPair(t, s.far, "up0", s.spine, "dn1", testenv.VethOptions{MTU: 1600})
	s.spine.Sysctl(t, "net/ipv6/conf/all/forwarding", "1")
	for _, e := range []struct {
		ns         *testenv.Namespace
		port, addr string
	}{
		{s.leaf0, "lo", own.String() + "/128"}, {s.far, "lo", far.String() + "/128"},
		{s.leaf0, "up0", "2001:db8:1::/127"}, {s.spine, "dn0", "2001:db8:1::1/127"},
		{s.far, "up0", "2001:db8:2::/127"}, {s.spine, "dn1", "2001:db8:2::1/127"},
	} {
		e.ns.Sysctl(t, "net/ipv6/conf/"+e.port+"/disable_ipv6", "0")
		in(t, e.ns, "ip addr add "+e.addr+" dev "+e.port+" nodad")
	}
	in(t, s.leaf0, fmt.Sprintf("ip route add %v via 2001:db8:1::1", far))
	in(t, s.far, fmt.Sprintf("ip route add %v via 2001:db8:2::1", own))
	in(t, s.spine, fmt.Sprintf("ip route add %v via 2001:db8:1::", own), fmt.Sprintf("ip route add %v via 2001:db8:2::", far))
	return s, own, far
}
