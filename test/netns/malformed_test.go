package netns

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/loomfabric/loom/overlay"
)

// Offsets in a VXLAN packet without VLAN tag and IPv4 options.
const (
	atIP    = 14
	atUDP   = atIP + 20
	atVXLAN = atUDP + 8
	atInner = atVXLAN + 8
)

// outer is what a VXLAN packet looks like on the wire, by somebody else's
// encoder.
type outer struct {
	dst, src net.HardwareAddr
	from, to netip.Addr
	vni      uint32
	tos, ttl uint8
}

func (o outer) packet(t *testing.T, inner []byte) []byte {
	t.Helper()
	ip := &layers.IPv4{
		Version: 4, IHL: 5, TOS: o.tos, TTL: o.ttl, Flags: layers.IPv4DontFragment, Protocol: layers.IPProtocolUDP,
		SrcIP: o.from.AsSlice(), DstIP: o.to.AsSlice(),
	}
	udp := &layers.UDP{SrcPort: 50000, DstPort: 4789}
	if err := udp.SetNetworkLayerForChecksum(ip); err != nil {
		t.Fatal(err)
	}
	buf := gopacket.NewSerializeBuffer()
	err := gopacket.SerializeLayers(buf, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true},
		&layers.Ethernet{DstMAC: o.dst, SrcMAC: o.src, EthernetType: layers.EthernetTypeIPv4},
		ip, udp, &layers.VXLAN{ValidIDFlag: true, VNI: o.vni}, gopacket.Payload(inner))
	if err != nil {
		t.Fatal(err)
	}
	b := buf.Bytes()
	binary.BigEndian.PutUint16(b[atUDP+6:], 0) // no UDP checksum: what is changed below need not be summed again
	return b
}

// sum writes the outer IPv4 header's checksum anew.
func sum(b []byte) []byte {
	b[atIP+10], b[atIP+11] = 0, 0
	n := uint32(0)
	for i := atIP; i < atUDP; i += 2 {
		n += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for n>>16 != 0 {
		n = n>>16 + n&0xffff
	}
	binary.BigEndian.PutUint16(b[atIP+10:], ^uint16(n))
	return b
}

func put16(b []byte, at int, v uint16) []byte {
	binary.BigEndian.PutUint16(b[at:], v)
	return b
}

// fabricHeader writes a VXLAN header with Loom's fields, without the shim.
func fabricHeader(b []byte, vni overlay.VNI, f overlay.Fabric) []byte {
	f.Capable = true
	outer := make([]byte, overlay.Overhead)
	new(overlay.Tunnel).Encap(outer, 0, vni, 0, 0, &f)
	copy(b[atVXLAN:atInner], outer[overlay.Overhead-overlay.VXLANLen:])
	return b
}

// A crooked frame is a good one that was tampered with, and what becomes of it.
type crooked struct {
	name   string
	change func([]byte) []byte
	reason string // "": it stays with the kernel
}

// outerCases are refused by leaves and spines alike.
var outerCases = []crooked{
	{"EtherType of IPv6", func(b []byte) []byte { return put16(b, 12, 0x86dd) }, ""},
	{"IP version 5", func(b []byte) []byte { b[atIP] = 0x55; return sum(b) }, ""},
	{"IP header length 16", func(b []byte) []byte { b[atIP] = 0x44; return sum(b) }, ""},
	{"fragment", func(b []byte) []byte { return sum(put16(b, atIP+6, 0x2000)) }, ""},
	{"TCP", func(b []byte) []byte { b[atIP+9] = 6; return sum(b) }, ""},
	{"another UDP port", func(b []byte) []byte { return put16(b, atUDP+2, 4788) }, ""},
	{"cut within the outer headers", func(b []byte) []byte { return b[:atUDP+4] }, ""},
	{"IP checksum", func(b []byte) []byte { b[atIP+10] ^= 1; return b }, "bad_ip_checksum"},
	{"cut within the inner frame", func(b []byte) []byte { return b[:len(b)-20] }, "bad_ip_length"},
	{"IP length of nothing", func(b []byte) []byte { return sum(put16(b, atIP+2, 19)) }, "bad_ip_length"},
}

// leafCases get through a spine, and are refused by the leaf.
var leafCases = []crooked{
	{"UDP length beyond the datagram", func(b []byte) []byte { return put16(b, atUDP+4, 1000) }, "bad_udp_length"},
	{"UDP length of nothing", func(b []byte) []byte { return put16(b, atUDP+4, 7) }, "bad_udp_length"},
	{"no room for VXLAN", func(b []byte) []byte { return put16(b, atUDP+4, 8+4) }, "truncated"},
	{"no room for the inner Ethernet header", func(b []byte) []byte { return put16(b, atUDP+4, 8+8+13) }, "bad_inner"},
	{"VXLAN without VNI flag", func(b []byte) []byte { b[atVXLAN] = 0; return b }, "bad_vxlan_flags"},
	{"VXLAN with a flag too many", func(b []byte) []byte { b[atVXLAN] = 0x0c; return b }, "bad_vxlan_flags"},
	{"reserved bits before the VNI", func(b []byte) []byte { b[atVXLAN+1] = 0x80; return b }, "reserved_bits"},
	{"reserved bits behind the VNI", func(b []byte) []byte { b[atVXLAN+7] = 0x01; return b }, "reserved_bits"},
	{"unknown VNI", func(b []byte) []byte { b[atVXLAN+6] = 99; return b }, "vni_unknown"},
	{"VNI in the wrong place", func(b []byte) []byte { return put16(b, atVXLAN+6, 10) }, "reserved_bits"},
	{"spoofed VTEP", func(b []byte) []byte { b[atIP+15] = 77; return sum(b) }, "vtep_unknown"},
	{"looped VTEP", func(b []byte) []byte { copy(b[atIP+12:atIP+16], b[atIP+16:]); return sum(b) }, "vtep_looped"},
	{"unknown opcode", func(b []byte) []byte { return fabricHeader(b, 10, overlay.Fabric{Opcode: overlay.OpExtension}) }, "bad_opcode"},
	{"inner source is a group", func(b []byte) []byte { b[atInner+6] |= 1; return b }, "source_multicast"},
	{"inner source is zero", func(b []byte) []byte { clear(b[atInner+6 : atInner+12]); return b }, "source_multicast"},
	{"inner VLAN tag", func(b []byte) []byte { return put16(b, atInner+12, 0x8100) }, "inner_vlan"},
	{"inner frame beyond the hosts' MTU", func(b []byte) []byte {
		b = append(b, make([]byte, atInner+14+1501-len(b))...)
		return sum(put16(put16(b, atIP+2, uint16(len(b)-atIP)), atUDP+4, uint16(len(b)-atUDP)))
	}, "too_big"},
}

// TestMalformedToLeaf injects each frame on a link between a spine and a leaf, whoever
// delivers there.
func TestMalformedToLeaf(t *testing.T) {
	t.Run("workers", func(t *testing.T) { malformedToLeaf(t, up(t, "pair.yaml")) })
	t.Run("fast path", func(t *testing.T) {
		f := up(t, "pair.yaml")
		f.takesRedirects("h0")
		d := f.goFast("L0")
		transfer(t, f.ns["h3"], f.ns["h0"], f.addr("h0"), 1<<16)
		f.becomesFast(d, "h3", "h0")
		was, _ := d.forwarded()
		malformedToLeaf(t, f)
		if now, _ := d.forwarded(); now-was < uint64(len(outerCases)+len(leafCases))/2 {
			t.Errorf("XDP has delivered %d frames: the test shows little", now-was)
		}
	})
}

func malformedToLeaf(t *testing.T, f *fab) {
	t.Helper()
	k, d := f.link("L0-S0.0"), f.daemons["L0"]
	in, out := openWire(t, f.ns["S0"], k.SpinePort), openWire(t, f.ns["h0"], "eth0")
	o := outer{
		dst: f.ns["L0"].Link(t, k.LeafPort).Attrs().HardwareAddr, src: f.ns["S0"].Link(t, k.SpinePort).Attrs().HardwareAddr,
		from: f.topo.Leaves[1].VTEP, to: f.topo.Leaves[0].VTEP, vni: 10, ttl: 63,
	}
	h0, far := overlay.MAC(f.host("h0").MAC), overlay.MAC{2, 0, 0, 0, 0, 9}
	out.send(frame(broadcast, h0, 0, "I am here"))
	inject(t, in, out, d, k.LeafPort, append(outerCases, leafCases...), func(text string) ([]byte, []byte) {
		inner := frame(h0, far, 0, text)
		return o.packet(t, inner), inner
	})

	// Control frames of the fabric end here and are never shown to a host.
	inner := frame(h0, far, 0, "control")
	b := fabricHeader(o.packet(t, inner), 10, overlay.Fabric{Opcode: overlay.OpHello})
	ended := func() uint64 { return d.metric("loom_worker_consumed_frames_total") + d.drops("control") }
	const hellos = 40 // more than the other leaf sends meanwhile
	before := ended()
	for range hellos {
		in.send(b)
	}
	eventually(t, 3*time.Second, func() string {
		if n := ended() - before; n < hellos {
			return fmt.Sprintf("%d control frames ended at the leaf, want %d", n, hellos)
		}
		return ""
	})
	// To an address behind another leaf: never from fabric to fabric.
	split := frame(overlay.MAC(f.host("h3").MAC), far, 0, "split horizon")
	openWire(t, f.ns["h3"], "eth0").send(frame(broadcast, f.host("h3").MAC, 0, "I am there"))
	out.expect(frame(broadcast, f.host("h3").MAC, 0, "I am there"), "h0")
	counts(t, d, "split_horizon", 1, func() { in.send(o.packet(t, split)) })
	// Congestion on the way, marked on a packet that cannot tell (RFC 6040).
	ce := o
	ce.tos = 3
	counts(t, d, "bad_ecn", 1, func() { in.send(ce.packet(t, plainIP(t, h0, far))) })

	time.Sleep(quiet)
	if n := out.count(inner) + out.count(split); n > 0 {
		t.Errorf("h0 got %d frames that end at the leaf", n)
	}
	transfer(t, f.ns["h3"], f.ns["h0"], f.addr("h0"), 1<<20)
}

// plainIP is an IPv4 packet that is not ECN-capable.
func plainIP(t *testing.T, dst, src overlay.MAC) []byte {
	t.Helper()
	ip := &layers.IPv4{Version: 4, IHL: 5, TTL: 9, Protocol: 253, SrcIP: net.IP{192, 0, 2, 1}, DstIP: net.IP{192, 0, 2, 2}}
	buf := gopacket.NewSerializeBuffer()
	err := gopacket.SerializeLayers(buf, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true},
		&layers.Ethernet{DstMAC: dst[:], SrcMAC: src[:], EthernetType: layers.EthernetTypeIPv4}, ip, gopacket.Payload(make([]byte, 40)))
	if err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

// counts runs something and waits until a reason has been counted as often.
func counts(t *testing.T, d *daemon, reason string, want uint64, do func()) {
	t.Helper()
	before := d.drops(reason)
	do()
	eventually(t, 3*time.Second, func() string {
		if n := d.drops(reason) - before; n != want {
			return fmt.Sprintf("%d frames were dropped under %s, want %d", n, reason, want)
		}
		return ""
	})
}

// inject sends each case between two good frames; good makes a good packet, and
// the frame that comes out for it.
func inject(t *testing.T, in, out *wire, d *daemon, port string, cases []crooked, good func(text string) (packet, seen []byte)) {
	t.Helper()
	passed := func() uint64 {
		return d.metric("loom_classifier_frames_total", `port="`+port+`"`, `verdict="pass_not_ours"`)
	}
	total := func() uint64 { return d.metric("loom_drops_total", `port="`+port+`"`) }
	for _, c := range cases {
		before, seen, kernel := total(), d.drops(c.reason), passed()
		bad, never := good("bad: " + c.name)
		in.send(c.change(bad))
		sentinel, want := good("after: " + c.name)
		in.send(sentinel)
		out.expect(want, "the frame after "+c.name)
		dropped, named := total()-before, d.drops(c.reason)-seen
		if c.reason == "" {
			if dropped != 0 || passed() == kernel {
				t.Errorf("%s: the kernel got %d frames and %d were dropped, want it with the kernel", c.name, passed()-kernel, dropped)
			}
		} else if named != 1 || dropped != 1 {
			t.Errorf("%s: %d frames were dropped under %s and %d in all, want one", c.name, named, c.reason, dropped)
		}
		if out.count(never) > 0 {
			t.Errorf("%s: it was delivered", c.name)
		}
	}
}

// TestMalformedToSpine injects frames on a link between a leaf and a spine.
func TestMalformedToSpine(t *testing.T) {
	f := up(t, "pair.yaml")
	k, d := f.link("L1-S0.0"), f.daemons["S0"]
	in, out := openWire(t, f.ns["L1"], k.LeafPort), openWire(t, f.ns["h0"], "eth0")
	o := outer{
		dst: f.ns["S0"].Link(t, k.SpinePort).Attrs().HardwareAddr, src: f.ns["L1"].Link(t, k.LeafPort).Attrs().HardwareAddr,
		from: f.topo.Leaves[1].VTEP, to: f.topo.Leaves[0].VTEP, vni: 10, ttl: 64,
	}
	h0, far := overlay.MAC(f.host("h0").MAC), overlay.MAC{2, 0, 0, 0, 0, 9}
	out.send(frame(broadcast, h0, 0, "I am here"))
	ttl := func(n uint8) func([]byte) []byte {
		return func(b []byte) []byte { b[atIP+8] = n; return sum(b) }
	}
	cases := append(outerCases,
		crooked{"TTL 1", ttl(1), "ttl_expired"}, crooked{"TTL 0", ttl(0), "ttl_expired"},
		crooked{"not a leaf's VTEP", func(b []byte) []byte { b[atIP+18] = 9; return sum(b) }, ""},
		crooked{"beyond the MTU of the way out", func(b []byte) []byte {
			b = append(b, make([]byte, 1614-len(b))...)
			return sum(put16(put16(b, atIP+2, uint16(len(b)-atIP)), atUDP+4, uint16(len(b)-atUDP)))
		}, "too_big"})
	way := f.ns["S0"].Link(t, "dn-l0-0")
	setMTU(t, f.ns["S0"], way, 1580)
	eventually(t, 3*time.Second, func() string {
		if n := d.metric("loom_port_mtu_bytes", `port="dn-l0-0"`); n != 1580 {
			return fmt.Sprintf("S0 takes the MTU of dn-l0-0 for %d", n)
		}
		return ""
	})
	inject(t, in, out, d, k.SpinePort, cases, func(text string) ([]byte, []byte) {
		inner := frame(h0, far, 0, text)
		return o.packet(t, inner), inner
	})
	setMTU(t, f.ns["S0"], way, 1600)
	transfer(t, f.ns["h3"], f.ns["h0"], f.addr("h0"), 1<<20)
}

// TestMalformedFromHost: what a host may not send.
func TestMalformedFromHost(t *testing.T) {
	f := up(t, "pair.yaml")
	d, w := f.daemons["L0"], openWire(t, f.ns["h0"], "eth0")
	h0 := overlay.MAC(f.host("h0").MAC)
	for reason, b := range map[string][]byte{
		"source_multicast": frame(broadcast, overlay.MAC{1, 2, 3, 4, 5, 6}, 0, "from a group"),
		"same_port":        frame(h0, h0, 0, "to myself"),
		"vlan_unknown":     tagged(frame(broadcast, h0, 0, "tagged"), 5),
	} {
		counts(t, d, reason, 1, func() { w.send(b) })
	}
	// Link-local control frames are the kernel's.
	before := d.metric("loom_classifier_frames_total", `port="acc-h0"`, `verdict="pass_link_local"`)
	lldp := frame(overlay.MAC{0x01, 0x80, 0xc2, 0, 0, 0x0e}, h0, 0, "LLDP")
	lldp[12], lldp[13] = 0x88, 0xcc
	w.send(lldp)
	eventually(t, 3*time.Second, func() string {
		if n := d.metric("loom_classifier_frames_total", `port="acc-h0"`, `verdict="pass_link_local"`) - before; n != 1 {
			return fmt.Sprintf("the kernel got %d link-local frames, want 1", n)
		}
		return ""
	})
	transfer(t, f.ns["h0"], f.ns["h3"], f.addr("h3"), 256<<10)
}
