package dataplane

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/loomfabric/loom/internal/drop"
	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/overlay"
	"github.com/loomfabric/loom/reorder"
)

// TestZeroMACStaysInItsVNI: the address that was found last, in another VNI, is not
// where a frame to the zero address goes after an address has moved. That frame's key
// is 0 in the first VNI.
func TestZeroMACStaysInItsVNI(t *testing.T) {
	r := newRig(t, leafConfig(), leafTables())
	r.send(acc1, udp4(bcast, hostC, 30, 1, 10)) // VNI 200
	r.send(acc1, udp4(bcast, hostB, 0, 1, 10))  // VNI 100
	out := r.send(acc0,
		udp4(hostC, hostA, 20, 1, 10),           // found: acc1, VLAN 30
		udp4(bcast, hostB, 0, 1, 10),            // moves from acc1
		udp4(overlay.MAC{}, hostA, 0, 0x77, 10)) // VNI 100, index 0
	for port, frames := range out {
		for _, b := range frames {
			if overlay.Ethernet(b).DstKey(0) == 0 {
				t.Errorf("a frame to the zero address left by port %d", port)
			}
		}
	}
	if n := r.drops()[drop.DestinationZero]; n != 1 {
		t.Errorf("%d frames dropped as DestinationZero", n)
	}
	r.send(up0, wrap(vtep2, own(), 100, udp4(overlay.MAC{}, hostB, 0, 1, 10), nil))
	if n := r.drops()[drop.DestinationZero]; n != 2 {
		t.Errorf("%d frames dropped as DestinationZero", n)
	}
}

// TestDeliveryChecksMembership: whatever the FDB says, a frame leaves only by a port
// and VLAN of its own VNI.
func TestDeliveryChecksMembership(t *testing.T) {
	for _, wrong := range []overlay.Dest{
		overlay.DestLocal(uint16(acc2), 0),  // VNI 300
		overlay.DestLocal(uint16(acc1), 30), // VNI 200
		overlay.DestLocal(uint16(acc1), 31), // none
	} {
		r := newRig(t, leafConfig(), leafTables())
		r.w.leaf.fdb.SetStatic(0, hostC, wrong)
		if out := r.send(acc0, udp4(hostC, hostA, 0, 1, 10)); len(out[wrong.Port()]) != 0 {
			t.Errorf("a host's frame of VNI 100 was delivered to %+v", wrong)
		}
		if n := r.drops()[drop.NotMember]; n != 1 {
			t.Errorf("%d frames dropped as NotMember", n)
		}
		if out := r.send(up0, wrap(vtep2, own(), 100, udp4(hostC, hostB, 0, 1, 10), nil)); len(out[wrong.Port()]) != 0 {
			t.Errorf("the fabric's frame of VNI 100 was delivered to %+v", wrong)
		}
		if n := r.drops()[drop.NotMember]; n != 2 {
			t.Errorf("%d frames dropped as NotMember", n)
		}
	}
}

// TestUnfinishedChecksum: what a host with checksum offload sends comes out finished,
// by the fabric and by the leaf's other ports, and is counted. So does what another
// kernel's VTEP has left unfinished in its tunnel, as on one hypervisor with the leaf.
func TestUnfinishedChecksum(t *testing.T) {
	r := newRig(t, leafConfig(), leafTables())
	b, want := unfinished(udp4(hostC, hostA, 20, 7, 100))
	const udp = 14 + 4 + 20
	check := func(out [][][]byte, at map[PortID]int) {
		t.Helper()
		for port, inner := range at {
			for _, got := range out[port] {
				if c := binary.BigEndian.Uint16(got[inner+6:]); c != want {
					t.Errorf("port %d: checksum %#x, want %#x", port, c, want)
				}
			}
		}
	}
	out := r.send(acc0, b)
	check(out, map[PortID]int{acc1: udp, up0: 50 + udp - 4, up1: 50 + udp - 4})
	if len(out[acc1]) != 1 || len(out[up0])+len(out[up1]) != 1 {
		t.Errorf("%d frames to the host, %d and %d to the fabric", len(out[acc1]), len(out[up0]), len(out[up1]))
	}
	inner := append(append([]byte(nil), b[:12]...), b[16:]...) // VXLAN carries it untagged
	out = r.send(up0, wrap(vtep2, own(), 200, inner, nil))
	check(out, map[PortID]int{acc0: udp, acc1: udp})
	if len(out[acc0])+len(out[acc1]) == 0 {
		t.Error("no frame came out of the tunnel")
	}
	for _, p := range []PortID{acc0, up0} {
		if n := r.w.ports[p].snapshot(r.now).Finished; n != 1 {
			t.Errorf("port %d: %d checksums were finished", p, n)
		}
	}
}

// unfinished gives a tagged UDP datagram of 100 bytes the checksum that a host with
// offload stores. The other result is the finished one.
func unfinished(b []byte) (frame []byte, want uint16) { // udp4 sends no checksum
	const udp = 14 + 4 + 20
	binary.BigEndian.PutUint16(b[udp+4:], 108)
	binary.BigEndian.PutUint16(b[udp+6:], pseudo(b[18:38], 108))
	whole := append(binary.BigEndian.AppendUint16(nil, pseudo(b[18:38], 108)), b[udp:]...)
	copy(whole[2+6:], []byte{0, 0})
	return b, ^ones(whole)
}

// pseudo is the folded sum of the pseudo-header of a UDP datagram with that IPv4
// header and length.
func pseudo(ip []byte, n uint16) uint16 {
	return ones(append(append([]byte(nil), ip[12:20]...), 0, 17, byte(n>>8), byte(n)))
}

// ones adds up words with end-around carry.
func ones(b []byte) uint16 {
	sum := 0
	for i := 0; i+1 < len(b); i += 2 {
		sum += int(b[i])<<8 | int(b[i+1])
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return uint16(sum)
}

// TestLinkLocalIsNotForwarded: neither from hosts, tagged or not, nor out of tunnels.
func TestLinkLocalIsNotForwarded(t *testing.T) {
	r := newRig(t, leafConfig(), leafTables())
	for last := range byte(0x12) {
		dst := overlay.MAC{1, 0x80, 0xc2, 0, 0, last}
		want := 0
		if last > 0xf {
			want = 1
		}
		for _, out := range [][][][]byte{
			r.send(acc0, udp4(dst, hostA, 0, 1, 10)),
			r.send(acc0, udp4(dst, hostA, 20, 1, 10)),
			r.send(up0, wrap(vtep2, own(), 100, udp4(dst, hostB, 0, 1, 10), nil)),
		} {
			if n := len(out[acc1]); n != want {
				t.Errorf("%d frames to %v were delivered", n, dst)
			}
		}
	}
	if n := r.drops()[drop.LinkLocal]; n != 3*16 {
		t.Errorf("%d frames dropped as LinkLocal", n)
	}
}

// TestReversePathAtLeaf: a peer's packets come by an uplink that leads to it.
func TestReversePathAtLeaf(t *testing.T) {
	for check, want := range map[ReversePath]map[PortID]int{
		StrictPath:   {up0: 1, up1: 0},
		FeasiblePath: {up0: 1, up1: 1},
		AnyPath:      {up0: 1, up1: 1},
	} {
		cfg, tables := leafConfig(), leafTables()
		cfg.ReversePath = check
		tables.Peers[0].Hops = []HopID{0} // up0
		r := newRig(t, cfg, tables)
		for port, n := range want {
			out := r.send(port, wrap(vtep2, own(), 100, udp4(bcast, hostB, 0, 1, 10), nil))
			if len(out[acc0]) != n {
				t.Errorf("check %d: %d frames by port %d were delivered, want %d", check, len(out[acc0]), port, n)
			}
		}
		if n := r.drops()[drop.ReversePath]; n != uint64(2-want[up0]-want[up1]) {
			t.Errorf("check %d: %d frames dropped", check, n)
		}
		tables = leafTables()
		tables.Peers[0].Hops = nil
		r.publish(tables)
		r.now += grace
		out := r.send(up0, wrap(vtep2, own(), 100, udp4(bcast, hostB, 0, 1, 10), nil))
		if delivered := len(out[acc0]) == 1; delivered != (check == AnyPath) {
			t.Errorf("check %d: from a peer without a route %v", check, delivered)
		}
	}
}

// TestReversePathAtSpine: a leaf cannot send in the name of another one.
func TestReversePathAtSpine(t *testing.T) {
	for check, want := range map[ReversePath]bool{StrictPath: false, FeasiblePath: true, AnyPath: true} {
		cfg := spineConfig()
		cfg.ReversePath = check
		r := newRig(t, cfg, spineTables())
		forged := wrap(vtep2, vtep3, 100, udp4(hostA, hostB, 0, 1, 64), nil) // behind dn0 and dn1
		for _, port := range []PortID{dn0, dn1} {
			if out := r.send(port, forged); len(out[dn2]) != 1 {
				t.Errorf("check %d: a packet by port %d was not forwarded: %v", check, port, r.drops())
			}
		}
		out := r.send(dn2, wrap(vtep2, own(), 100, udp4(hostA, hostB, 0, 1, 64), nil))
		if forwarded := len(out[dn0])+len(out[dn1])+len(out[dn2]) == 1; forwarded != want {
			t.Errorf("check %d: a forged source was forwarded: %v", check, forwarded)
		}
		out = r.send(dn0, wrap(netip.MustParseAddr("192.0.2.1"), vtep3, 100, udp4(hostA, hostB, 0, 1, 64), nil))
		if forwarded := len(out[dn2]) == 1; forwarded != (check == AnyPath) {
			t.Errorf("check %d: a source that nobody routes to was forwarded: %v", check, forwarded)
		}
	}
}

// TestReversePathFollowsRoutes: a source that a port was believed is asked for again
// when the routes have changed.
func TestReversePathFollowsRoutes(t *testing.T) {
	r := newRig(t, spineConfig(), spineTables())
	b := wrap(vtep2, vtep3, 100, udp4(hostA, hostB, 0, 1, 64), nil)
	if out := r.send(dn0, b); len(out[dn2]) != 1 {
		t.Fatalf("drops: %v", r.drops())
	}
	tables := spineTables()
	tables.Groups[0].Hops = []HopID{1} // vtep2 is behind dn1 only
	r.publish(tables)
	r.now += grace
	if out := r.send(dn0, b); len(out[dn2]) != 0 || r.drops()[drop.ReversePath] != 1 {
		t.Errorf("%d packets from where vtep2 was were forwarded, drops %v", len(out[dn2]), r.drops())
	}
}

// TestReversePathHasAGrace: what was under way when the routes to its source changed is
// not taken for forged, however they changed, for as long as it may be under way. What
// could not have come that way before cannot now.
func TestReversePathHasAGrace(t *testing.T) {
	b := wrap(vtep2, vtep3, 100, udp4(hostA, hostB, 0, 1, 64), nil)
	for name, change := range map[string]func(*Tables){
		"another next hop": func(t *Tables) { t.Groups[0].Hops = []HopID{1} },
		"no next hop":      func(t *Tables) { t.Groups[0].Hops = nil },
		"no route":         func(t *Tables) { t.Routes.Delete(netip.MustParsePrefix("10.0.0.2/32")) },
	} {
		r := newRig(t, spineConfig(), spineTables())
		tables := spineTables()
		change(tables)
		r.publish(tables)
		for range 2 { // views that change nothing for it
			again := *tables
			r.publish(&again)
		}
		changed := r.now
		for _, at := range []mono.Time{0, grace / 2, grace - 1} {
			r.now = changed + at
			if out := r.send(dn0, b); len(out[dn2]) != 1 {
				t.Errorf("%s: a packet that was under way was dropped: %v", name, r.drops())
			}
		}
		r.now = changed + grace
		if out := r.send(dn0, b); len(out[dn2]) != 0 || r.drops()[drop.ReversePath] != 1 {
			t.Errorf("%s: after the grace %d packets were forwarded, drops %v", name, len(out[dn2]), r.drops())
		}
	}

	r := newRig(t, spineConfig(), spineTables())
	for range graceViews + 1 {
		r.publish(spineTables())
	}
	if out := r.send(dn2, wrap(vtep2, own(), 100, udp4(hostA, hostB, 0, 1, 64), nil)); len(out[dn0])+len(out[dn1])+len(out[dn2]) != 0 {
		t.Error("a forged source was forwarded, as tables have changed")
	}

	tables := leafTables()
	r = newRig(t, leafConfig(), tables)
	broadcast := wrap(vtep2, own(), 100, udp4(bcast, hostB, 0, 1, 10), nil)
	tables = leafTables()
	tables.Peers[0].Hops = tables.Peers[0].Hops[1:] // not by up0
	r.publish(tables)
	if out := r.send(up0, broadcast); len(out[acc0]) != 1 {
		t.Errorf("a packet that was under way to a leaf was dropped: %v", r.drops())
	}
	r.now += grace
	if out := r.send(up0, broadcast); len(out[acc0]) != 0 || r.drops()[drop.ReversePath] != 1 {
		t.Errorf("after the grace a leaf took %d packets, drops %v", len(out[acc0]), r.drops())
	}
}

// TestReversePathOfAPortThatReturns: packets may come by a link that has returned before
// the routes have, for some time, on the ways on which it led before: also when the
// routes went before the link did. By another interface of that name they may not.
func TestReversePathOfAPortThatReturns(t *testing.T) {
	b := wrap(vtep2, vtep3, 100, udp4(hostA, hostB, 0, 1, 64), nil)
	forged := wrap(vtep3, vtep2, 100, udp4(hostA, hostB, 0, 1, 64), nil)
	for name, c := range map[string]struct {
		index int
		want  uint64
	}{"the same": {1, 1}, "another": {9, 0}} {
		r := newRig(t, spineConfig(), spineTables())
		routeless := spineTables()
		routeless.Groups[0].Hops = []HopID{1}
		r.publish(routeless)
		r.now += grace / 2
		down, back := *routeless, *routeless
		down.Ports, back.Ports = slices.Clone(down.Ports), slices.Clone(back.Ports)
		down.Ports[dn0].Up, back.Ports[dn0].Ifindex = false, c.index
		r.publish(&down)
		r.now += mono.Time(time.Minute)
		r.publish(&back)
		returned := r.now
		r.now += returning / 2
		r.send(dn0, forged)
		if n := r.drops()[drop.ReversePath]; n != 1 {
			t.Errorf("%s interface: a forged source was believed", name)
		}
		r.now = returned + returning - 1
		if out := r.send(dn0, b); len(out[dn2]) != int(c.want) {
			t.Errorf("%s interface: %d packets before the routes returned, want %d; drops %v", name, len(out[dn2]), c.want, r.drops())
		}
		r.now = returned + returning
		if out := r.send(dn0, b); len(out[dn2]) != 0 {
			t.Errorf("%s interface: a packet long before the routes returned was forwarded", name)
		}
	}
}

// TestOuterMAC: what a switch floods to a node is not taken for its own.
func TestOuterMAC(t *testing.T) {
	for port, r := range map[PortID]*rig{up0: newRig(t, leafConfig(), leafTables()), dn0: newRig(t, spineConfig(), spineTables())} {
		b := wrap(vtep2, own(), 100, udp4(bcast, hostB, 0, 1, 10), nil)
		overlay.Ethernet(b).SetDst(overlay.MAC{2, 9, 9, 9, 9, 9})
		for to, frames := range r.send(port, b) {
			if len(frames) != 0 {
				t.Errorf("sent %d frames by port %d", len(frames), to)
			}
		}
		if n := r.drops()[drop.NotOurMAC]; n != 1 {
			t.Errorf("drops: %v", r.drops())
		}
	}
}

// TestPeersOfVNI: a peer without members of a network cannot send into it.
func TestPeersOfVNI(t *testing.T) {
	tables := leafTables()
	tables.VNIs[0].Peers = []PeerID{1} // vtep3
	r := newRig(t, leafConfig(), tables)
	for from, want := range map[netip.Addr]int{vtep2: 0, vtep3: 1} {
		if out := r.send(up0, wrap(from, own(), 100, udp4(bcast, hostB, 0, 1, 10), nil)); len(out[acc0]) != want {
			t.Errorf("%d frames from %v into VNI 100, want %d", len(out[acc0]), from, want)
		}
		if out := r.send(up0, wrap(from, own(), 200, udp4(bcast, hostB, 0, 1, 10), nil)); len(out[acc0]) != 1 {
			t.Errorf("%d frames from %v into VNI 200, which is anybody's", len(out[acc0]), from)
		}
	}
	if n := r.drops()[drop.VTEPForeign]; n != 1 {
		t.Errorf("drops: %v", r.drops())
	}
}

// TestFabricStorms: what tunnels bring to be flooded is bounded, too, in frames and in
// bytes.
func TestFabricStorms(t *testing.T) {
	inner := udp4(bcast, hostB, 0, 1, 1000)
	for _, tt := range []struct {
		limit StormLimit
		want  int
	}{
		{StormLimit{}, 100},
		{StormLimit{Rate: 100, Burst: 5}, 4 * 5},
		{StormLimit{Bytes: 1e6}, 400_000/len(inner) + 1},
		{StormLimit{Rate: 100, Burst: 10, Bytes: 1e9}, 4 * 10},
	} {
		tables := leafTables()
		tables.VNIs[0].Storm = tt.limit
		r := newRig(t, leafConfig(), tables)
		b := wrap(vtep2, own(), 100, inner, nil)
		passed := 0
		for range 500 {
			passed += len(r.send(up0, b)[acc1])
			if tt.limit == (StormLimit{}) && passed == tt.want {
				break
			}
		}
		if passed < tt.want || passed > tt.want+2 { // time passes as the frames come
			t.Errorf("%+v: %d frames from the fabric were flooded, want %d", tt.limit, passed, tt.want)
		}
		r.send(acc0, udp4(bcast, hostA, 0, 1, 10))
		r.send(up0, wrap(vtep2, own(), 100, udp4(hostA, hostB, 0, 1, 1000), nil)) // one destination: no storm
		if n := r.w.ports[acc0].snapshot(r.now).Sent.Frames; n < uint64(tt.want)+1 {
			t.Errorf("%+v: %d frames to the host", tt.limit, n)
		}
	}
}

// TestFloodsYield: flooded frames fill half a queue, so that there is room for those
// with one destination; from hosts and from the fabric, on access ports and uplinks.
func TestFloodsYield(t *testing.T) {
	const limit = 100_000
	cfg := leafConfig()
	for i := range cfg.Ports {
		cfg.Ports[i].Egress.QueueBytes = limit
	}
	r := newRig(t, cfg, leafTables())
	r.send(acc1, udp4(bcast, hostB, 0, 1, 10))
	r.send(up0, wrap(vtep2, own(), 100, udp4(bcast, hostC, 0, 1, 10), nil))
	for _, p := range []PortID{acc1, up0, up1} {
		r.links[p].stuck, r.links[p].size = true, 0
	}
	for range 300 {
		r.send(acc0, udp4(bcast, hostA, 0, 1, 1000))
	}
	for _, p := range []PortID{acc1, up0, up1} {
		if n := r.w.ports[p].egress.data.bytes; n > limit/2+1200 {
			t.Errorf("port %d: %d bytes of flooded frames wait, half of %d may", p, n, limit)
		}
	}
	if r.drops()[drop.FloodYields] == 0 {
		t.Errorf("drops: %v", r.drops())
	}
	before := r.w.ports[acc1].egress.data.bytes
	for range 20 {
		r.send(acc0, udp4(hostB, hostA, 0, 1, 1000))
	}
	if n := r.w.ports[acc1].egress.data.bytes - before; n < 20*1000 {
		t.Errorf("beside flooded frames there was room for %d bytes", n)
	}
}

// TestCopiesLeaveFrames: copies of flooded frames do not take the last frames of the
// pool.
func TestCopiesLeaveFrames(t *testing.T) {
	r := newRig(t, leafConfig(), leafTables())
	for _, p := range []PortID{acc1, up0, up1} {
		r.links[p].stuck = true
		r.w.ports[p].egress.limit = 1 << 40
	}
	for r.drops()[drop.NoFrame]+r.drops()[drop.NoBuffer] == 0 {
		if !r.links[acc0].put(udp4(bcast, hostA, 0, 1, 10)) {
			t.Fatal("nothing is left to receive into")
		}
		r.w.round(r.now)
	}
	if n := r.w.pool.Free(); n < r.w.reserve-1 || r.w.reserve < 100 {
		t.Errorf("%d frames are left, %d are reserved; drops %v", n, r.w.reserve, r.drops())
	}
}

// TestFullFDBOfOneTenant: a host that sends from many addresses fills its network's
// part of the table, and no other one's.
func TestFullFDBOfOneTenant(t *testing.T) {
	cfg, tables := leafConfig(), leafTables()
	cfg.FDBSize = 1024
	for i := range tables.VNIs {
		tables.VNIs[i].FDBLimit = 340
	}
	r := newRig(t, cfg, tables)
	for i := range 5000 {
		r.send(acc0, udp4(bcast, overlay.MAC{2, 7, 0, 0, byte(i >> 8), byte(i)}, 0, 1, 10))
	}
	known := 0
	for i := range 200 { // of another tenant
		mac := overlay.MAC{2, 8, 0, 0, 0, byte(i)}
		r.send(acc1, udp4(bcast, mac, 30, 1, 10))
		if out := r.send(acc0, udp4(mac, hostA, 20, 1, 10)); len(out[up0])+len(out[up1]) == 0 && len(out[acc1]) == 1 {
			known++
		}
	}
	if known < 195 { // a bucket may be full
		t.Errorf("%d of 200 addresses of another tenant were learned", known)
	}
}

// TestAmplification: requests of one peer cause as many answers as its budget has, and
// one of another peer is answered all the same. A packet that asks for two answers gets
// none, and goes nowhere.
func TestAmplification(t *testing.T) {
	cfg := leafConfig()
	cfg.ReversePath = AnyPath
	r := newRig(t, cfg, leafTables())
	r.send(acc0, udp4(bcast, hostA, 0, 1, 10))
	request := func(from netip.Addr, flow uint16, tail bool) []byte {
		return wrap(from, own(), 100, udp4(hostA, hostB, 0, flow, 10), &overlay.Fabric{
			Capable: true, Scheme: reorder.SchemeID, Shim: true, Opcode: overlay.OpRTTRequest, Epoch: 1, Tail: tail,
		})
	}
	r.prove(0)
	r.prove(1)
	start, made, asked := r.now, r.w.made, 0
	for range 60 {
		for range 100 {
			asked++
			if !r.links[up0].put(request(vtep2, uint16(asked), false)) {
				t.Fatal("no frame to receive into")
			}
		}
		for r.w.round(r.now) > 0 { // at one time
		}
		for _, l := range r.links {
			l.out = nil
		}
	}
	r.balance()
	most := uint64(answerBudget.Burst) + uint64(r.now-start)/uint64(answerBudget.Interval)
	got, unsent := r.w.made-made, r.w.leaf.brain.Stats().Unsent
	if got > most || got < uint64(answerBudget.Burst) || got+unsent.OverBudget != uint64(asked) {
		t.Errorf("%d requests: %d answers, at most %d may be; %+v", asked, got, most, unsent)
	}
	made = r.w.made
	r.send(up1, request(vtep3, 1, false))
	if n := r.w.made - made; n != 1 {
		t.Errorf("%d answers to another peer", n)
	}
	made = r.w.made
	out := r.send(up1, request(vtep3, 2, true))
	if n := r.drops()[drop.BadMarks]; n != 1 || r.w.made != made || len(out[acc0]) != 0 {
		t.Errorf("a request with TAIL: %d dropped as BadMarks, %d answers, %d delivered", n, r.w.made-made, len(out[acc0]))
	}
}
