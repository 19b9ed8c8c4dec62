package overlay

import (
	"bytes"
	"encoding/hex"
	"flag"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/loomfabric/loom/internal/drop"
)

var update = flag.Bool("update", false, "rewrite the golden packets in testdata")

// golden packets are the wire format's reference: docs/wire-format.md shows
// them, and text2pcap makes a capture of them.
var golden = []struct {
	name, what string
	inner      []byte
	vni        VNI
	tos        uint8 // outer
	marked     bool  // a spine sets CE in the outer header
	six        bool  // the VTEPs are of IPv6
	fabric     Fabric
}{
	{
		name: "plain-ipv4", what: "RFC 7348, nothing of the fabric's: IPv4 TCP",
		inner: tcp4Frame(1, 2, 40000, 80, 10), vni: 100,
	},
	{
		name: "plain-ipv6", what: "RFC 7348: IPv6 UDP, the largest VNI",
		inner: udp6Frame(1, 2, 40000, 9999, 10), vni: MaxVNI,
	},
	{
		name: "plain-vlan-arp", what: "RFC 7348: a tagged frame that is not IP, through a transparent port",
		inner: tagged(arpFrame(), EtherTypeVLAN, 5<<13|100), vni: 0x123456,
	},
	{
		name: "plain-ecn", what: "RFC 7348: an ECT(0) segment that a spine marked (RFC 6040)",
		inner: tos4Frame(1, 2, 40000, 80, 10, uint8(ECT0)), vni: 100, tos: uint8(ECT0), marked: true,
	},
	{
		name: "plain-outer6", what: "RFC 7348 between VTEPs of IPv6: an ECT(0) segment that a spine marked",
		inner: tos4Frame(1, 2, 40000, 80, 10, uint8(ECT0)), vni: 100, tos: uint8(ECT0), marked: true, six: true,
	},
	{
		name: "fabric-outer6", what: "ConWeave between VTEPs of IPv6: a RoCEv2 packet that asks for RTT_REPLY, epoch 2",
		inner: roceFrame(1, 2, 0xabcdef), vni: 100, six: true,
		fabric: Fabric{Capable: true, Scheme: 1, Opcode: OpRTTRequest, Epoch: 2, Path: MakePathID(3, 12), Shim: true, TxTstamp: 0x1234},
	},
	{
		name: "control-outer6", what: "HELLO between VTEPs of IPv6: DSCP CS6 in the traffic class",
		inner: helloFrame(&goldenHello, 0), tos: DSCPControl, six: true,
		fabric: Fabric{Capable: true, Opcode: OpHello, LBTag: 3, Path: MakePathID(3, 5), Tail: true, Shim: true, TxTstamp: 0x2222, Arg: 0x1111},
	},
	{
		name: "fabric-capable", what: "Capable and nothing else",
		inner: tcp4Frame(1, 2, 40000, 80, 10), vni: 100,
		fabric: Fabric{Capable: true},
	},
	{
		name: "fabric-feedback", what: "CONGA: tag 9 on uplink 9, CE 5, feedback that tag 6 has metric 3",
		inner: tcp4Frame(1, 2, 40000, 80, 10), vni: 100,
		fabric: Fabric{Capable: true, LBTag: 9, CE: 5, FBValid: true, FBTag: 6, FBMetric: 3, Path: MakePathID(9, 0)},
	},
	{
		name: "fabric-rtt-request", what: "ConWeave: a RoCEv2 packet that asks for RTT_REPLY, epoch 2",
		inner: roceFrame(1, 2, 0xabcdef), vni: 100,
		fabric: Fabric{Capable: true, Scheme: 1, Opcode: OpRTTRequest, Epoch: 2, Path: MakePathID(3, 12), Shim: true, TxTstamp: 0x1234},
	},
	{
		name: "fabric-rerouted", what: "ConWeave: on the new path, with the TAIL packet's time",
		inner: roceFrame(1, 2, 0xabcdef), vni: 100,
		fabric: Fabric{Capable: true, Scheme: 1, Epoch: 1, Rerouted: true, Path: MakePathID(1, 2), Shim: true, TxTstamp: 0xfffe, Arg: 0x8001},
	},
	{
		name: "fabric-tail", what: "ConWeave: the last packet on the old path",
		inner: roceFrame(1, 2, 0xabcdef), vni: 100,
		fabric: Fabric{Capable: true, Scheme: 1, Epoch: 1, Tail: true, Path: MakePathID(0, 2), Shim: true, TxTstamp: 0x8001, Arg: 0x8001},
	},
	{
		name: "fabric-sequence", what: "a scheme, here number 9, that counts a flow's packets in the shim: number 513",
		inner: tcp4Frame(1, 2, 40000, 80, 10), vni: 100,
		fabric: Fabric{Capable: true, Scheme: 9, Path: MakePathID(4, 0), Shim: true, TxTstamp: 0x1234, Arg: 513},
	},
	{
		name: "fabric-largest", what: "every field at its largest",
		inner: tcp4Frame(1, 2, 40000, 80, 10), vni: MaxVNI,
		fabric: Fabric{
			Capable: true, Scheme: NumSchemes - 1, LBTag: 15, CE: 7, FBValid: true, FBTag: 15, FBMetric: 7, Opcode: OpExtension, Epoch: 3,
			Rerouted: true, Tail: true, Shim: true, Path: 0xff, TxTstamp: 0xffff, Arg: 0xffff,
		},
	},
	{
		name: "control-hello", what: "HELLO: of no scheme, its departure and the echo of the peer's last one in the shim, and its body",
		inner: helloFrame(&goldenHello, 0), tos: DSCPControl,
		fabric: Fabric{Capable: true, Opcode: OpHello, LBTag: 3, Path: MakePathID(3, 5), Tail: true, Shim: true, TxTstamp: 0x2222, Arg: 0x1111},
	},
	{
		name: "control-farewell", what: "HELLO of a leaf that stops: its body says that the leaf leaves",
		inner: helloFrame(&goldenFarewell, 0), tos: DSCPControl,
		fabric: Fabric{Capable: true, Opcode: OpHello, LBTag: 3, Path: MakePathID(3, 6), Shim: true, TxTstamp: 0x2233},
	},
	{
		name: "control-clear", what: "CLEAR: control, DSCP CS6, inner headers without payload",
		inner: roceFrame(1, 2, 0xabcdef)[:EthernetLen+IPv4Len+UDPLen+bthLen], vni: 100, tos: DSCPControl,
		fabric: Fabric{Capable: true, Scheme: 1, Opcode: OpClear, LBTag: 2, Epoch: 1, Path: MakePathID(0, 2), Shim: true, Arg: 0x8001},
	},
}

const goldenSeed = 42

func goldenPath(name string) string { return filepath.Join("testdata", name+".hex") }

// dump writes frame as text2pcap reads it, a part to a paragraph.
func dump(what string, frame []byte, fab *Fabric) string {
	var s strings.Builder
	fmt.Fprintf(&s, "# %s\n", what)
	at := 0
	part := func(name string, n int) {
		fmt.Fprintf(&s, "# %s\n", name)
		for n > 0 {
			k := min(n, 16)
			fmt.Fprintf(&s, "%04x  % x\n", at, frame[at:at+k])
			at, n = at+k, n-k
		}
	}
	part("outer Ethernet", EthernetLen)
	if Ethernet(frame).EtherType() == EtherTypeIPv6 {
		part("outer IPv6", IPv6Len)
	} else {
		part("outer IPv4", IPv4Len)
	}
	part("outer UDP", UDPLen)
	part("VXLAN, reserved bits in use by the fabric's fields if Capable", VXLANLen)
	if fab.Shim {
		part("shim", ShimLen)
	}
	part("inner frame", len(frame)-at)
	return s.String()
}

// undump reads what dump wrote.
func undump(t *testing.T, text string) (frame []byte) {
	t.Helper()
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		offset, digits, _ := strings.Cut(strings.TrimSpace(line), "  ")
		if want := fmt.Sprintf("%04x", len(frame)); offset != want {
			t.Fatalf("line %q: offset is not %s", line, want)
		}
		b, err := hex.DecodeString(strings.ReplaceAll(digits, " ", ""))
		if err != nil {
			t.Fatalf("line %q: %v", line, err)
		}
		frame = append(frame, b...)
	}
	return frame
}

func TestGolden(t *testing.T) {
	for _, g := range golden {
		t.Run(g.name, func(t *testing.T) {
			make, family := encapped, FlagIPv4
			if g.six {
				make, family = encapped6, FlagIPv6
			}
			made := make(g.inner, g.vni, dissected(g.inner, goldenSeed).Hash, g.tos, &g.fabric)
			if g.marked && !SetCE(made, EthernetLen, family) {
				t.Fatal("SetCE refuses")
			}
			if *update {
				if err := os.WriteFile(goldenPath(g.name), []byte(dump(g.what, made, &g.fabric)), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			text, err := os.ReadFile(goldenPath(g.name))
			if err != nil {
				t.Fatalf("%v (write the golden packets with `go test ./overlay -run Golden -update`)", err)
			}
			frame := undump(t, string(text))
			if !bytes.Equal(made, frame) {
				t.Errorf("Encap makes\n%swant\n%s", dump(g.what, made, &g.fabric), text)
			}
			var d Decapped
			if r := Decap(frame, DefaultPort, &d); r != drop.None {
				t.Fatalf("Decap: %v", r)
			}
			check(t, "fabric fields", d.Fabric, g.fabric)
			check(t, "VNI", d.VNI, g.vni)
			if inner := frame[d.Inner:d.End]; !bytes.Equal(inner, g.inner) {
				t.Errorf("inner frame % x, want % x", inner, g.inner)
			}
			compareOuter(t, frame, &d)
			compareInner(t, frame[d.Inner:d.End])
		})
	}
}

// compareOuter holds the outer headers against gopacket: as it decodes them,
// and as it would have made them.
func compareOuter(t *testing.T, frame []byte, d *Decapped) {
	t.Helper()
	p := gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.NoCopy)
	eth, _ := p.Layer(layers.LayerTypeEthernet).(*layers.Ethernet)
	udp, _ := p.Layer(layers.LayerTypeUDP).(*layers.UDP)
	vx, _ := p.Layer(layers.LayerTypeVXLAN).(*layers.VXLAN)
	if eth == nil || udp == nil || vx == nil {
		t.Fatalf("gopacket finds %v", p)
	}
	check(t, "outer source MAC", MAC(eth.SrcMAC), Ethernet(frame).Src())
	check(t, "outer destination MAC", MAC(eth.DstMAC), Ethernet(frame).Dst())
	var ip gopacket.SerializableLayer
	if d.Family == FlagIPv6 {
		ip = compareOuter6(t, p, d)
	} else {
		ip = compareOuter4(t, frame, p, d)
	}
	check(t, "outer source port", uint16(udp.SrcPort), d.SrcPort)
	check(t, "outer destination port", udp.DstPort, DefaultPort)
	check(t, "outer UDP checksum", udp.Checksum, 0)
	check(t, "outer UDP length", int(udp.Length), d.End-d.L4)
	check(t, "I flag", vx.ValidIDFlag, true)
	check(t, "VNI", VNI(vx.VNI), d.VNI)

	payload := gopacket.Payload(frame[d.L4:])
	if again := serialize(eth, ip, payload); !bytes.Equal(again, frame) {
		t.Errorf("gopacket makes\n% x of\n% x", again, frame)
	}
	if !d.Fabric.Capable {
		again := serialize(vx, gopacket.Payload(frame[d.Inner:]))
		if !bytes.Equal(again, payload[UDPLen:]) {
			t.Errorf("gopacket makes\n% x of\n% x", again, payload[UDPLen:])
		}
	}
}

func compareOuter4(t *testing.T, frame []byte, p gopacket.Packet, d *Decapped) *layers.IPv4 {
	t.Helper()
	ip, _ := p.Layer(layers.LayerTypeIPv4).(*layers.IPv4)
	if ip == nil {
		t.Fatalf("gopacket finds %v", p)
	}
	view := IPv4(frame[EthernetLen:])
	check(t, "outer source", ip.SrcIP.String(), vtepA.String())
	check(t, "outer source as it is looked up", ip.SrcIP.String(), d.Src.Netip().String())
	check(t, "outer destination", ip.DstIP.String(), d.Dst.Netip().String())
	check(t, "outer TOS", ip.TOS, d.TOS)
	check(t, "outer total length", int(ip.Length), view.TotalLen())
	check(t, "outer TTL", ip.TTL, view.TTL())
	check(t, "outer DF", ip.Flags, layers.IPv4DontFragment)
	check(t, "outer identification", ip.Id, view.ID())
	check(t, "outer protocol", uint8(ip.Protocol), view.Proto())
	return ip
}

func compareOuter6(t *testing.T, p gopacket.Packet, d *Decapped) *layers.IPv6 {
	t.Helper()
	ip, _ := p.Layer(layers.LayerTypeIPv6).(*layers.IPv6)
	if ip == nil {
		t.Fatalf("gopacket finds %v", p)
	}
	check(t, "outer source", ip.SrcIP.String(), vtepC.String())
	check(t, "outer source as it is looked up", ip.SrcIP.String(), d.Src.Netip().String())
	check(t, "outer destination", ip.DstIP.String(), vtepD.String())
	check(t, "outer destination as it is looked up", ip.DstIP.String(), d.Dst.Netip().String())
	check(t, "outer traffic class", ip.TrafficClass, d.TOS)
	check(t, "outer payload length", int(ip.Length), d.L4End-d.L4)
	check(t, "outer hop limit", ip.HopLimit, 64)
	check(t, "outer next header", uint8(ip.NextHeader), ProtoUDP)
	if ip.FlowLabel == 0 {
		t.Error("no outer flow label")
	}
	return ip
}

// compareInner holds Dissect's offsets and flags, and the views at them,
// against what gopacket finds in the inner frame.
func compareInner(t *testing.T, inner []byte) {
	t.Helper()
	m := dissected(inner, goldenSeed)
	p := gopacket.NewPacket(inner, layers.LayerTypeEthernet, gopacket.NoCopy)
	offset := EthernetLen
	if tag, ok := p.Layer(layers.LayerTypeDot1Q).(*layers.Dot1Q); ok {
		check(t, "VLAN flag", m.Flags&FlagVLAN, FlagVLAN)
		view := VLAN(inner[EthernetLen:])
		check(t, "VID", view.VID(), tag.VLANIdentifier)
		check(t, "PCP", view.PCP(), tag.Priority)
		check(t, "tagged EtherType", view.EtherType(), uint16(tag.Type))
		check(t, "TCI", m.VLAN, view.TCI())
		offset += VLANLen
	}
	if ip, ok := p.Layer(layers.LayerTypeIPv4).(*layers.IPv4); ok {
		check(t, "IPv4 flag", m.Flags&FlagIPv4, FlagIPv4)
		check(t, "L3", int(m.L3), offset)
		view := IPv4(inner[m.L3:])
		check(t, "TOS", FrameTOS(inner, m.L3, m.Flags), ip.TOS)
		check(t, "source", ip4String(view.Src()), ip.SrcIP.String())
		check(t, "destination", ip4String(view.Dst()), ip.DstIP.String())
		check(t, "header length", view.HeaderLen(), int(ip.IHL)*4)
		check(t, "checksum", view.Checksum(), ip.Checksum)
		check(t, "checksum holds", view.ChecksumOK(), true)
	}
	if ip, ok := p.Layer(layers.LayerTypeIPv6).(*layers.IPv6); ok {
		check(t, "IPv6 flag", m.Flags&FlagIPv6, FlagIPv6)
		check(t, "L3", int(m.L3), offset)
		view := IPv6(inner[m.L3:])
		src, dst := view.Src(), view.Dst()
		check(t, "traffic class", FrameTOS(inner, m.L3, m.Flags), ip.TrafficClass)
		check(t, "source", net.IP(src[:]).String(), ip.SrcIP.String())
		check(t, "destination", net.IP(dst[:]).String(), ip.DstIP.String())
		check(t, "payload length", view.PayloadLen(), int(ip.Length))
		check(t, "next header", view.NextHeader(), uint8(ip.NextHeader))
		check(t, "hop limit", view.HopLimit(), ip.HopLimit)
	}
	if l4 := p.TransportLayer(); l4 != nil {
		check(t, "ports flag", m.Flags&FlagPorts, FlagPorts)
		src, dst := l4.TransportFlow().Endpoints()
		view := UDP(inner[m.L4:])
		check(t, "source port", fmt.Sprint(view.SrcPort()), src.String())
		check(t, "destination port", fmt.Sprint(view.DstPort()), dst.String())
	}
}

func ip4String(a uint32) string {
	return net.IPv4(byte(a>>24), byte(a>>16), byte(a>>8), byte(a)).String()
}

// TestGoldenNamedInDoc keeps the document and the packets together.
func TestGoldenNamedInDoc(t *testing.T) {
	doc, err := os.ReadFile("../docs/wire-format.md")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("testdata/*.hex")
	if err != nil || len(files) != len(golden) {
		t.Fatalf("%d files (%v) for %d golden packets", len(files), err, len(golden))
	}
	for _, f := range files {
		if !bytes.Contains(doc, []byte("overlay/"+f)) {
			t.Errorf("docs/wire-format.md does not name overlay/%s", f)
		}
	}
	const example = "testdata/fabric-rerouted.hex"
	packet, err := os.ReadFile(example)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(doc, bytes.TrimSpace(packet)) {
		t.Errorf("docs/wire-format.md does not show what is in overlay/%s", example)
	}
}
