package overlay

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"net"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

// l4Frame builds a frame with a finished checksum, by another implementation.
func l4Frame(t testing.TB, v6, tcp bool, vlan bool, payload []byte) []byte {
	t.Helper()
	var stack []gopacket.SerializableLayer
	eth := &layers.Ethernet{SrcMAC: net.HardwareAddr{2, 0, 0, 0, 0, 1}, DstMAC: net.HardwareAddr{2, 0, 0, 0, 0, 2}, EthernetType: layers.EthernetTypeIPv4}
	if v6 {
		eth.EthernetType = layers.EthernetTypeIPv6
	}
	stack = append(stack, eth)
	if vlan {
		stack = append(stack, &layers.Dot1Q{VLANIdentifier: 20, Type: eth.EthernetType})
		eth.EthernetType = layers.EthernetTypeDot1Q
	}
	proto := layers.IPProtocolUDP
	if tcp {
		proto = layers.IPProtocolTCP
	}
	var network interface {
		gopacket.NetworkLayer
		gopacket.SerializableLayer
	}
	if v6 {
		network = &layers.IPv6{Version: 6, HopLimit: 64, NextHeader: proto, SrcIP: net.ParseIP("2001:db8::ff01"), DstIP: net.ParseIP("2001:db8:ffff::2")}
	} else {
		network = &layers.IPv4{Version: 4, TTL: 64, Protocol: proto, SrcIP: net.IP{172, 16, 255, 1}, DstIP: net.IP{172, 31, 0, 2}}
	}
	stack = append(stack, network)
	if tcp {
		l := &layers.TCP{SrcPort: 40000, DstPort: 80, Seq: 7, ACK: true, Window: 500}
		_ = l.SetNetworkLayerForChecksum(network)
		stack = append(stack, l)
	} else {
		l := &layers.UDP{SrcPort: 40000, DstPort: 53}
		_ = l.SetNetworkLayerForChecksum(network)
		stack = append(stack, l)
	}
	b := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, append(stack, gopacket.Payload(payload))...); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// unfinish puts the folded sum of the pseudo-header into the checksum field, as Linux
// does (tcp_v4_send_check), and returns where that is. It adds up byte by byte.
func unfinish(frame []byte, m *Meta, tcp bool) int {
	ip := frame[m.L3:]
	var pseudo []byte
	proto := byte(ProtoUDP)
	field := int(m.L4) + 6
	if tcp {
		proto, field = ProtoTCP, int(m.L4)+16
	}
	n := 0 // without what pads a short frame
	if m.Flags&FlagIPv4 != 0 {
		n = int(ip[2])<<8 + int(ip[3]) - 20
		pseudo = append(pseudo, ip[12:20]...)
	} else {
		n = int(ip[4])<<8 + int(ip[5])
		pseudo = append(pseudo, ip[8:40]...)
	}
	pseudo = binary.BigEndian.AppendUint16(append(pseudo, 0, proto), uint16(n))
	sum := uint32(0)
	for i := 0; i < len(pseudo); i += 2 {
		sum += uint32(pseudo[i])<<8 | uint32(pseudo[i+1])
		sum = sum>>16 + sum&0xffff
	}
	binary.BigEndian.PutUint16(frame[field:], uint16(sum))
	return field
}

// TestFinishChecksum: what comes out is what gopacket computes, for both IP versions
// and protocols, with and without a tag, for payloads of every length; and a finished
// frame stays as it is.
func TestFinishChecksum(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for i := range 4000 {
		v6, tcp, vlan := i&1 != 0, i&2 != 0, i&4 != 0
		payload := make([]byte, rnd.IntN(1460))
		for j := range payload {
			payload[j] = byte(rnd.Uint32())
		}
		want := l4Frame(t, v6, tcp, vlan, payload)
		var m Meta
		Dissect(want, 0, &m)
		got := bytes.Clone(want)
		l3 := m.L3
		unfinish(got, &m, tcp)
		if vlan { // as an access port does: the tag is gone, m is from before
			PopVLAN(got)
			PopVLAN(want)
			got, want, l3 = got[VLANLen:], want[VLANLen:], l3-VLANLen
		}
		if !FinishChecksum(got, l3, &m) || !bytes.Equal(got, want) {
			t.Fatalf("v6 %v, tcp %v, vlan %v, %d bytes:\n%x\nwant\n%x", v6, tcp, vlan, len(payload), got, want)
		}
		padded := append(bytes.Clone(want), 1, 2, 3) // padding is no part of it
		if FinishChecksum(padded, l3, &m); !bytes.Equal(padded[:len(want)], want) {
			t.Fatalf("v6 %v, tcp %v, vlan %v, %d bytes: a finished checksum changed", v6, tcp, vlan, len(payload))
		}
	}
}

// TestFinishChecksumLeaves: fragments, UDP without a checksum, other protocols and
// lengths that lie are not touched.
func TestFinishChecksumLeaves(t *testing.T) {
	for name, change := range map[string]func(b []byte, m *Meta, field int){
		"fragment":       func(b []byte, _ *Meta, _ int) { b[EthernetLen+6] = 0x20 },
		"later fragment": func(b []byte, _ *Meta, _ int) { b[EthernetLen+7] = 9 },
		"no checksum":    func(b []byte, _ *Meta, field int) { b[field], b[field+1] = 0, 0 },
		"GRE":            func(b []byte, _ *Meta, _ int) { b[EthernetLen+9] = 47 },
		"longer than it": func(b []byte, _ *Meta, _ int) { binary.BigEndian.PutUint16(b[EthernetLen+2:], 1000) },
		"shorter":        func(b []byte, _ *Meta, _ int) { binary.BigEndian.PutUint16(b[EthernetLen+2:], 24) },
	} {
		b := l4Frame(t, false, false, false, []byte("payload"))
		var m Meta
		Dissect(b, 0, &m)
		field := unfinish(b, &m, false)
		change(b, &m, field)
		m = Meta{}
		Dissect(b, 0, &m)
		before := bytes.Clone(b)
		if FinishChecksum(b, m.L3, &m) || !bytes.Equal(b, before) {
			t.Errorf("%s: was changed", name)
		}
	}
}

// FuzzFinishChecksum: no frame makes it panic, and what it changed once it does not
// change again.
func FuzzFinishChecksum(f *testing.F) {
	b := l4Frame(f, false, true, true, []byte("seed"))
	f.Add(b, uint8(18))
	f.Add(l4Frame(f, true, false, false, nil), uint8(14))
	f.Fuzz(tryFinishChecksum)
}

func tryFinishChecksum(t *testing.T, b []byte, l3 uint8) {
	var m Meta
	Dissect(b, 0, &m)
	if !FinishChecksum(b, l3, &m) {
		return
	}
	once := bytes.Clone(b)
	if FinishChecksum(b, l3, &m); !bytes.Equal(b, once) {
		t.Errorf("%x became %x", once, b)
	}
}

func BenchmarkFinishChecksum(b *testing.B) {
	for _, c := range []struct {
		name       string
		unfinished bool
	}{{"finished", false}, {"unfinished-1460B", true}} {
		b.Run(c.name, func(b *testing.B) {
			frame := l4Frame(b, false, true, false, make([]byte, 1460))
			var m Meta
			Dissect(frame, 0, &m)
			n := 0
			for b.Loop() {
				if c.unfinished {
					unfinishFast(frame, &m)
				}
				if FinishChecksum(frame, m.L3, &m) {
					n++
				}
			}
			if c.unfinished != (n > 0) {
				b.Errorf("%d frames finished", n)
			}
		})
	}
}

// unfinishFast restores what [unfinish] wrote into the benchmark's frame.
func unfinishFast(frame []byte, m *Meta) {
	n := uint32(len(frame) - int(m.L4))
	sum := n + ProtoTCP
	for i := int(m.L3) + 12; i < int(m.L3)+20; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(frame[i:]))
	}
	binary.BigEndian.PutUint16(frame[int(m.L4)+16:], fold(sum))
}
