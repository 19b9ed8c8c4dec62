package dataplane

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"testing"
	"time"

	"github.com/loomfabric/loom/internal/drop"
	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/overlay"
	"github.com/loomfabric/loom/reorder"
)

// The leaf that most tests use: three access ports, two uplinks, two peers.
const (
	acc0 = PortID(iota) // VNI 100 untagged, VLAN 20 in VNI 200
	acc1                // VNI 100 untagged, VLAN 30 in VNI 200
	acc2                // VNI 300 untagged
	up0
	up1
)

var (
	hostA  = overlay.MAC{2, 0, 0, 0, 0, 0xa}
	hostB  = overlay.MAC{2, 0, 0, 0, 0, 0xb}
	hostC  = overlay.MAC{2, 0, 0, 0, 0, 0xc}
	bcast  = overlay.MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	ownMAC = overlay.MAC{2, 1, 0, 0, 0, 1}
	gwMAC  = overlay.MAC{2, 2, 0, 0, 0, 1}
	vtep2  = netip.MustParseAddr("10.0.0.2")
	vtep3  = netip.MustParseAddr("10.0.0.3")
)

func leafConfig() Config {
	return Config{Role: Leaf, Ports: []PortConfig{
		{Name: "acc0", Kind: Access},
		{Name: "acc1", Kind: Access},
		{Name: "acc2", Kind: Access},
		{Name: "up0", Kind: Uplink},
		{Name: "up1", Kind: Uplink},
	}}
}

func leafTables() *Tables {
	t := &Tables{
		Hops: []Hop{
			{Port: up0, Gateway: netip.MustParseAddr("192.168.0.1"), MAC: gwMAC, Resolved: true},
			{Port: up1, Gateway: netip.MustParseAddr("192.168.1.1"), MAC: gwMAC, Resolved: true},
		},
		Peers: []Peer{{VTEP: vtep2, Hops: []HopID{0, 1}}, {VTEP: vtep3, Hops: []HopID{0, 1}}},
		VNIs: []VNI{
			{VNI: 100, Flood: []PeerID{0, 1}},
			{VNI: 200, Flood: []PeerID{0}},
			{VNI: 300},
		},
		Bindings: []Binding{{acc0, 0, 0}, {acc0, 20, 1}, {acc1, 0, 0}, {acc1, 30, 1}, {acc2, 0, 2}},
	}
	for i := range 5 {
		mtu := 1500
		if i >= int(up0) {
			mtu = 1600
		}
		t.Ports = append(t.Ports, PortState{Ifindex: i + 1, Up: true, MAC: ownMAC, MTU: mtu})
	}
	return t
}

// udp4 is a UDP packet in an Ethernet frame, with a tag when vid is not 0.
func udp4(dst, src overlay.MAC, vid uint16, sport uint16, payload int) []byte {
	b := append(append([]byte(nil), dst[:]...), src[:]...)
	if vid != 0 {
		b = binary.BigEndian.AppendUint16(append(b, 0x81, 0), vid)
	}
	b = append(b, 8, 0)
	ip := len(b)
	b = append(b, 0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0, 172, 16, 0, 1, 172, 16, 0, 2)
	binary.BigEndian.PutUint16(b[ip+2:], uint16(28+payload))
	b = binary.BigEndian.AppendUint16(b, sport)
	b = append(b, 0, 53, 0, 0, 0, 0)
	binary.BigEndian.PutUint16(b[len(b)-4:], uint16(8+payload))
	fixChecksum(b[ip:])
	for i := range payload {
		b = append(b, byte(i))
	}
	return b
}

// wrap puts inner into a VXLAN packet from src to dst.
func wrap(src, dst netip.Addr, vni overlay.VNI, inner []byte, f *overlay.Fabric) []byte {
	t := overlay.MakeTunnel(src, dst, gwMAC, ownMAC, overlay.DefaultPort)
	n := t.Headers()
	if f != nil && f.Shim {
		n += overlay.ShimLen
	}
	b := append(make([]byte, n), inner...)
	t.Encap(b, len(inner), vni, 12345, 0, f)
	return b
}

func unwrap(t *testing.T, b []byte) (overlay.Decapped, []byte) {
	t.Helper()
	var d overlay.Decapped
	if r := overlay.Decap(b, overlay.DefaultPort, &d); r != drop.None {
		t.Fatalf("sent into the fabric what cannot be decapsulated: %v", r)
	}
	return d, b[d.Inner:d.End]
}

// vxlanAt4 is where packets between VTEPs of IPv4 have their VXLAN header.
const vxlanAt4 = overlay.Overhead - overlay.VXLANLen

func own() netip.Addr { return netip.MustParseAddr(testVTEP) }

func TestLeafFloodsUnknownUnicastEverywhereButBack(t *testing.T) {
	r := newRig(t, leafConfig(), leafTables())
	in := udp4(hostB, hostA, 0, 1000, 100)
	out := r.send(acc0, in)
	if len(out[acc0]) != 0 || len(out[acc2]) != 0 {
		t.Errorf("flooded back or into another VNI: %d, %d frames", len(out[acc0]), len(out[acc2]))
	}
	if len(out[acc1]) != 1 || !bytes.Equal(out[acc1][0], in) {
		t.Errorf("local member got %d frames", len(out[acc1]))
	}
	to := make(map[overlay.Addr]int)
	for _, b := range append(out[up0], out[up1]...) {
		d, inner := unwrap(t, b)
		to[d.Dst]++
		if d.VNI != 100 || !bytes.Equal(inner, in) || d.Src != overlay.AddrOf(own()) {
			t.Errorf("fabric got VNI %d from %x with %d bytes", d.VNI, d.Src, len(inner))
		}
		if eth := overlay.Ethernet(b); overlay.MAC(eth[0:6]) != gwMAC || overlay.MAC(eth[6:12]) != ownMAC {
			t.Errorf("outer addresses %v < %v", overlay.MAC(eth[0:6]), overlay.MAC(eth[6:12]))
		}
	}
	if to[overlay.AddrOf(vtep2)] != 1 || to[overlay.AddrOf(vtep3)] != 1 || len(to) != 2 {
		t.Errorf("replicated to %v, want once to each peer", to)
	}
	if got := r.w.made; got != 2 {
		t.Errorf("copied %d frames, want 2: the last destination gets the frame itself", got)
	}
}

func TestLeafLearnsFromBothSides(t *testing.T) {
	r := newRig(t, leafConfig(), leafTables())
	r.send(up0, wrap(vtep2, own(), 100, udp4(hostA, hostB, 0, 1, 10), nil))
	out := r.send(acc0, udp4(hostB, hostA, 0, 1000, 100))
	if n := len(out[up0]) + len(out[up1]); n != 1 || len(out[acc1]) != 0 {
		t.Fatalf("known unicast left %d times into the fabric, %d times locally", n, len(out[acc1]))
	}
	back := udp4(hostA, hostB, 0, 2, 10)
	out = r.send(up1, wrap(vtep2, own(), 100, back, nil))
	if len(out[acc0]) != 1 || !bytes.Equal(out[acc0][0], back) || len(out[acc1]) != 0 {
		t.Fatalf("answer reached acc0 %d times, acc1 %d times", len(out[acc0]), len(out[acc1]))
	}
}

func TestLeafMovesAddressesLastSeenWins(t *testing.T) {
	r := newRig(t, leafConfig(), leafTables())
	r.send(acc1, udp4(bcast, hostB, 0, 1, 10))
	r.send(up0, wrap(vtep3, own(), 100, udp4(bcast, hostB, 0, 1, 10), nil))
	out := r.send(acc0, udp4(hostB, hostA, 0, 1, 10))
	if len(out[acc1]) != 0 || len(out[up0])+len(out[up1]) != 1 {
		t.Errorf("frame for a moved address went to the old place")
	}
	if r.w.leaf.stats.FDBMoved != 1 {
		t.Errorf("counted %d moves, want 1", r.w.leaf.stats.FDBMoved)
	}
}

func TestLeafSwitchesLocallyAndTranslatesVLANs(t *testing.T) {
	r := newRig(t, leafConfig(), leafTables())
	r.send(acc1, udp4(bcast, hostB, 30, 1, 10))
	out := r.send(acc0, udp4(hostB, hostA, 20, 7, 33))
	if want := udp4(hostB, hostA, 30, 7, 33); len(out[acc1]) != 1 || !bytes.Equal(out[acc1][0], want) {
		t.Fatalf("acc1 got %x, want %x", out[acc1], want)
	}
	if len(out[up0])+len(out[up1]) != 0 {
		t.Error("a local frame went into the fabric")
	}
	// Into the fabric the tag stays behind (RFC 7348 §6.1).
	r.send(up0, wrap(vtep2, own(), 200, udp4(bcast, hostC, 0, 1, 10), nil))
	out = r.send(acc0, udp4(hostC, hostA, 20, 7, 33))
	sent := append(out[up0], out[up1]...)
	if len(sent) != 1 {
		t.Fatalf("sent %d frames", len(sent))
	}
	if d, inner := unwrap(t, sent[0]); d.VNI != 200 || !bytes.Equal(inner, udp4(hostC, hostA, 0, 7, 33)) {
		t.Errorf("VNI %d, inner %x", d.VNI, inner)
	}
	// And comes back as the destination port has it.
	out = r.send(up1, wrap(vtep2, own(), 200, udp4(hostA, hostC, 0, 9, 12), nil))
	if want := udp4(hostA, hostC, 20, 9, 12); len(out[acc0]) != 1 || !bytes.Equal(out[acc0][0], want) {
		t.Errorf("acc0 got %x, want %x", out[acc0], want)
	}
}

func TestLeafDropsByName(t *testing.T) {
	good := udp4(hostB, hostA, 0, 1, 10)
	edit := func(b []byte, f func([]byte)) []byte {
		b = append([]byte(nil), b...)
		f(b)
		return b
	}
	outer := func(f func([]byte)) []byte {
		return edit(wrap(vtep2, own(), 100, good, nil), func(b []byte) {
			f(b)
			fixChecksum(b[14:])
		})
	}
	for _, c := range []struct {
		name string
		in   PortID
		b    []byte
		want drop.Reason
	}{
		{"runt from host", acc0, make([]byte, 13), drop.Truncated},
		{"group source", acc0, udp4(hostB, bcast, 0, 1, 10), drop.SourceMulticast},
		{"zero source", acc0, udp4(hostB, overlay.MAC{}, 0, 1, 10), drop.SourceMulticast},
		{"VLAN without VNI", acc0, udp4(hostB, hostA, 21, 1, 10), drop.VLANUnknown},
		{"alone in its VNI", acc2, good, drop.NoMember},
		{"runt from fabric", up0, make([]byte, 13), drop.Truncated},
		{"outer cut in the header", up0, wrap(vtep2, own(), 100, good, nil)[:30], drop.Truncated},
		{"outer cut short", up0, wrap(vtep2, own(), 100, good, nil)[:40], drop.BadIPLength},
		{"outer IPv6 EtherType", up0, outer(func(b []byte) { b[12] = 0x86; b[13] = 0xdd }), drop.BadIPVersion},
		{"outer version 5", up0, outer(func(b []byte) { b[14] = 0x55 }), drop.BadIPVersion},
		{"outer checksum", up0, edit(wrap(vtep2, own(), 100, good, nil), func(b []byte) { b[24] ^= 1 }), drop.BadIPChecksum},
		{"outer fragment", up0, outer(func(b []byte) { b[20] = 0x20 }), drop.IPFragment},
		{"outer too long", up0, outer(func(b []byte) { b[16] = 0x20 }), drop.BadIPLength},
		{"other UDP port", up0, outer(func(b []byte) { b[37]++ }), drop.NotVXLAN},
		{"UDP too long", up0, outer(func(b []byte) { b[38] = 0x20 }), drop.BadUDPLength},
		{"no VNI flag", up0, outer(func(b []byte) { b[42] = 0 }), drop.BadVXLANFlags},
		{"reserved bits", up0, outer(func(b []byte) { b[43] = 1 }), drop.ReservedBits},
		{"spoofed VTEP", up0, wrap(netip.MustParseAddr("10.0.0.9"), own(), 100, good, nil), drop.VTEPUnknown},
		{"own VTEP", up0, wrap(own(), own(), 100, good, nil), drop.VTEPLooped},
		{"not for us", up0, wrap(vtep2, vtep3, 100, good, nil), drop.NotLocalVTEP},
		{"VNI not here", up0, wrap(vtep2, own(), 101, good, nil), drop.VNIUnknown},
		{"control opcode", up0, wrap(vtep2, own(), 100, good, &overlay.Fabric{Capable: true, Scheme: reorder.SchemeID, Opcode: overlay.OpClear}), drop.Control},
		{"unknown opcode", up0, wrap(vtep2, own(), 100, good, &overlay.Fabric{Capable: true, Opcode: overlay.OpExtension}), drop.BadOpcode},
		{"inner tag", up0, wrap(vtep2, own(), 300, udp4(bcast, hostB, 5, 1, 10), nil), drop.InnerVLAN},
		{"inner group source", up0, wrap(vtep2, own(), 100, udp4(hostA, bcast, 0, 1, 10), nil), drop.SourceMulticast},
		{"too long for the host", up0, wrap(vtep2, own(), 300, udp4(bcast, hostB, 0, 1, 1501-28), nil), drop.TooBig},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, leafConfig(), leafTables())
			out := r.send(c.in, c.b)
			for p := range out {
				if len(out[p]) != 0 {
					t.Errorf("port %d sent %d frames", p, len(out[p]))
				}
			}
			if got := r.drops(); len(got) != 1 || got[c.want] != 1 {
				t.Errorf("dropped %v, want one %v", got, c.want)
			}
		})
	}
}

func TestLeafNeverSendsFromFabricToFabric(t *testing.T) {
	r := newRig(t, leafConfig(), leafTables())
	r.send(up0, wrap(vtep2, own(), 100, udp4(bcast, hostB, 0, 1, 10), nil))
	out := r.send(up0, wrap(vtep3, own(), 100, udp4(hostB, hostC, 0, 1, 10), nil))
	if len(out[up0])+len(out[up1]) != 0 || r.drops()[drop.SplitHorizon] != 1 {
		t.Errorf("drops: %v", r.drops())
	}
	out = r.send(up0, wrap(vtep3, own(), 100, udp4(bcast, hostC, 0, 1, 10), nil))
	if len(out[up0])+len(out[up1]) != 0 || len(out[acc0]) != 1 || len(out[acc1]) != 1 {
		t.Errorf("broadcast from the fabric: %d back into it, %d and %d to hosts", len(out[up0])+len(out[up1]), len(out[acc0]), len(out[acc1]))
	}
}

func TestLeafLimitsStorms(t *testing.T) {
	tables := leafTables()
	tables.VNIs[0].Storm = StormLimit{Rate: 100, Burst: 5}
	r := newRig(t, leafConfig(), tables)
	storm := func() (passed int) {
		for range 20 {
			passed += len(r.send(acc0, udp4(bcast, hostA, 0, 1, 10))[acc1])
		}
		return passed
	}
	if got := storm(); got != 5 {
		t.Errorf("%d frames passed at once, the burst is 5", got)
	}
	r.now = r.now.Add(20 * time.Millisecond) // 2 frames at 100/s
	if got := storm(); got != 2 {
		t.Errorf("%d frames passed after 20 ms, want 2", got)
	}
	if got := r.drops()[drop.StormLimit]; got != 33 {
		t.Errorf("counted %d, want 33", got)
	}
}

func TestLeafSpreadsFlowsAndKeepsEach(t *testing.T) {
	r := newRig(t, leafConfig(), leafTables())
	r.send(up0, wrap(vtep2, own(), 100, udp4(bcast, hostB, 0, 1, 10), nil))
	first := make([]PortID, 256)
	count := 0
	for range 3 {
		for s := range first {
			out := r.send(acc0, udp4(hostB, hostA, 0, uint16(s), 10))
			p := up0
			if len(out[up1]) == 1 {
				p = up1
				count++
			}
			if first[s] != 0 && first[s] != p {
				t.Fatalf("flow %d moved from port %d to %d", s, first[s], p)
			}
			first[s] = p
		}
	}
	if count < 3*64 || count > 3*192 {
		t.Errorf("%d of %d frames took uplink 1", count, 3*256)
	}
}

func TestLeafTakesFailedUplinkOut(t *testing.T) {
	r := newRig(t, leafConfig(), leafTables())
	r.send(up0, wrap(vtep2, own(), 100, udp4(bcast, hostB, 0, 1, 10), nil))
	down := leafTables()
	down.Ports[up0].Up = false
	r.publish(down)
	for s := range 64 {
		if out := r.send(acc0, udp4(hostB, hostA, 0, uint16(s), 10)); len(out[up1]) != 1 {
			t.Fatalf("flow %d did not take the uplink that is left: %v", s, r.drops())
		}
	}
	down.Ports[up1].Up = false
	r.publish(down)
	r.send(acc0, udp4(hostB, hostA, 0, 1, 10))
	if got := r.drops()[drop.NoRoute]; got != 1 {
		t.Errorf("no uplink left: %v", r.drops())
	}
}

func TestLeafHoldsFramesForNeighbours(t *testing.T) {
	unresolved := leafTables()
	unresolved.Hops[0].Resolved, unresolved.Hops[1].Resolved = false, false
	r := newRig(t, leafConfig(), unresolved)
	r.send(up0, wrap(vtep2, own(), 100, udp4(bcast, hostB, 0, 1, 10), nil))
	for i := range 5 {
		r.send(acc0, udp4(hostB, hostA, 0, 77, 10+i))
	}
	if got := r.w.held(); got != 5 {
		t.Fatalf("%d frames held, want 5", got)
	}
	hop := <-r.ask
	if len(r.ask) != 0 {
		t.Error("asked more than once within the interval")
	}
	resolved := leafTables()
	resolved.Hops[1-hop].Resolved = false
	r.publish(resolved)
	out := r.settle()
	port := up0 + PortID(hop)
	if len(out[port]) != 5 {
		t.Fatalf("released %d frames", len(out[port]))
	}
	for i, b := range out[port] {
		if eth := overlay.Ethernet(b); overlay.MAC(eth[0:6]) != gwMAC || overlay.MAC(eth[6:12]) != ownMAC {
			t.Errorf("frame %d goes to %v from %v", i, overlay.MAC(eth[0:6]), overlay.MAC(eth[6:12]))
		}
		if _, inner := unwrap(t, b); len(inner) != 52+i {
			t.Errorf("frame %d overtook another", i)
		}
	}
}

func TestLeafGivesUpOnNeighbours(t *testing.T) {
	unresolved := leafTables()
	unresolved.Hops[0].Resolved, unresolved.Hops[1].Resolved = false, false
	r := newRig(t, leafConfig(), unresolved)
	r.send(up0, wrap(vtep2, own(), 100, udp4(bcast, hostB, 0, 1, 10), nil))
	for range holdPerHop + 3 {
		r.send(acc0, udp4(hostB, hostA, 0, 77, 10))
	}
	if got := r.drops()[drop.HoldFull]; got != 3 {
		t.Errorf("%v, want 3 hold_full", r.drops())
	}
	if d, _ := r.w.nextDeadline(r.now); d == idle {
		t.Error("frames wait, and the worker has no deadline")
	}
	r.now = r.now.Add(2 * time.Second)
	r.settle()
	if got := r.drops()[drop.NoNeighbour]; got != holdPerHop || r.w.held() != 0 {
		t.Errorf("%v, want %d no_neighbour; %d held", r.drops(), holdPerHop, r.w.held())
	}
}

func TestLeafStaticAddressesStayPut(t *testing.T) {
	tables := leafTables()
	tables.Static = []StaticMAC{{VNI: 0, MAC: hostB, Peer: 1, Port: NoPort}}
	r := newRig(t, leafConfig(), tables)
	r.send(acc1, udp4(bcast, hostB, 0, 1, 10)) // an impostor
	out := r.send(acc0, udp4(hostB, hostA, 0, 1, 10))
	sent := append(out[up0], out[up1]...)
	if len(sent) != 1 || len(out[acc1]) != 0 {
		t.Fatalf("%d into the fabric, %d to the impostor", len(sent), len(out[acc1]))
	}
	if d, _ := unwrap(t, sent[0]); d.Dst != overlay.AddrOf(vtep3) {
		t.Errorf("sent to %x", d.Dst)
	}
	if r.w.leaf.stats.FDBStatic != 1 {
		t.Errorf("impostor counted %d times", r.w.leaf.stats.FDBStatic)
	}
	r.publish(leafTables())
	if out = r.send(acc0, udp4(hostB, hostA, 0, 1, 10)); len(out[acc1]) != 1 {
		t.Error("a static entry outlived its configuration")
	}
}

func TestLeafSurvivesFullFDB(t *testing.T) {
	tables := leafTables()
	tables.VNIs[0].FDBLimit = 10
	r := newRig(t, leafConfig(), tables)
	for i := range 30 {
		r.send(acc0, udp4(bcast, overlay.MAC{2, 9, 0, 0, 0, byte(i)}, 0, 1, 10))
	}
	if s := r.w.snapshot(); s.FDBEvicted != 20 || s.FDBLearned != 30 || s.FDBEntries != 10 {
		t.Errorf("%d learned, %d evicted, %d kept", s.FDBLearned, s.FDBEvicted, s.FDBEntries)
	}
}

func TestLeafLosesPortWithFramesQueued(t *testing.T) {
	r := newRig(t, leafConfig(), leafTables())
	r.send(acc1, udp4(bcast, hostB, 0, 1, 10))
	r.links[acc1].stuck = true
	for range 600 {
		r.links[acc0].put(udp4(hostB, hostA, 0, 1, 10))
		r.w.round(r.now)
	}
	r.balance()
	if r.w.held() == 0 {
		t.Fatal("a link that sends nothing holds nothing back")
	}
	p := &r.w.ports[acc1]
	onRing := r.links[acc1].TXQueued()
	queued := int(r.w.held())
	r.w.detach(p)
	r.w.reclaim(p)
	r.links[acc1] = &memLink{t: t, area: r.w.area, size: 512, keep: true}
	r.balance()
	if got := r.drops()[drop.PortReset]; got != uint64(queued) || p.stats.TXAbandoned != uint64(onRing) {
		t.Errorf("%d port_reset of %d queued, %d abandoned of %d", got, queued, p.stats.TXAbandoned, onRing)
	}
	r.send(acc0, udp4(hostB, hostA, 0, 1, 10))
	if got := r.drops()[drop.PortDown]; got != 1 {
		t.Errorf("to a port that is gone: %v", r.drops())
	}
	r.w.attach(p, r.links[acc1])
	if out := r.send(acc0, udp4(hostB, hostA, 0, 1, 10)); len(out[acc1]) != 1 {
		t.Errorf("the port is back, and got %d frames", len(out[acc1]))
	}
}

func TestLeafPipelineAllocatesNothing(t *testing.T) {
	r := newRig(t, leafConfig(), leafTables())
	for i := range r.links {
		r.links[i].keep = false
	}
	up := wrap(vtep2, own(), 100, udp4(hostA, hostB, 0, 1, 100), nil)
	down := udp4(hostB, hostA, 0, 1, 100)
	flood := udp4(bcast, hostA, 20, 1, 100)
	work := func() {
		r.links[up0].put(up)
		r.links[acc0].put(down)
		r.links[acc0].put(flood)
		for r.w.round(r.now) > 0 {
		}
		r.now += mono.Time(time.Millisecond)
	}
	for range 2000 {
		work() // rings of the links grow to their size
	}
	if n := testing.AllocsPerRun(500, work); n != 0 {
		t.Errorf("%v allocations a burst", n)
	}
}

func TestCompileRefusesImpossibleTables(t *testing.T) {
	for name, edit := range map[string]func(*Tables){
		"ports":       func(t *Tables) { t.Ports = append(t.Ports, PortState{}) },
		"hop port":    func(t *Tables) { t.Hops[0].Port = 99 },
		"VNI gone":    func(t *Tables) { t.VNIs = t.VNIs[:1] },
		"peer's hop":  func(t *Tables) { t.Peers[0].Hops = []HopID{7} },
		"bound twice": func(t *Tables) { t.Bindings = append(t.Bindings, Binding{acc1, 30, 2}) },
		"flood peer":  func(t *Tables) { t.VNIs[0].Flood = []PeerID{7} },
		"static":      func(t *Tables) { t.Static = []StaticMAC{{VNI: 9}} },
	} {
		t.Run(name, func(t *testing.T) {
			cfg := leafConfig()
			cfg.VTEP = own()
			tables := leafTables()
			edit(tables)
			if _, err := compile(&cfg, layoutOf(t, &cfg), tables); err == nil {
				t.Error("accepted")
			}
		})
	}
}

func TestLeafFollowsMovesWithinABurst(t *testing.T) {
	r := newRig(t, leafConfig(), leafTables())
	r.send(acc1, udp4(bcast, hostB, 0, 1, 10))
	to := udp4(hostB, hostA, 0, 1, 10)
	fromA := udp4(bcast, hostA, 0, 1, 10)
	tagged := udp4(bcast, hostA, 20, 1, 10) // the same address in another VNI
	out := r.send(acc0, to, to, fromA, tagged, to)
	if len(out[acc1]) != 5 {
		t.Fatalf("acc1 got %d frames, want 5: %v", len(out[acc1]), r.drops())
	}
	// In one round, acc0's burst comes before acc1's: hostB moves to acc0 and
	// back, and acc2's frames do not see VNI 100 at all.
	for _, b := range [][]byte{to, udp4(bcast, hostB, 0, 1, 10), to} {
		r.links[acc0].put(b)
	}
	r.links[acc1].put(udp4(hostA, hostB, 0, 1, 10))
	out = r.settle()
	if moved := r.w.leaf.stats.FDBMoved; moved != 2 {
		t.Errorf("%d moves, want 2: there and back", moved)
	}
	if r.drops()[drop.SamePort] != 1 {
		t.Errorf("the frame after the move must find its address behind its own port: %v", r.drops())
	}
	if len(out[acc0]) != 1 {
		t.Errorf("acc0 got %d frames, want hostB's one", len(out[acc0]))
	}
}
