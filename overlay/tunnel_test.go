package overlay

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/loomfabric/loom/internal/drop"
)

// TestEncapDecapIdentity: whatever goes into a tunnel comes out of it, of either family.
func TestEncapDecapIdentity(t *testing.T) {
	r := seeded(t)
	for i := range 5000 {
		src, dst := randomVTEP(r, i%2 == 1), randomVTEP(r, i%2 == 1)
		port, vni, tos, hash := uint16(r.Uint32()), VNI(r.Uint32N(1<<24)), uint8(r.Uint32()), r.Uint32()
		f := randomFabric(r)
		tun := MakeTunnel(src, dst, macA, macB, port)
		l4 := EthernetLen + IPv4Len
		if src.Is6() {
			l4 = EthernetLen + IPv6Len
		}
		head := l4 + UDPLen + VXLANLen
		check(t, "length of the headers", tun.Headers(), head)
		if f.Shim {
			head += ShimLen
		}
		inner := randomBytes(r, EthernetLen+r.IntN(9000))
		frame := append(randomBytes(r, head), inner...) // headroom is never clean
		tun.Encap(frame, len(inner), vni, hash, tos, &f)
		frame = append(frame, randomBytes(r, r.IntN(20))...) // padding is not the inner frame's

		var d Decapped
		if reason := Decap(frame, port, &d); reason != drop.None {
			t.Fatalf("Decap: %v of % x", reason, frame[:head])
		}
		want := Decapped{
			Outer: Outer{
				Src: AddrOf(src), Dst: AddrOf(dst), Family: FamilyOf(src), TOS: tos, TTL: 64, Proto: ProtoUDP,
				L4: l4, L4End: head + len(inner),
			},
			VNI: vni, SrcPort: SourcePort(hash), Inner: head, End: head + len(inner), Fabric: f,
		}
		if d != want {
			t.Fatalf("Decap: %+v, want %+v", d, want)
		}
		if !bytes.Equal(frame[d.Inner:d.End], inner) {
			t.Fatal("the inner frame has changed")
		}
		if eth := Ethernet(frame); eth.Dst() != macB || eth.Src() != macA {
			t.Fatalf("outer header % x", frame[:head])
		}
		if src.Is6() {
			continue // the golden packets have the rest
		}
		ip := IPv4(frame[EthernetLen:])
		if !ip.DontFragment() || ip.ID() != 0 {
			t.Fatalf("outer header % x", frame[:head])
		}
		patched := ip.Checksum()
		ip.UpdateChecksum()
		check(t, "patched checksum", patched, ip.Checksum())
	}
}

// randomVTEP is an address that a VTEP may have.
func randomVTEP(r *rand.Rand, six bool) netip.Addr {
	if !six {
		return netip.AddrFrom4([4]byte(randomBytes(r, 4)))
	}
	b := [16]byte(randomBytes(r, 16))
	b[0] = 0x20 | b[0]&0x1f // global unicast (RFC 4291 §2.4)
	return netip.AddrFrom16(b)
}

func TestTunnelOfTwoFamilies(t *testing.T) {
	for _, c := range [][2]netip.Addr{{vtepA, vtepC}, {vtepC, vtepA}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("a tunnel from %v to %v", c[0], c[1])
				}
			}()
			MakeTunnel(c[0], c[1], macA, macB, DefaultPort)
		}()
	}
}

func randomBytes(r *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// outerIP brings total length and checksum in line with the frame.
func outerIP(frame []byte) []byte {
	ip := IPv4(frame[EthernetLen:])
	binary.BigEndian.PutUint16(ip[ip4Total:], uint16(len(ip)))
	ip.UpdateChecksum()
	return frame
}

func TestDecapRefuses(t *testing.T) {
	shim := &Fabric{Capable: true, Shim: true}
	good := func(f *Fabric) []byte { return encapped(tcp4Frame(1, 2, 3, 4, 20), 100, 7, 0, f) }
	// set makes a plain frame with bytes replaced from offset on, and the
	// outer checksum right.
	set := func(offset int, b ...byte) []byte {
		frame := good(nil)
		copy(frame[offset:], b)
		IPv4(frame[EthernetLen:]).UpdateChecksum()
		return frame
	}
	whole := len(good(nil)) - EthernetLen
	udpLen := byte(whole - IPv4Len)
	for _, c := range []struct {
		name  string
		frame []byte
		want  drop.Reason
	}{
		{"good", good(nil), drop.None},
		{"good with shim", good(shim), drop.None},
		{"empty", nil, drop.Truncated},
		{"half an Ethernet header", good(nil)[:13], drop.Truncated},
		{"Ethernet header only", good(nil)[:14], drop.Truncated},
		{"half an IPv4 header", good(nil)[:33], drop.Truncated},
		{"IPv6 EtherType", set(12, 0x86, 0xdd), drop.BadIPVersion},
		{"ARP EtherType", set(12, 0x08, 0x06), drop.BadEtherType},
		{"tagged", tagged(good(nil), EtherTypeVLAN, 1), drop.BadEtherType},
		{"version 6", func() []byte { f := good(nil); f[outIP] = 0x65; return f }(), drop.BadIPVersion},
		{"header of 16 bytes", func() []byte { f := good(nil); f[outIP] = 0x44; return f }(), drop.BadIPVersion},
		{"total length beyond the frame", set(outIP+2, 0, byte(whole+1)), drop.BadIPLength},
		{"total length of less than the header", set(outIP+2, 0, 19), drop.BadIPLength},
		{"frame cut", good(nil)[:whole], drop.BadIPLength},
		{"checksum", func() []byte { f := good(nil); f[outIP+10] ^= 1; return f }(), drop.BadIPChecksum},
		{"first fragment", set(outIP+6, 0x20, 0), drop.IPFragment},
		{"later fragment", set(outIP+6, 0, 1), drop.IPFragment},
		{"reserved IP flag", set(outIP+6, 0xc0, 0), drop.None},
		{"TCP", set(outIP+9, 6), drop.NotVXLAN},
		{"another port", set(outUDP+2, 0x12, 0xb6), drop.NotVXLAN},
		{"no room for UDP", outerIP(good(nil)[:outUDP+7]), drop.BadUDPLength},
		{"UDP length of less than its header", set(outUDP+4, 0, 7), drop.BadUDPLength},
		{"UDP length beyond IP", set(outUDP+4, 0, udpLen+1), drop.BadUDPLength},
		{"UDP length within IP", set(outUDP+4, 0, udpLen-1), drop.None},
		{"UDP checksum", set(outUDP+6, 1, 2), drop.None},
		{"half a VXLAN header", set(outUDP+4, 0, 15), drop.Truncated},
		{"no VNI flag", set(outVXLAN, 0), drop.BadVXLANFlags},
		{"reserved bits", set(outVXLAN+1, 0x80), drop.ReservedBits},
		{"half a shim", outerUDP(good(shim)[:Overhead+3]), drop.Truncated},
		{"inner frame of 13 bytes", set(outUDP+4, 0, UDPLen+VXLANLen+13), drop.BadInner},
		{"inner frame of 14 bytes", set(outUDP+4, 0, UDPLen+VXLANLen+14), drop.None},
		{"no inner frame behind the shim", outerUDP(good(shim)[:MaxOverhead+13]), drop.BadInner},
	} {
		t.Run(c.name, func(t *testing.T) {
			var d Decapped
			check(t, "reason", Decap(c.frame, DefaultPort, &d), c.want)
		})
	}
}

func TestDecapRefusesIPv6(t *testing.T) {
	shim := &Fabric{Capable: true, Shim: true}
	good := func(f *Fabric) []byte { return encapped6(tcp4Frame(1, 2, 3, 4, 20), 100, 7, 0, f) }
	set := func(offset int, b ...byte) []byte {
		frame := good(nil)
		copy(frame[offset:], b)
		return frame
	}
	// extended puts an extension header of 8 bytes between IPv6 and UDP.
	extended := func(kind byte) []byte {
		frame := good(nil)
		out := append(frame[:outUDP6:outUDP6], ProtoUDP, 0, 0, 0, 0, 0, 0, 0)
		out = append(out, frame[outUDP6:]...)
		out[outIP+ip6Next] = kind
		binary.BigEndian.PutUint16(out[outIP+ip6Payload:], uint16(len(out)-outUDP6))
		return out
	}
	payload := len(good(nil)) - outUDP6
	const src, dst = outIP + ip6Src, outIP + ip6Dst
	for _, c := range []struct {
		name  string
		frame []byte
		want  drop.Reason
	}{
		{"good", good(nil), drop.None},
		{"good with shim", good(shim), drop.None},
		{"Ethernet header only", good(nil)[:14], drop.Truncated},
		{"half an IPv6 header", good(nil)[:53], drop.Truncated},
		{"IPv6 header only", good(nil)[:54], drop.BadIPLength},
		{"IPv4 EtherType", set(12, 0x08, 0x00), drop.BadIPVersion},
		{"tagged", tagged(good(nil), EtherTypeVLAN, 1), drop.BadEtherType},
		{"version 4", set(outIP, 0x40), drop.BadIPVersion},
		{"payload beyond the frame", set(outIP+4, 0, byte(payload+1)), drop.BadIPLength},
		{"no payload", set(outIP+4, 0, 0), drop.BadUDPLength}, // nor a jumbogram (RFC 2675)
		{"frame cut", good(nil)[:len(good(nil))-1], drop.BadIPLength},
		{"traffic class and flow label", set(outIP, 0x6f, 0xff, 0xff, 0xff), drop.None},
		{"TCP", set(outIP+6, ProtoTCP), drop.NotVXLAN},
		{"ICMPv6", set(outIP+6, 58), drop.NotVXLAN},
		{"ESP", set(outIP+6, 50), drop.NotVXLAN},
		{"no next header", set(outIP+6, 59), drop.NotVXLAN},
		{"hop-by-hop options", extended(0), drop.ExtensionHeader},
		{"routing header", extended(43), drop.ExtensionHeader},
		{"authentication header", extended(51), drop.ExtensionHeader},
		{"destination options", extended(60), drop.ExtensionHeader},
		{"mobility header", extended(135), drop.ExtensionHeader},
		{"fragment", extended(ProtoFragment), drop.IPFragment},
		{"source link-local", set(src, 0xfe, 0x80), drop.BadIPAddress},
		{"source at the end of the link-local ones", set(src, 0xfe, 0xbf), drop.BadIPAddress},
		{"source behind the link-local ones", set(src, 0xfe, 0xc0), drop.None},
		{"source unique local", set(src, 0xfd, 0x00), drop.None},
		{"source multicast", set(src, 0xff, 0x02), drop.BadIPAddress},
		{"source unspecified", set(src, make([]byte, 16)...), drop.BadIPAddress},
		{"source loopback", set(src, append(make([]byte, 15), 1)...), drop.BadIPAddress},
		{"source IPv4-mapped", set(src, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 255, 0, 1), drop.BadIPAddress},
		{"destination link-local", set(dst, 0xfe, 0x80), drop.BadIPAddress},
		{"destination multicast", set(dst, 0xff, 0x02), drop.BadIPAddress},
		{"destination IPv4-mapped", set(dst, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 255, 0, 2), drop.BadIPAddress},
		{"another port", set(outUDP6+2, 0x12, 0xb6), drop.NotVXLAN},
		{"UDP length of less than its header", set(outUDP6+4, 0, 7), drop.BadUDPLength},
		{"UDP length beyond IP", set(outUDP6+4, 0, byte(payload+1)), drop.BadUDPLength},
		{"UDP length within IP", set(outUDP6+4, 0, byte(payload-1)), drop.None},
		{"UDP checksum", set(outUDP6+6, 1, 2), drop.None},
		{"half a VXLAN header", set(outUDP6+4, 0, 15), drop.Truncated},
		{"no VNI flag", set(outVXLAN6, 0), drop.BadVXLANFlags},
		{"reserved bits", set(outVXLAN6+1, 0x80), drop.ReservedBits},
		{"inner frame of 13 bytes", set(outUDP6+4, 0, UDPLen+VXLANLen+13), drop.BadInner},
		{"inner frame of 14 bytes", set(outUDP6+4, 0, UDPLen+VXLANLen+14), drop.None},
	} {
		t.Run(c.name, func(t *testing.T) {
			var d Decapped
			check(t, "reason", Decap(c.frame, DefaultPort, &d), c.want)
		})
	}
}

// outerUDP brings UDP length, total length and checksum in line with the frame.
func outerUDP(frame []byte) []byte {
	binary.BigEndian.PutUint16(frame[outUDP+4:], uint16(len(frame)-outUDP))
	return outerIP(frame)
}

// TestDecapOptions: IPv4 options move what follows, and count in the checksum.
func TestDecapOptions(t *testing.T) {
	plain := encapped(tcp4Frame(1, 2, 3, 4, 20), 100, 7, 0, nil)
	for words := range 11 {
		frame := append([]byte(nil), plain[:outUDP]...)
		for i := range words * 4 {
			frame = append(frame, byte(i*37+1))
		}
		frame = append(frame, plain[outUDP:]...)
		frame[outIP] = 0x45 + byte(words)
		outerIP(frame)
		var d Decapped
		check(t, "reason", Decap(frame, DefaultPort, &d), drop.None)
		check(t, "inner offset", d.Inner, Overhead+4*words)
		if !bytes.Equal(frame[d.Inner:d.End], plain[Overhead:]) {
			t.Errorf("%d option words: wrong inner frame", words)
		}
		if words > 0 {
			frame[outUDP] ^= 0x10
			check(t, "reason with a broken option", Decap(frame, DefaultPort, &d), drop.BadIPChecksum)
		}
	}
}

// TestIncrementalChecksum: patched checksums are what a full sum gives, for
// every TTL and TOS on random headers.
func TestIncrementalChecksum(t *testing.T) {
	r := seeded(t)
	for range 300 {
		ip := IPv4(randomBytes(r, 60))
		ip[0] = 0x45 + byte(r.IntN(11))
		ip.UpdateChecksum()
		same := func(what string) {
			t.Helper()
			if !ip.ChecksumOK() {
				t.Fatalf("checksum does not hold after %s: % x", what, ip)
			}
			got := ip.Checksum()
			ip.UpdateChecksum()
			if got != ip.Checksum() {
				t.Fatalf("checksum %#04x after %s, want %#04x", got, what, ip.Checksum())
			}
		}
		for ttl := ip.TTL(); ip.TTL() > 0; ttl-- {
			ip.DecTTL()
			same("DecTTL")
			check(t, "TTL", ip.TTL(), ttl-1)
		}
		before := append(IPv4(nil), ip...)
		ip.DecTTL()
		if !bytes.Equal(before, ip) {
			t.Fatal("DecTTL changed a header without TTL")
		}
		for range 256 {
			ip.SetTOS(uint8(r.Uint32()))
			same("SetTOS")
		}
	}
}

// TestSourcePort: sequential and random hashes alike spread over the whole
// dynamic range, and so do hashes that agree in their top bits, which is what
// is left once those have chosen the uplink.
func TestSourcePort(t *testing.T) {
	r := seeded(t)
	for _, c := range []struct {
		name string
		hash func(i uint32) uint32
	}{
		{"sequential", func(i uint32) uint32 { return i }},
		{"high bits only", func(i uint32) uint32 { return i << 16 }},
		{"random", func(uint32) uint32 { return r.Uint32() }},
		{"random with the top 4 bits fixed", func(uint32) uint32 { return r.Uint32()>>4 | 0xa<<28 }},
		{"random with the low 4 bits fixed", func(uint32) uint32 { return r.Uint32()<<4 | 0xa }},
	} {
		const n = 1 << 16
		used := map[uint16]bool{}
		buckets := make([]int, 16)
		for i := range uint32(n) {
			p := SourcePort(c.hash(i))
			if p < 49152 {
				t.Fatalf("%s: port %d is not dynamic", c.name, p)
			}
			used[p] = true
			buckets[p&15]++
		}
		// 2^16 draws leave e^-4 of 2^14 ports unused, 300 or so.
		if len(used) < 15900 {
			t.Errorf("%s: only %d ports are used", c.name, len(used))
		}
		uniform(t, c.name, buckets, chance)
	}
}

// TestFlowLabel: flow labels tell flows apart as well as ports do, and stay in their field.
func TestFlowLabel(t *testing.T) {
	r := seeded(t)
	buckets := make([]int, 16)
	for i := range uint32(1 << 16) {
		if l := flowLabel(i << 16); l >= 1<<20 {
			t.Fatalf("label %#x", l)
		}
		buckets[flowLabel(r.Uint32())&15]++
	}
	uniform(t, "labels", buckets, chance)
	if flowLabel(1<<28) == flowLabel(0) {
		t.Error("the hash's upper bits do not count")
	}
}

// chance is a bound for [uniform] over 16 buckets that equal odds exceed once in
// some 10^7 tests: chi-square has mean 15 and variance 30 there.
const chance = 60

// uniform fails when the chi-square of the counts against equal odds is above
// bound.
func uniform(t *testing.T, what string, counts []int, bound float64) {
	t.Helper()
	total := 0
	for _, c := range counts {
		total += c
	}
	want := float64(total) / float64(len(counts))
	chi := 0.0
	for _, c := range counts {
		chi += (float64(c) - want) * (float64(c) - want) / want
	}
	if chi > bound {
		t.Errorf("%s: chi-square %.1f over %d buckets, above %.0f: %v", what, chi, len(counts), bound, counts)
	}
}
