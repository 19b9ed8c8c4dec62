package overlay

import (
	"bytes"
	"math/bits"
	"net/netip"
	"testing"

	"github.com/gopacket/gopacket/layers"
)

// key is a flow's identity in words: addresses as text, IP or MAC.
func key(version uint8, src, dst string, proto uint8, sport, dport uint16) FlowKey {
	k := FlowKey{Version: version, Proto: proto, SrcPort: sport, DstPort: dport}
	for _, a := range []struct {
		to   *[16]byte
		text string
	}{{&k.Src, src}, {&k.Dst, dst}} {
		copy(a.to[:], netip.MustParseAddr(a.text).AsSlice())
	}
	return k
}

func macKey(src, dst []byte, etherType uint16) FlowKey {
	k := FlowKey{Version: 2, SrcPort: etherType, DstPort: etherType}
	copy(k.Src[:], src)
	copy(k.Dst[:], dst)
	return k
}

func TestExactKey(t *testing.T) {
	const a4, b4, a6, b6 = "192.168.0.1", "192.168.0.2", "2001:db8::1", "2001:db8::2"
	tcp := func(set func(*layers.TCP)) []byte {
		ip := ip4Layer(1, 2, layers.IPProtocolTCP, 0)
		l := tcpLayer(ip, 40000, 80)
		set(l)
		return serialize(ethernet(EtherTypeIPv4), ip, l, payload(5))
	}
	ack := func(*layers.TCP) {}
	options := ip4Layer(1, 2, layers.IPProtocolUDP, 0)
	options.Options = []layers.IPv4Option{{OptionType: 1}, {OptionType: 1}, {OptionType: 1}, {OptionType: 0}}
	fragment := tcp(ack)
	IPv4(fragment[EthernetLen:])[ip4Frag] = 0x20 // more fragments
	IPv4(fragment[EthernetLen:]).UpdateChecksum()
	for _, c := range []struct {
		name  string
		frame []byte
		want  FlowKey
		flags uint8
	}{
		{"TCP", tcp(ack), key(4, a4, b4, ProtoTCP, 40000, 80), 0x10},
		{"SYN", tcp(func(l *layers.TCP) { l.SYN, l.ACK = true, false }), key(4, a4, b4, ProtoTCP, 40000, 80), 0x02},
		{"FIN, ECE and CWR", tcp(func(l *layers.TCP) { l.FIN, l.ECE, l.CWR = true, true, true }), key(4, a4, b4, ProtoTCP, 40000, 80), 0xd1},
		{"RST behind a tag", tagged(tcp(func(l *layers.TCP) { l.RST = true }), EtherTypeVLAN, 7), key(4, a4, b4, ProtoTCP, 40000, 80), 0x14},
		{"TCP, cut before its flags", tcp(ack)[:EthernetLen+IPv4Len+tcpFlagsAt], key(4, a4, b4, ProtoTCP, 40000, 80), 0},
		{"TCP, cut behind its flags", tcp(ack)[:EthernetLen+IPv4Len+tcpFlagsAt+1], key(4, a4, b4, ProtoTCP, 40000, 80), 0x10},
		{"TCP, cut within its ports", tcp(ack)[:EthernetLen+IPv4Len+3], key(4, a4, b4, ProtoTCP, 0, 0), 0},
		{"fragment", fragment, key(4, a4, b4, ProtoTCP, 0, 0), 0},
		{"UDP behind IP options", serialize(ethernet(EtherTypeIPv4), options, udpLayer(options, 5, 6), payload(20)), key(4, a4, b4, ProtoUDP, 5, 6), 0},
		{"RoCEv2", roceFrame(1, 2, 77), key(4, a4, b4, ProtoUDP, 49153, 4791), 0},
		{"UDP over IPv6", udp6Frame(1, 2, 40000, 9999, 10), key(6, a6, b6, ProtoUDP, 40000, 9999), 0},
		{"IPv6 behind two tags", tagged(tagged(udp6Frame(1, 2, 1, 2, 10), EtherTypeVLAN, 8), EtherTypeQinQ, 9), key(6, a6, b6, ProtoUDP, 1, 2), 0},
		{"ARP", arpFrame(), macKey(hostA, bytes.Repeat([]byte{0xff}, 6), EtherTypeARP), 0},
		{"tagged ARP", tagged(arpFrame(), EtherTypeVLAN, 9), macKey(hostA, bytes.Repeat([]byte{0xff}, 6), EtherTypeVLAN), 0},
		{"IPv4 that is impossible", append(tcp(ack)[:EthernetLen], make([]byte, 40)...), macKey(hostA, hostB, EtherTypeIPv4), 0},
		{"too short", tcp(ack)[:EthernetLen-1], FlowKey{}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := dissected(c.frame, 1)
			got := FlowKey{Proto: 9, Version: 9}
			check(t, "TCP flags", ExactKey(c.frame, m.L3, &m, &got), c.flags)
			check(t, "key", got, c.want)
		})
	}
}

// A tag that was taken off after the frame was dissected moves its headers: the
// flow stays the same.
func TestExactKeyBehindATagTakenOff(t *testing.T) {
	for _, frame := range [][]byte{tcp4Frame(1, 2, 40000, 80, 10), udp6Frame(1, 2, 3, 4, 10)} {
		var want, got FlowKey
		m := dissected(frame, 1)
		flags := ExactKey(frame, m.L3, &m, &want)
		with := dissected(tagged(frame, EtherTypeVLAN, 100), 1)
		check(t, "TCP flags", ExactKey(frame, with.L3-VLANLen, &with, &got), flags)
		check(t, "key", got, want)
	}
}

func TestFlowKeyReverse(t *testing.T) {
	var there, back FlowKey
	a, b := udp4Frame(1, 2, 3, 4, nil), udp4Frame(2, 1, 4, 3, nil)
	ma, mb := dissected(a, 1), dissected(b, 1)
	ExactKey(a, ma.L3, &ma, &there)
	ExactKey(b, mb.L3, &mb, &back)
	if there == back {
		t.Error("both ways have one key")
	}
	check(t, "reverse", there.Reverse(), back)
	check(t, "reverse of the reverse", there.Reverse().Reverse(), there)
	arp := macKey(hostA, hostB, EtherTypeARP)
	check(t, "reverse without IP", arp.Reverse(), macKey(hostB, hostA, EtherTypeARP))
}

// FuzzExactKey: no frame makes it panic, and what decides about the key are the
// fields that it is said to be made of. Two frames of one key have one hash, unless
// that covers a queue pair or more than the key does of what is not IP.
func FuzzExactKey(f *testing.F) {
	for _, g := range golden {
		f.Add(g.inner, uint16(0))
	}
	f.Add(tagged(tcp4Frame(1, 2, 40000, 80, 10), EtherTypeVLAN, 5), uint16(33))
	f.Fuzz(tryExactKey)
}

func tryExactKey(t *testing.T, frame []byte, at uint16) {
	m := dissected(frame, 0)
	var k, again FlowKey
	flags := ExactKey(frame, m.L3, &m, &k)
	switch {
	case len(frame) < EthernetLen:
		check(t, "key of a piece", k, FlowKey{})
		return
	case k.Version == 2 != (m.L3 == 0), k.Version == 2 && (k.Proto != 0 || k.SrcPort != k.DstPort),
		k.Version != 2 && k.Version != 4 && k.Version != 6,
		m.Flags&FlagPorts == 0 && k.Version != 2 && (k.SrcPort|k.DstPort) != 0,
		flags != 0 && k.Proto != ProtoTCP:
		t.Fatalf("contradiction: %+v, flags %#x of %+v", k, flags, m)
	}
	check(t, "reverse of the reverse", k.Reverse().Reverse(), k)
	// One byte of the frame changes.
	if int(at) >= len(frame) {
		return
	}
	other := bytes.Clone(frame)
	other[at] ^= 0x55
	mo := dissected(other, 0)
	ExactKey(other, mo.L3, &mo, &again)
	if k == again && k.Version != 2 && m.Flags == mo.Flags && m.Flags&FlagRoCE == 0 && m.Hash != mo.Hash {
		t.Fatalf("byte %d decides about the hash, and not about the key %+v", at, k)
	}
	if k.Version == again.Version && k.Version != 2 && k != again && m.Flags == mo.Flags &&
		m.Hash == mo.Hash && dissected(frame, 1).Hash == dissected(other, 1).Hash {
		t.Fatalf("byte %d decides about the key, %+v or %+v, and not about the hash", at, k, again)
	}
}

// The hash of a flow's other direction is that of the reversed key, and every part of a
// key and the seed matter: flipping any bit flips about half of the hash's.
func TestFlowKeyHash(t *testing.T) {
	keys := []FlowKey{
		key(4, "10.0.0.1", "10.0.0.2", ProtoTCP, 40000, 80),
		key(6, "2001:db8::1", "2001:db8::2", ProtoTCP, 40000, 80),
		macKey([]byte{2, 0, 0, 0, 0, 1}, []byte{2, 0, 0, 0, 0, 2}, 0x88b5),
	}
	for _, k := range keys {
		h, r := k.Hash(7), k.Reverse()
		if k.ReverseHash(7) != r.Hash(7) || h == r.Hash(7) || h == k.Hash(8) {
			t.Errorf("%+v: hash %#x, reverse %#x, by the reversed key %#x, with another seed %#x", k, h, k.ReverseHash(7), r.Hash(7), k.Hash(8))
		}
		length := map[uint8]int{2: 6, 4: 4, 6: 16}[k.Version]
		changes := 0
		check := func(changed FlowKey) {
			changes++
			if n := bits.OnesCount64(h ^ changed.Hash(7)); n < 12 || n > 52 {
				t.Errorf("%+v: %d bits differ from those of %+v", changed, n, k)
			}
		}
		for bit := range 8 * length {
			c := k
			c.Src[bit/8] ^= 1 << (bit % 8)
			check(c)
			c = k
			c.Dst[bit/8] ^= 1 << (bit % 8)
			check(c)
		}
		for bit := range 16 {
			c := k
			c.SrcPort ^= 1 << bit
			check(c)
			c = k
			c.DstPort ^= 1 << bit
			check(c)
		}
		c := k
		c.Proto ^= 1
		check(c)
	}
}

// A million flows that differ little have as many hashes.
func TestFlowKeyHashesDoNotCollide(t *testing.T) {
	seen := make(map[uint64]bool, 1<<20)
	k := key(4, "10.0.0.1", "10.0.1.1", ProtoTCP, 0, 0)
	for src := range 16 {
		for dst := range 16 {
			for port := range 4096 {
				k.Src[3], k.Dst[3], k.SrcPort, k.DstPort = byte(src), byte(dst), uint16(40000+port/4), uint16(80+port%4)
				seen[k.Hash(1)] = true
			}
		}
	}
	if len(seen) != 1<<20 {
		t.Errorf("%d hashes of %d flows", len(seen), 1<<20)
	}
}

func TestPair(t *testing.T) {
	k := key(4, "10.0.0.1", "10.0.0.2", ProtoTCP, 40000, 80)
	if p := k.Pair(); p != key(4, "10.0.0.1", "10.0.0.2", 0, 0, 0) || p.Reverse() != k.Reverse().Pair() {
		t.Errorf("pair %+v", p)
	}
}
