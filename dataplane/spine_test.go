package dataplane

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/gaissmai/bart"

	"github.com/loomfabric/loom/internal/drop"
	"github.com/loomfabric/loom/overlay"
)

// The spine that the tests use: leaf 10.0.0.2 behind two parallel links,
// 10.0.0.3 behind one.
const (
	dn0 = PortID(iota)
	dn1
	dn2
)

func spineConfig() Config {
	return Config{Role: Spine, Seed: 7, Ports: []PortConfig{
		{Name: "dn0", Kind: SpinePort}, {Name: "dn1", Kind: SpinePort}, {Name: "dn2", Kind: SpinePort},
	}}
}

func spineTables() *Tables {
	t := &Tables{Routes: new(bart.Table[uint32]), Groups: []Group{{Hops: []HopID{0, 1}}, {Hops: []HopID{2}}, {}, {Hops: []HopID{0, 1, 2}}}}
	t.Routes.Insert(netip.MustParsePrefix(testVTEP+"/32"), 3) // tests send from there, by any port
	t.Routes.Insert(netip.MustParsePrefix("10.0.0.2/32"), 0)
	t.Routes.Insert(netip.MustParsePrefix("10.0.0.0/24"), 1)
	t.Routes.Insert(netip.MustParsePrefix("10.0.1.0/24"), 2)
	for i := range 3 {
		t.Ports = append(t.Ports, PortState{Ifindex: i + 1, Up: true, MAC: ownMAC, MTU: 1600})
		t.Hops = append(t.Hops, Hop{Port: PortID(i), Gateway: netip.AddrFrom4([4]byte{192, 168, byte(i), 1}), MAC: overlay.MAC{2, 3, 0, 0, 0, byte(i)}, Resolved: true})
	}
	return t
}

// viaSpine is a packet for dst of one flow.
func viaSpine(dst netip.Addr, flow int, f *overlay.Fabric) []byte {
	b := wrap(own(), dst, 100, udp4(hostA, hostB, 0, uint16(flow), 64), f)
	b[34], b[35] = 0xc0|byte(flow>>8), byte(flow)
	return b
}

func TestSpineRoutesByLongestPrefix(t *testing.T) {
	r := newRig(t, spineConfig(), spineTables())
	out := r.send(dn0, viaSpine(vtep3, 1, nil))
	if len(out[dn2]) != 1 {
		t.Fatalf("left by %d, %d, %d; drops %v", len(out[dn0]), len(out[dn1]), len(out[dn2]), r.drops())
	}
	b := out[dn2][0]
	eth, ip := overlay.Ethernet(b), overlay.IPv4(b[14:])
	if want := (overlay.MAC{2, 3, 0, 0, 0, 2}); overlay.MAC(eth[0:6]) != want || overlay.MAC(eth[6:12]) != ownMAC {
		t.Errorf("addresses %v < %v", overlay.MAC(eth[0:6]), overlay.MAC(eth[6:12]))
	}
	if ip.TTL() != 63 || !checksumOK(ip) {
		t.Errorf("TTL %d, checksum ok: %v", ip.TTL(), checksumOK(ip))
	}
}

func TestSpineSpreadsByOuterHash(t *testing.T) {
	r := newRig(t, spineConfig(), spineTables())
	first := make(map[int]PortID)
	n := 0
	for range 2 {
		for flow := range 512 {
			out := r.send(dn2, viaSpine(vtep2, flow, nil))
			p := dn0
			if len(out[dn1]) == 1 {
				p = dn1
				n++
			}
			if was, ok := first[flow]; ok && was != p {
				t.Fatalf("flow %d moved", flow)
			}
			first[flow] = p
		}
	}
	if n < 2*192 || n > 2*320 {
		t.Errorf("%d of 1024 took the second link", n)
	}
}

func TestSpineFollowsPathIDOfCapableSenders(t *testing.T) {
	r := newRig(t, spineConfig(), spineTables())
	for sel := range uint8(4) {
		for flow := range 16 {
			out := r.send(dn2, viaSpine(vtep2, flow, &overlay.Fabric{Capable: true, Path: overlay.MakePathID(1, sel)}))
			if want := PortID(sel % 2); len(out[want]) != 1 {
				t.Fatalf("selector %d, flow %d did not take link %d: %v", sel, flow, want, r.drops())
			}
		}
	}
}

// Three links get a third of the flows each, though selectors are sixteen: of each
// selector below 15 every flow takes one link, and flows with the last one go by hash.
func TestSpineGivesThreeLinksEqualParts(t *testing.T) {
	tables := spineTables()
	tables.Groups[0].Hops = []HopID{0, 1, 2}
	r := newRig(t, spineConfig(), tables)
	used := [3]int{}
	for flow := range 2048 {
		f := &overlay.Fabric{Capable: true, Path: overlay.MakePathID(1, uint8(flow%16))}
		out := r.send(dn2, viaSpine(vtep2, flow, f))
		took := slices.IndexFunc(out[:3], func(sent [][]byte) bool { return len(sent) == 1 })
		if took < 0 || flow%16 < 15 && took != flow%16%3 {
			t.Fatalf("flow %d with selector %d took link %d: %v", flow, flow%16, took, r.drops())
		}
		used[took]++
	}
	// 640 with the first fifteen selectors, and some 43 of 128 with the last one.
	if slices.Min(used[:]) < 640+25 || slices.Max(used[:]) > 640+60 {
		t.Errorf("links took %v of 2048 flows", used)
	}
}

func TestSpineSendsControlFirst(t *testing.T) {
	r := newRig(t, spineConfig(), spineTables())
	r.links[dn2].stuck = true
	for i := range 512 { // fills the TX ring
		r.links[dn0].put(viaSpine(vtep3, i, nil))
		r.w.round(r.now)
	}
	for i := range 20 {
		r.links[dn0].put(viaSpine(vtep3, i, nil))
		r.w.round(r.now)
	}
	r.links[dn0].put(viaSpine(vtep3, 9, &overlay.Fabric{Capable: true, Opcode: overlay.OpNotify}))
	r.w.round(r.now)
	r.links[dn2].stuck = false
	out := r.settle()[dn2]
	for i, b := range out {
		var d overlay.Decapped
		overlay.Decap(b, overlay.DefaultPort, &d)
		if d.Fabric.Opcode == overlay.OpNotify {
			if i != 512 {
				t.Errorf("control packet came as number %d of %d, want right after the ring's 512", i, len(out))
			}
			return
		}
	}
	t.Errorf("no control packet among %d", len(out))
}

func TestSpineDropsByName(t *testing.T) {
	edit := func(f func([]byte)) []byte {
		b := viaSpine(vtep3, 1, nil)
		f(b)
		fixChecksum(b[14:])
		return b
	}
	for _, c := range []struct {
		name string
		b    []byte
		want drop.Reason
	}{
		{"runt", make([]byte, 10), drop.Truncated},
		{"not IPv4", edit(func(b []byte) { b[12] = 1 }), drop.BadEtherType},
		{"checksum", func() []byte { b := viaSpine(vtep3, 1, nil); b[24] ^= 0x55; return b }(), drop.BadIPChecksum},
		{"TTL 1", edit(func(b []byte) { b[22] = 1 }), drop.TTLExpired},
		{"TTL 0", edit(func(b []byte) { b[22] = 0 }), drop.TTLExpired},
		{"no route", viaSpine(netip.MustParseAddr("10.9.0.1"), 1, nil), drop.NoRoute},
		{"route without next hop", viaSpine(netip.MustParseAddr("10.0.1.1"), 1, nil), drop.NoRoute},
		{"too big", wrap(own(), vtep3, 100, udp4(hostA, hostB, 0, 1, 1600), nil), drop.TooBig},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, spineConfig(), spineTables())
			for range 2 { // once more through the route cache
				r.send(dn0, c.b)
			}
			if got := r.drops(); len(got) != 1 || got[c.want] != 2 {
				t.Errorf("dropped %v, want two %v", got, c.want)
			}
		})
	}
}

func TestSpineHoldsUntilNeighbourAnswers(t *testing.T) {
	tables := spineTables()
	tables.Hops[2].Resolved = false
	r := newRig(t, spineConfig(), tables)
	out := r.send(dn0, viaSpine(vtep3, 1, nil))
	if len(out[dn2]) != 0 || r.w.held() != 1 || <-r.ask != 2 {
		t.Fatalf("held %d", r.w.held())
	}
	r.publish(spineTables())
	out = r.settle()
	if len(out[dn2]) != 1 || overlay.MAC(out[dn2][0][0:6]) != (overlay.MAC{2, 3, 0, 0, 0, 2}) {
		t.Errorf("released %d frames", len(out[dn2]))
	}
	// A next hop whose port goes down does not keep its frames.
	r.publish(tables)
	r.send(dn0, viaSpine(vtep3, 1, nil))
	down := spineTables()
	down.Hops[2].Resolved = false
	down.Ports[dn2].Up = false
	r.publish(down)
	r.settle()
	if got := r.drops()[drop.HopGone]; got != 1 {
		t.Errorf("%v, want hop_gone", r.drops())
	}
}

func TestSpineRoutesAgainAfterTablesChange(t *testing.T) {
	r := newRig(t, spineConfig(), spineTables())
	r.send(dn0, viaSpine(vtep3, 1, nil))
	moved := spineTables()
	moved.Groups[1].Hops = []HopID{1}
	r.publish(moved)
	if out := r.send(dn0, viaSpine(vtep3, 1, nil)); len(out[dn1]) != 1 {
		t.Error("the route cache outlived its tables")
	}
}

func TestSpinePipelineAllocatesNothing(t *testing.T) {
	r := newRig(t, spineConfig(), spineTables())
	for i := range r.links {
		r.links[i].keep = false
	}
	b := viaSpine(vtep2, 1, nil)
	work := func() {
		r.links[dn2].put(b)
		for r.w.round(r.now) > 0 {
		}
		r.now = r.now.Add(time.Millisecond)
	}
	for range 2000 {
		work()
	}
	if n := testing.AllocsPerRun(500, work); n != 0 {
		t.Errorf("%v allocations a burst", n)
	}
}
