package dataplane

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/gaissmai/bart"

	"github.com/loomfabric/loom/internal/drop"
	"github.com/loomfabric/loom/overlay"
)

var (
	own6  = netip.MustParseAddr("2001:db8::1")
	vtep6 = netip.MustParseAddr("2001:db8::2")
)

// leafTables6 are leafTables of a leaf at own6, whose first peer is vtep6.
func leafTables6() *Tables {
	t := leafTables()
	t.Peers[0].VTEP, t.Peers[1].VTEP = vtep6, vtep6.Next()
	return t
}

func leafConfig6() Config {
	c := leafConfig()
	c.VTEP = own6
	return c
}

// TestTunnelFitsCacheLines: an IPv4 frame reads one cache line of its path, whatever IPv6
// adds.
func TestTunnelFitsCacheLines(t *testing.T) {
	if n := unsafe.Sizeof(tunnel{}); n != 128 {
		t.Errorf("a tunnel has %d bytes, want 128: change what pads it", n)
	}
	if at := unsafe.Offsetof(tunnel{}.header) + unsafe.Sizeof(overlay.Tunnel{}) - (overlay.Overhead6 - overlay.Overhead); at > 64 {
		t.Errorf("the header of IPv4 ends at %d, behind the first cache line", at)
	}
}

// TestLeavesOverIPv6: two leaves that differ from those of other tests in the family of
// their VTEPs alone do the same: learn, prove themselves, mark, seal, put in order.
func TestLeavesOverIPv6(t *testing.T) {
	for _, scheme := range []string{"ecmp", "conga", "conweave"} {
		for _, keys := range []overlay.Keys{nil, {{1, 2}}} {
			t.Run(fmt.Sprint(scheme, keys), func(t *testing.T) {
				f := newTwoLeavesAt(t, own6.String(), vtep6.String(), func(c *Config) { c.Scheme, c.Keys = scheme, keys })
				f.sayHello()
				if a, b := f.a.w.consumed, f.b.w.consumed; a != 4 || b != 4 {
					t.Errorf("HELLOs consumed: %d, %d", a, b)
				}
				in := udp4(hostB, hostA, 0, 1, 100)
				ect0(in)
				out := f.a.send(acc0, in)
				sent := append(out[up0], out[up1]...)
				if len(sent) != 1 {
					t.Fatalf("sent %d packets; dropped %v", len(sent), f.a.drops())
				}
				d, inner := unwrap(t, sent[0])
				ip := overlay.IPv6(sent[0][overlay.EthernetLen:])
				switch {
				case d.Src != overlay.AddrOf(own6), d.Dst != overlay.AddrOf(vtep6), d.TTL != 64, d.TOS != uint8(overlay.ECT0):
					t.Errorf("outer header %+v", d.Outer)
				case !d.Fabric.Capable, d.Fabric.Shim != (scheme == "conweave"), !bytes.Equal(inner, in):
					t.Errorf("inside %+v and %d bytes", d.Fabric, len(inner))
				case binary.BigEndian.Uint16(sent[0][60:]) != 0, ip.PayloadLen() != len(sent[0])-54:
					t.Errorf("UDP checksum or payload length in % x", sent[0][:70])
				}
				// A spine's mark comes through to the host (RFC 6040).
				overlay.SetCE(sent[0], overlay.EthernetLen, overlay.FlagIPv6)
				overlay.Ethernet(sent[0]).SetDst(ownMAC)
				got := f.b.send(up0, sent[0])
				if len(got[acc0]) != 1 || overlay.IPv4(got[acc0][0][14:]).TOS() != uint8(overlay.CE) || !checksumOK(overlay.IPv4(got[acc0][0][14:])) {
					t.Errorf("the host got %d frames; dropped %v", len(got[acc0]), f.b.drops())
				}
				if d := f.a.drops(); len(d) > 0 {
					t.Errorf("drops: %v", d)
				}
			})
		}
	}
}

// ect0 makes a frame of udp4 one of a transport that does ECN.
func ect0(b []byte) {
	b[15] = uint8(overlay.ECT0)
	fixChecksum(b[14:])
}

// TestLinksMarkIPv6: a link raises CE in the VXLAN header and in the outer IPv6 header.
func TestLinksMarkIPv6(t *testing.T) {
	cfg := leafConfig6()
	for i := range cfg.Ports {
		cfg.Ports[i].Egress = EgressConfig{QueueBytes: 1 << 20, LinkRate: 1e6, Kmin: 1, Kmax: 1000, Pmax: 1}
	}
	r := newRig(t, cfg, leafTables6())
	r.prove(0)
	r.send(up0, wrap(vtep6, own6, 100, udp4(bcast, hostB, 0, 1, 10), nil))
	in := udp4(hostB, hostA, 0, 1, 1000)
	ect0(in)
	raised, marked := 0, 0
	for range 40 {
		out := r.send(acc0, in, in, in)
		for _, b := range slices.Concat(out[up0], out[up1]) {
			d, inner := unwrap(t, b)
			if d.Fabric.CE > 0 {
				raised++
			}
			if d.TOS&3 == uint8(overlay.CE) {
				marked++
			}
			if !bytes.Equal(inner, in) {
				t.Fatal("a mark was written into the inner frame")
			}
		}
	}
	if raised == 0 || marked == 0 {
		t.Errorf("CE was raised in %d headers, and marked in %d; dropped %v", raised, marked, r.drops())
	}
}

// TestLeafDropsIPv6ByName: what else than VXLAN of a peer comes over IPv6.
func TestLeafDropsIPv6ByName(t *testing.T) {
	inner := udp4(hostA, hostB, 0, 1, 10)
	edit := func(f func(b []byte)) []byte {
		b := wrap(vtep6, own6, 100, inner, nil)
		f(b)
		return b
	}
	for _, c := range []struct {
		name string
		b    []byte
		want drop.Reason
	}{
		{"IPv4 VTEPs", wrap(vtep2, own(), 100, inner, nil), drop.NotLocalVTEP},
		{"another VTEP", wrap(vtep6, netip.MustParseAddr("2001:db8::9"), 100, inner, nil), drop.NotLocalVTEP},
		{"unknown", wrap(netip.MustParseAddr("2001:db8::9"), own6, 100, inner, nil), drop.VTEPUnknown},
		{"looped", wrap(own6, own6, 100, inner, nil), drop.VTEPLooped},
		{"link-local", wrap(netip.MustParseAddr("fe80::2"), own6, 100, inner, nil), drop.BadIPAddress},
		{"mapped", edit(func(b []byte) { copy(b[22:], []byte{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 2}) }), drop.BadIPAddress},
		{"extension header", edit(func(b []byte) { b[20] = 60 }), drop.ExtensionHeader},
		{"fragment", edit(func(b []byte) { b[20] = 44 }), drop.IPFragment},
		{"cut", edit(func([]byte) {})[:80], drop.BadIPLength},
		{"another MAC", edit(func(b []byte) { b[5]++ }), drop.NotOurMAC},
		{"unknown VNI", wrap(vtep6, own6, 999, inner, nil), drop.VNIUnknown},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, leafConfig6(), leafTables6())
			r.send(up0, c.b)
			if got := r.drops(); len(got) != 1 || got[c.want] != 1 {
				t.Errorf("dropped %v, want %v", got, c.want)
			}
		})
	}
	// A frame that fits between IPv4 VTEPs may be too long between those of IPv6.
	tables := leafTables6()
	for i := range tables.Ports {
		tables.Ports[i].MTU = 1500
	}
	tables.Ports[up0].MTU, tables.Ports[up1].MTU = 1569, 1569
	r := newRig(t, leafConfig6(), tables)
	r.send(up0, wrap(vtep6, own6, 100, udp4(bcast, hostB, 0, 1, 10), nil))
	r.send(acc0, udp4(hostB, hostA, 0, 1, 1500-28))
	if got := r.drops(); len(got) != 1 || got[drop.TooBig] != 1 {
		t.Errorf("a byte too long: dropped %v", got)
	}
	tables = leafTables6()
	tables.Ports[up0].MTU, tables.Ports[up1].MTU = 1570, 1570
	r.publish(tables)
	if out := r.send(acc0, udp4(hostB, hostA, 0, 1, 1500-28)); len(out[up0])+len(out[up1]) != 1 {
		t.Errorf("with MTU 1570: dropped %v", r.drops())
	}
}

// TestOverheadOfIPv6: an uplink needs 20 bytes more than for IPv4, and a peer of the other
// family is refused.
func TestOverheadOfIPv6(t *testing.T) {
	four, six := leafConfig(), leafConfig6()
	four.VTEP = own()
	for _, scheme := range []string{"ecmp", "conweave"} {
		four.Scheme, six.Scheme = scheme, scheme
		if six.Overhead() != four.Overhead()+20 {
			t.Errorf("%s: overhead %d, and %d for IPv4", scheme, six.Overhead(), four.Overhead())
		}
	}
	for _, c := range []struct {
		cfg    Config
		tables *Tables
	}{{six, leafTables()}, {four, leafTables6()}} {
		_, err := compile(&c.cfg, layoutOf(t, &c.cfg), c.tables)
		if err == nil || !strings.Contains(err.Error(), "two families") {
			t.Errorf("VTEP %v, peers %v: %v", c.cfg.VTEP, c.tables.Peers[0].VTEP, err)
		}
	}
}

// spineTables6 are spineTables with routes of both families.
func spineTables6() *Tables {
	t := spineTables()
	for p, g := range map[string]uint32{"2001:db8::1/128": 3, "2001:db8::2/128": 0, "2001:db8::/64": 1, "2001:db8:1::/64": 2} {
		t.Routes.Insert(netip.MustParsePrefix(p), g)
	}
	return t
}

// viaSpine6 is viaSpine for IPv6.
func viaSpine6(dst netip.Addr, flow int, f *overlay.Fabric) []byte {
	b := wrap(own6, dst, 100, udp4(hostA, hostB, 0, uint16(flow), 64), f)
	b[54], b[55] = 0xc0|byte(flow>>8), byte(flow)
	return b
}

func TestSpineRoutesIPv6(t *testing.T) {
	r := newRig(t, spineConfig(), spineTables6())
	in := viaSpine6(netip.MustParseAddr("2001:db8::3"), 1, nil)
	out := r.send(dn0, in)
	if len(out[dn2]) != 1 {
		t.Fatalf("dropped %v", r.drops())
	}
	want := bytes.Clone(in)
	copy(want, []byte{2, 3, 0, 0, 0, 2})
	copy(want[6:], ownMAC[:])
	want[21] = 63
	if !bytes.Equal(out[dn2][0], want) {
		t.Errorf("forwarded\n% x, want\n% x", out[dn2][0], want)
	}
	for sel := range uint8(4) {
		out := r.send(dn2, viaSpine6(vtep6, int(sel), &overlay.Fabric{Capable: true, Path: overlay.MakePathID(1, sel)}))
		if len(out[sel%2]) != 1 {
			t.Fatalf("selector %d did not take link %d: %v", sel, sel%2, r.drops())
		}
	}
	second := 0
	for flow := range 512 { // plain packets go by the outer 5-tuple
		second += len(r.send(dn2, viaSpine6(vtep6, flow, nil))[dn1])
	}
	if second < 192 || second > 320 {
		t.Errorf("%d of 512 took the second link", second)
	}
}

func TestSpineDropsIPv6ByName(t *testing.T) {
	to := netip.MustParseAddr("2001:db8::3")
	edit := func(at int, v byte) []byte {
		b := viaSpine6(to, 1, nil)
		b[at] = v
		return b
	}
	for _, c := range []struct {
		name string
		b    []byte
		want drop.Reason
	}{
		{"hop limit 1", edit(21, 1), drop.TTLExpired},
		{"hop limit 0", edit(21, 0), drop.TTLExpired},
		{"version", edit(14, 0x45), drop.BadIPVersion},
		{"extension header", edit(20, 0), drop.ExtensionHeader},
		{"fragment", edit(20, 44), drop.IPFragment},
		{"link-local source", wrap(netip.MustParseAddr("fe80::1"), to, 100, udp4(hostA, hostB, 0, 1, 1), nil), drop.BadIPAddress},
		{"no route", viaSpine6(netip.MustParseAddr("2001:db8:9::1"), 1, nil), drop.NoRoute},
		{"route without next hop", viaSpine6(netip.MustParseAddr("2001:db8:1::1"), 1, nil), drop.NoRoute},
		{"source from elsewhere", wrap(netip.MustParseAddr("2001:db8::3"), vtep6, 100, udp4(hostA, hostB, 0, 1, 1), nil), drop.ReversePath},
		{"too big", wrap(own6, to, 100, udp4(hostA, hostB, 0, 1, 1600), nil), drop.TooBig},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, spineConfig(), spineTables6())
			for range 2 { // once more through the route cache
				r.send(dn0, c.b)
			}
			if got := r.drops(); len(got) != 1 || got[c.want] != 2 {
				t.Errorf("dropped %v, want two %v", got, c.want)
			}
		})
	}
}

// TestSpineLookupAgainstNaive: random routes and destinations of both families, in one
// table, with and without the cache.
func TestSpineLookupAgainstNaive(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 6))
		random := func() netip.Addr {
			n := [3]byte{byte(rng.IntN(3)), byte(rng.IntN(3)), byte(rng.IntN(5))}
			if rng.IntN(2) == 0 {
				return netip.AddrFrom4([4]byte{10, n[0], n[1], n[2]})
			}
			return netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 0, 0, n[0], n[1], 0, 0, 0, 0, 0, 0, n[1], n[2]})
		}
		routes := make(map[netip.Prefix]uint32)
		for range 40 {
			a := random()
			routes[netip.PrefixFrom(a, a.BitLen()-[]int{0, 0, 1, 2, 8, 16, a.BitLen()}[rng.IntN(7)]).Masked()] = uint32(rng.IntN(4))
		}
		tables := spineTables()
		tables.Routes = new(bart.Table[uint32])
		for p, g := range routes {
			tables.Routes.Insert(p, g)
		}
		r := newRig(t, spineConfig(), tables)
		s := r.w.spine
		for range 3000 {
			dst, want := random(), uint32(noGroup)
			longest := -1
			for p, g := range maps.All(routes) {
				if p.Contains(dst) && p.Bits() > longest {
					longest, want = p.Bits(), g
				}
			}
			if got := s.lookup(overlay.AddrOf(dst)); got != want {
				t.Fatalf("seed %d: %v is routed to group %d, want %d: %v", seed, dst, int32(got), int32(want), routes)
			}
		}
	}
}

// TestIPv6AllocatesNothing: neither at a leaf, both ways, nor at a spine.
func TestIPv6AllocatesNothing(t *testing.T) {
	leaf, spine := newRig(t, leafConfig6(), leafTables6()), newRig(t, spineConfig(), spineTables6())
	leaf.send(up0, wrap(vtep6, own6, 100, udp4(bcast, hostB, 0, 1, 10), nil))
	leaf.send(acc0, udp4(bcast, hostA, 0, 1, 10))
	for _, c := range []struct {
		name string
		r    *rig
		port PortID
		b    []byte
	}{
		{"into the fabric", leaf, acc0, udp4(hostB, hostA, 0, 1, 100)},
		{"from the fabric", leaf, up0, wrap(vtep6, own6, 100, udp4(hostA, hostB, 0, 1, 100), nil)},
		{"spine", spine, dn2, viaSpine6(vtep6, 1, nil)},
	} {
		for i := range c.r.links {
			c.r.links[i].keep = false
		}
		work := func() {
			c.r.links[c.port].put(c.b)
			for c.r.w.round(c.r.now) > 0 {
			}
			c.r.now = c.r.now.Add(time.Millisecond)
		}
		for range 2000 {
			work()
		}
		if n := testing.AllocsPerRun(500, work); n != 0 {
			t.Errorf("%s: %v allocations a burst", c.name, n)
		}
		if d := c.r.drops(); len(d) > 0 {
			t.Errorf("%s: drops %v", c.name, d)
		}
	}
}
