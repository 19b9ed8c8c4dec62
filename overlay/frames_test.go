package overlay

import (
	"encoding/binary"
	"net"
	"net/netip"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

// The frames that tests use are made by gopacket, so that what reads them here
// is not held against itself.

var (
	hostA = net.HardwareAddr{0x02, 0xaa, 0, 0, 0, 1}
	hostB = net.HardwareAddr{0x02, 0xbb, 0, 0, 0, 2}
)

func serialize(ls ...gopacket.SerializableLayer) []byte {
	buf := gopacket.NewSerializeBuffer()
	err := gopacket.SerializeLayers(buf, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, ls...)
	if err != nil {
		panic(err)
	}
	return append([]byte(nil), buf.Bytes()...)
}

func ethernet(t layers.EthernetType) *layers.Ethernet {
	return &layers.Ethernet{SrcMAC: hostA, DstMAC: hostB, EthernetType: t}
}

func payload(n int) gopacket.Payload {
	p := make(gopacket.Payload, n)
	for i := range p {
		p[i] = byte('a' + i%26)
	}
	return p
}

func ip4Layer(src, dst uint32, proto layers.IPProtocol, tos uint8) *layers.IPv4 {
	return &layers.IPv4{
		Version: 4, IHL: 5, TOS: tos, TTL: 63, Id: 0x1234, Protocol: proto,
		SrcIP: binary.BigEndian.AppendUint32(nil, 192<<24|168<<16|src),
		DstIP: binary.BigEndian.AppendUint32(nil, 192<<24|168<<16|dst),
	}
}

func ip6Layer(src, dst uint32, next layers.IPProtocol, tos uint8) *layers.IPv6 {
	prefix := []byte{0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0}
	return &layers.IPv6{
		Version: 6, TrafficClass: tos, FlowLabel: 0x12345, NextHeader: next, HopLimit: 63,
		SrcIP: binary.BigEndian.AppendUint32(append([]byte(nil), prefix...), src),
		DstIP: binary.BigEndian.AppendUint32(append([]byte(nil), prefix...), dst),
	}
}

func tcpLayer(ip gopacket.NetworkLayer, sport, dport uint16) *layers.TCP {
	tcp := &layers.TCP{SrcPort: layers.TCPPort(sport), DstPort: layers.TCPPort(dport), Seq: 1, Ack: 2, ACK: true, Window: 1024}
	if err := tcp.SetNetworkLayerForChecksum(ip); err != nil {
		panic(err)
	}
	return tcp
}

func udpLayer(ip gopacket.NetworkLayer, sport, dport uint16) *layers.UDP {
	udp := &layers.UDP{SrcPort: layers.UDPPort(sport), DstPort: layers.UDPPort(dport)}
	if err := udp.SetNetworkLayerForChecksum(ip); err != nil {
		panic(err)
	}
	return udp
}

// tos4Frame is an IPv4 TCP segment with n bytes of payload.
func tos4Frame(src, dst uint32, sport, dport uint16, n int, tos uint8) []byte {
	ip := ip4Layer(src, dst, layers.IPProtocolTCP, tos)
	return serialize(ethernet(EtherTypeIPv4), ip, tcpLayer(ip, sport, dport), payload(n))
}

func tcp4Frame(src, dst uint32, sport, dport uint16, n int) []byte {
	return tos4Frame(src, dst, sport, dport, n, 0)
}

func udp4Frame(src, dst uint32, sport, dport uint16, body []byte) []byte {
	ip := ip4Layer(src, dst, layers.IPProtocolUDP, 0)
	return serialize(ethernet(EtherTypeIPv4), ip, udpLayer(ip, sport, dport), gopacket.Payload(body))
}

func tos6Frame(src, dst uint32, sport, dport uint16, n int, tos uint8) []byte {
	ip := ip6Layer(src, dst, layers.IPProtocolUDP, tos)
	return serialize(ethernet(EtherTypeIPv6), ip, udpLayer(ip, sport, dport), payload(n))
}

func udp6Frame(src, dst uint32, sport, dport uint16, n int) []byte {
	return tos6Frame(src, dst, sport, dport, n, 0)
}

// roceFrame is a RoCEv2 packet, an RDMA WRITE ONLY without payload, to a queue
// pair.
func roceFrame(src, dst, qp uint32) []byte {
	bth := make([]byte, bthLen+16+4) // BTH, RETH, ICRC
	bth[0] = 0x0a
	binary.BigEndian.PutUint16(bth[2:], 0xffff)
	binary.BigEndian.PutUint32(bth[4:], qp)
	return udp4Frame(src, dst, 49153, rocePort, bth)
}

func arpFrame() []byte {
	return serialize(
		&layers.Ethernet{SrcMAC: hostA, DstMAC: net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, EthernetType: EtherTypeARP},
		&layers.ARP{
			AddrType: layers.LinkTypeEthernet, Protocol: EtherTypeIPv4, HwAddressSize: 6, ProtAddressSize: 4, Operation: layers.ARPRequest,
			SourceHwAddress: hostA, SourceProtAddress: []byte{192, 168, 0, 1},
			DstHwAddress: make([]byte, 6), DstProtAddress: []byte{192, 168, 0, 2},
		})
}

// tagged puts a tag in front of the frame's EtherType.
func tagged(frame []byte, tpid, tci uint16) []byte {
	out := append([]byte(nil), frame[:ethType]...)
	out = binary.BigEndian.AppendUint16(out, tpid)
	out = binary.BigEndian.AppendUint16(out, tci)
	return append(out, frame[ethType:]...)
}

var (
	vtepA = netip.MustParseAddr("10.255.0.1")
	vtepB = netip.MustParseAddr("10.255.0.2")
	vtepC = netip.MustParseAddr("2001:db8:255::1")
	vtepD = netip.MustParseAddr("2001:db8:255::2")
	macA  = MAC{0x02, 0x10, 0, 0, 0, 0xa1}
	macB  = MAC{0x02, 0x10, 0, 0, 0, 0xb1}
)

// encapped is the frame in a tunnel from vtepA to vtepB.
func encapped(inner []byte, vni VNI, hash uint32, tos uint8, f *Fabric) []byte {
	return tunnelled(MakeTunnel(vtepA, vtepB, macA, macB, DefaultPort), inner, vni, hash, tos, f)
}

// encapped6 is the frame in a tunnel from vtepC to vtepD.
func encapped6(inner []byte, vni VNI, hash uint32, tos uint8, f *Fabric) []byte {
	return tunnelled(MakeTunnel(vtepC, vtepD, macA, macB, DefaultPort), inner, vni, hash, tos, f)
}

func tunnelled(tun Tunnel, inner []byte, vni VNI, hash uint32, tos uint8, f *Fabric) []byte {
	n := tun.Headers()
	if f != nil && f.Capable && f.Shim {
		n += ShimLen
	}
	out := append(make([]byte, n), inner...)
	tun.Encap(out, len(inner), vni, hash, tos, f)
	return out
}

func dissected(frame []byte, seed uint32) Meta {
	var m Meta
	Dissect(frame, seed, &m)
	return m
}

func check[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}
