package overlay

import (
	"encoding/binary"
	"testing"
	"unsafe"
)

// TestMetaLayout: struct loom_meta of bpf/loom.h has these offsets.
func TestMetaLayout(t *testing.T) {
	var m Meta
	check(t, "size", unsafe.Sizeof(m), MetaLen)
	check(t, "hash", unsafe.Offsetof(m.Hash), 4)
	check(t, "vlan", unsafe.Offsetof(m.VLAN), 8)
	check(t, "flags", unsafe.Offsetof(m.Flags), 10)
	check(t, "l3", unsafe.Offsetof(m.L3), 12)
	check(t, "l4", unsafe.Offsetof(m.L4), 13)
	check(t, "inner", unsafe.Offsetof(m.Inner), 14)
}

// refHash is the flow hash as its definition words it, from values rather than
// from bytes in memory. words are in the order in which they are mixed.
func refHash(seed uint32, words ...uint64) uint32 {
	h := uint64(seed) ^ 0x4C6F6F6D
	for _, w := range words {
		h ^= w
		h *= 0x9E3779B97F4A7C15
		h ^= h >> 32
	}
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	return uint32(h >> 32)
}

// le reads at most eight bytes as a little-endian number.
func le(b ...byte) (v uint64) {
	for i, x := range b {
		v |= uint64(x) << (8 * i)
	}
	return v
}

func TestDissect(t *testing.T) {
	const seed = 0xdecafbad
	addrs4 := le(192, 168, 0, 1, 192, 168, 0, 2)
	ports := le(0x9c, 0x40, 0, 80) // 40000 to 80
	macs := []uint64{le(hostB...), le(hostA...)}
	tcp := func() []byte { return tcp4Frame(1, 2, 40000, 80, 20) }
	udp6 := func() []byte { return udp6Frame(1, 2, 40000, 80, 20) }
	addrs6 := []uint64{le(0x20, 1, 0x0d, 0xb8), le(0, 0, 0, 0, 0, 0, 0, 1), le(0x20, 1, 0x0d, 0xb8), le(0, 0, 0, 0, 0, 0, 0, 2)}
	with := func(frame []byte, at int, b ...byte) []byte { copy(frame[at:], b); return frame }
	qinq := tagged(tagged(tcp(), EtherTypeVLAN, 8), EtherTypeQinQ, 0xe007)
	for _, c := range []struct {
		name  string
		frame []byte
		want  Meta
		words []uint64
	}{
		{"TCP", tcp(), Meta{Flags: FlagIPv4 | FlagPorts, L3: 14, L4: 34}, []uint64{addrs4, 6<<32 | ports}},
		{"TCP, two bytes of ports", tcp()[:36], Meta{Flags: FlagIPv4, L3: 14}, []uint64{addrs4, 6 << 32}},
		{"TCP, datagram ends in the ports", with(tcp(), 16, 0, 23), Meta{Flags: FlagIPv4, L3: 14}, []uint64{addrs4, 6 << 32}},
		{"first fragment", with(tcp(), 20, 0x20, 0), Meta{Flags: FlagIPv4 | FlagFragment, L3: 14}, []uint64{addrs4, 6 << 32}},
		{"last fragment", with(tcp(), 20, 0, 9), Meta{Flags: FlagIPv4 | FlagFragment, L3: 14}, []uint64{addrs4, 6 << 32}},
		{"ICMP", with(tcp(), 23, 1), Meta{Flags: FlagIPv4, L3: 14}, []uint64{addrs4, 1 << 32}},
		{"SCTP", with(tcp(), 23, 132), Meta{Flags: FlagIPv4 | FlagPorts, L3: 14, L4: 34}, []uint64{addrs4, 132<<32 | ports}},
		{"options", with(tcp(), 14, 0x46), Meta{Flags: FlagIPv4 | FlagPorts, L3: 14, L4: 38}, []uint64{addrs4, 6<<32 | le(0, 0, 0, 1)}},
		{"options cut", with(tcp(), 14, 0x4f)[:70], Meta{}, []uint64{macs[0] | 0x0800<<48, macs[1]}},
		{"header length 4", with(tcp(), 14, 0x44), Meta{}, []uint64{macs[0] | 0x0800<<48, macs[1]}},
		{"version 5", with(tcp(), 14, 0x55), Meta{}, []uint64{macs[0] | 0x0800<<48, macs[1]}},
		{"IPv4 header cut", tcp()[:33], Meta{}, []uint64{macs[0] | 0x0800<<48, macs[1]}},
		{"tag", tagged(tcp(), EtherTypeVLAN, 0xe064), Meta{VLAN: 0xe064, Flags: FlagVLAN | FlagIPv4 | FlagPorts, L3: 18, L4: 38}, []uint64{addrs4, 6<<32 | ports}},
		{"two tags", qinq, Meta{VLAN: 0xe007, Flags: FlagVLAN | FlagIPv4 | FlagPorts, L3: 22, L4: 42}, []uint64{addrs4, 6<<32 | ports}},
		{"three tags", tagged(qinq, EtherTypeVLAN, 6), Meta{VLAN: 6, Flags: FlagVLAN}, []uint64{macs[0] | 0x8100<<48, macs[1]}},
		{"tag cut", tagged(tcp(), EtherTypeVLAN, 6)[:17], Meta{}, []uint64{macs[0] | 0x8100<<48, macs[1]}},
		{"second tag cut", qinq[:21], Meta{VLAN: 0xe007, Flags: FlagVLAN}, []uint64{macs[0] | 0x8100<<48, macs[1]}},
		{"UDP over IPv6", udp6(), Meta{Flags: FlagIPv6 | FlagPorts, L3: 14, L4: 54}, append(addrs6[:4:4], 17<<32|ports)},
		{"IPv6 payload too short for ports", with(udp6(), 18, 0, 3), Meta{Flags: FlagIPv6, L3: 14}, append(addrs6[:4:4], 17<<32)},
		{"IPv6 fragment", with(udp6(), 20, 44), Meta{Flags: FlagIPv6 | FlagFragment, L3: 14}, append(addrs6[:4:4], 44<<32)},
		{"IPv6 hop-by-hop", with(udp6(), 20, 0), Meta{Flags: FlagIPv6, L3: 14}, append(addrs6[:4:4], 0<<32)},
		{"IPv6 header cut", udp6()[:53], Meta{}, []uint64{macs[0] | 0x86dd<<48, macs[1]}},
		{"RoCEv2", roceFrame(1, 2, 0x12abcdef), Meta{Flags: FlagIPv4 | FlagPorts | FlagRoCE, L3: 14, L4: 34}, []uint64{addrs4, 17<<32 | le(0xc0, 1, 0x12, 0xb7), 0xabcdef}},
		{"RoCEv2, BTH cut", roceFrame(1, 2, 1)[:53], Meta{Flags: FlagIPv4 | FlagPorts, L3: 14, L4: 34}, []uint64{addrs4, 17<<32 | le(0xc0, 1, 0x12, 0xb7)}},
		{"RoCEv2, datagram ends in the BTH", with(roceFrame(1, 2, 1), 16, 0, 39), Meta{Flags: FlagIPv4 | FlagPorts, L3: 14, L4: 34}, []uint64{addrs4, 17<<32 | le(0xc0, 1, 0x12, 0xb7)}},
		{"ARP", arpFrame(), Meta{}, []uint64{1<<48 - 1 | 0x0806<<48, macs[1]}},
	} {
		t.Run(c.name, func(t *testing.T) {
			want := c.want
			want.Magic, want.Hash, want.Inner = MetaMagic, refHash(seed, c.words...), 50
			m := Meta{Flags: 0xffff, L3: 9, L4: 9, VLAN: 9, Inner: 50}
			Dissect(c.frame, seed, &m)
			check(t, "meta", m, want)
		})
	}
	t.Run("too short", func(t *testing.T) {
		for n := range EthernetLen {
			check(t, "meta", dissected(tcp()[:n], seed), Meta{Magic: MetaMagic})
		}
	})
}

// TestHashSpread: what differs little in the header spreads evenly over uplinks
// by whichever bits of the hash choose them.
func TestHashSpread(t *testing.T) {
	base := tcp4Frame(1, 2, 40000, 80, 0)
	base6 := udp6Frame(1, 2, 40000, 80, 0)
	roce := roceFrame(1, 2, 0)
	put16 := func(f []byte, at int, v uint32) { binary.BigEndian.PutUint16(f[at:], uint16(v)) }
	const n = 1 << 14
	for _, c := range []struct {
		name   string
		frame  []byte
		change func(f []byte, i uint32)
	}{
		{"source ports", base, func(f []byte, i uint32) { put16(f, 34, 32768+i) }},
		{"even source ports", base, func(f []byte, i uint32) { put16(f, 34, 2*i) }},
		{"destination ports", base, func(f []byte, i uint32) { put16(f, 36, i) }},
		{"source addresses", base, func(f []byte, i uint32) { put16(f, 28, i) }},
		{"destination addresses", base, func(f []byte, i uint32) { put16(f, 32, i) }},
		{"source and destination alike", base, func(f []byte, i uint32) { put16(f, 28, i); put16(f, 32, i) }},
		{"IPv6 source addresses", base6, func(f []byte, i uint32) { put16(f, 36, i) }},
		{"IPv6 destination addresses", base6, func(f []byte, i uint32) { put16(f, 52, i) }},
		{"IPv6 prefixes", base6, func(f []byte, i uint32) { put16(f, 28, i) }},
		{"queue pairs", roce, func(f []byte, i uint32) { put16(f, 48, i) }},
		{"MAC addresses", arpFrame(), func(f []byte, i uint32) { put16(f, 10, i) }},
	} {
		for _, seed := range []uint32{0, 1, 0x80000000, 0xdecafbad} {
			low, high, seen := make([]int, 16), make([]int, 16), make(map[uint32]bool, n)
			for i := range uint32(n) {
				c.change(c.frame, i)
				h := dissected(c.frame, seed).Hash
				low[h&15]++
				high[h>>28]++
				seen[h] = true
			}
			uniform(t, c.name+", low bits", low, chance)
			uniform(t, c.name+", high bits", high, chance)
			if len(seen) < n-8 { // chance collides 0.03 pairs
				t.Errorf("%s: %d hashes for %d flows", c.name, len(seen), n)
			}
		}
	}
}

// TestHashSeed: nodes with different seeds choose independently, or the second
// tier would use only some of its links.
func TestHashSeed(t *testing.T) {
	frame := tcp4Frame(1, 2, 40000, 80, 0)
	joint := make([]int, 16)
	for i := range uint32(1 << 14) {
		binary.BigEndian.PutUint16(frame[34:], uint16(i))
		joint[dissected(frame, 1).Hash>>30<<2|dissected(frame, 2).Hash>>30]++
	}
	uniform(t, "choices of two tiers", joint, chance)
}
