package dataplane

import (
	"encoding/binary"
	"net/netip"
	"testing"
	"time"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/congestion"
	"github.com/loomfabric/loom/internal/drop"
	"github.com/loomfabric/loom/internal/units"
	"github.com/loomfabric/loom/overlay"
)

// twoLeaves are leaf A (10.0.0.1, hostA on acc0) and leaf B (10.0.0.2, hostB on
// acc0) whose uplinks are wired to each other.
type twoLeaves struct {
	t    *testing.T
	a, b *rig
	// link, when set, stands for the spines: it may change a packet on its way
	// over an uplink.
	link func(uplink int, v overlay.VXLAN)
}

func newTwoLeaves(t *testing.T, scheme string) *twoLeaves {
	return newTwoLeavesWith(t, func(c *Config) { c.Scheme = scheme })
}

// newTwoLeavesAt has the leaves at other addresses.
func newTwoLeavesAt(t *testing.T, a, b string, change func(*Config)) *twoLeaves {
	leaf := func(vtep, peer string) *rig {
		cfg := leafConfig()
		change(&cfg)
		cfg.VTEP = netip.MustParseAddr(vtep)
		tables := leafTables()
		tables.Peers = []Peer{{VTEP: netip.MustParseAddr(peer), Hops: []HopID{0, 1}}}
		tables.VNIs[0].Flood, tables.VNIs[1].Flood = []PeerID{0}, nil
		return newRig(t, cfg, tables)
	}
	f := &twoLeaves{t: t, a: leaf(a, b), b: leaf(b, a)}
	f.exchange(f.a, acc0, udp4(bcast, hostA, 0, 1, 10)) // both learn
	f.exchange(f.b, acc0, udp4(bcast, hostB, 0, 1, 10))
	return f
}

func newTwoLeavesWith(t *testing.T, change func(*Config)) *twoLeaves {
	return newTwoLeavesAt(t, "10.0.0.1", "10.0.0.2", change)
}

func (f *twoLeaves) other(r *rig) *rig {
	if r == f.a {
		return f.b
	}
	return f.a
}

// exchange lets frames come in at a leaf's port and carries what it sends to
// the other leaf. It returns the uplink that each frame took.
func (f *twoLeaves) exchange(r *rig, p PortID, frames ...[]byte) (uplinks []int) {
	f.t.Helper()
	for _, b := range frames {
		uplinks = append(uplinks, f.carry(r, r.send(p, b))...)
	}
	return uplinks
}

// carry takes what left a leaf's uplinks to the other leaf. It returns the uplinks that
// tenants' frames took.
func (f *twoLeaves) carry(r *rig, out [][][]byte) (uplinks []int) {
	f.t.Helper()
	to := f.other(r)
	to.now = max(to.now, r.now)
	for u, port := range []PortID{up0, up1} {
		for _, b := range out[port] {
			v := overlay.VXLAN(b[vxlanAt(overlay.FamilyOf(r.w.cfg.VTEP)):])
			if f.link != nil {
				f.link(u, v)
			}
			if !v.Capable() || !v.Opcode().Control() {
				uplinks = append(uplinks, u)
			}
			overlay.Ethernet(b).SetDst(ownMAC) // as a spine does
			to.send(port, b)
		}
	}
	return uplinks
}

// sayHello lets both leaves send HELLOs, twice: the second ones echo the first ones.
func (f *twoLeaves) sayHello() {
	for _, r := range []*rig{f.a, f.b, f.a, f.b} {
		r.w.leaf.brain.SetHello(0)
		f.carry(r, r.settle())
		r.w.leaf.brain.SetHello(idle)
	}
}

// pass moves both leaves' clocks.
func (f *twoLeaves) pass(d time.Duration) {
	f.a.now = max(f.a.now, f.b.now).Add(d)
	f.b.now = f.a.now
}

func TestFieldsGoOnlyToProvenPeers(t *testing.T) {
	f := newTwoLeaves(t, "ecmp")
	capable := 0
	f.link = func(_ int, v overlay.VXLAN) {
		if v.Capable() {
			capable++
		}
	}
	f.exchange(f.a, acc0, udp4(hostB, hostA, 0, 1, 10))
	if capable != 0 {
		t.Fatal("sent fields to a peer about which nothing is known")
	}
	f.sayHello()
	if capable != 8 {
		t.Fatalf("%d HELLOs, want two by each path and each way", capable)
	}
	if a, b := f.a.w.consumed, f.b.w.consumed; a != 4 || b != 4 {
		t.Errorf("HELLOs consumed: %d, %d", a, b)
	}
	f.exchange(f.a, acc0, udp4(hostB, hostA, 0, 1, 10))
	if capable != 9 {
		t.Error("sent plain VXLAN to a peer that had sent a HELLO")
	}
	f.pass(time.Second)
	f.exchange(f.a, acc0, udp4(hostB, hostA, 0, 1, 10))
	if capable != 9 {
		t.Error("sent fields to a peer that has been silent for a second")
	}
	for _, r := range []*rig{f.a, f.b} {
		if d := r.drops(); len(d) != 0 {
			t.Errorf("drops: %v", d)
		}
	}
}

func TestHellosNeedARouteAndAMAC(t *testing.T) {
	tables := leafTables()
	tables.Hops[0].Resolved, tables.Hops[1].Resolved = false, false
	tables.Peers[1].Hops = nil
	r := newRig(t, leafConfig(), tables)
	r.w.leaf.brain.SetHello(0)
	out := r.settle()
	if n := len(out[up0]) + len(out[up1]); n != 0 || r.w.held() != 0 {
		t.Errorf("%d HELLOs sent, %d held", n, r.w.held())
	}
}

func TestHelloOfAnUnknownVTEPIsDropped(t *testing.T) {
	r := newRig(t, leafConfig(), leafTables())
	hello := &overlay.Fabric{Capable: true, Opcode: overlay.OpHello}
	r.send(up0, wrap(netip.MustParseAddr("10.0.0.77"), own(), 0, udp4(hostA, hostB, 0, 1, 1), hello))
	if r.drops()[drop.VTEPUnknown] != 1 || r.w.consumed != 0 {
		t.Errorf("drops %v, consumed %d", r.drops(), r.w.consumed)
	}
}

// CONGA §3: the loop from a congested link to the next flowlet's choice.
func TestCongestionSteersNewFlowlets(t *testing.T) {
	f := newTwoLeaves(t, "conga")
	f.sayHello()
	f.link = func(uplink int, v overlay.VXLAN) {
		if uplink == 0 && v.Capable() {
			v.RaiseCE(6)
		}
	}
	for i := range 16 { // until A has used both uplinks and B has told of both
		f.exchange(f.a, acc0, udp4(hostB, hostA, 0, uint16(1000+i), 100))
		f.exchange(f.b, acc0, udp4(hostA, hostB, 0, uint16(1000+i), 100))
	}
	now := f.a.now
	if m0, m1 := toLeaf(f.a.w, 0, now), toLeaf(f.a.w, 1, now); m0 != 6 || m1 != 0 {
		t.Fatalf("to-leaf metrics %d and %d, want 6 and 0", m0, m1)
	}
	for i := range 64 {
		if u := f.exchange(f.a, acc0, udp4(hostB, hostA, 0, uint16(2000+i), 100)); u[0] != 1 {
			t.Fatalf("new flow %d took the congested uplink", i)
		}
	}
	// The congested path is tried again once its metric has aged to zero.
	f.link = nil
	f.pass(time.Second)
	f.sayHello()
	used := 0
	for i := range 64 {
		if u := f.exchange(f.a, acc0, udp4(hostB, hostA, 0, uint16(3000+i), 100)); u[0] == 0 {
			used++
		}
	}
	if used < 16 {
		t.Errorf("%d of 64 new flows took the uplink that has recovered", used)
	}
}

func TestFlowletsLeaveAnUplinkThatIsGone(t *testing.T) {
	f := newTwoLeaves(t, "conga")
	f.sayHello()
	took := make(map[uint16]int)
	for i := range uint16(32) {
		took[i] = f.exchange(f.a, acc0, udp4(hostB, hostA, 0, i, 100))[0]
	}
	down := leafTables()
	down.Peers = []Peer{{VTEP: vtep2, Hops: []HopID{0, 1}}}
	down.VNIs[0].Flood, down.VNIs[1].Flood = []PeerID{0}, nil
	down.Ports[up0].Up = false
	f.a.publish(down)
	moved := 0
	for i := range uint16(32) {
		u := f.exchange(f.a, acc0, udp4(hostB, hostA, 0, i, 100))
		if len(u) != 1 || u[0] != 1 {
			t.Fatalf("flow %d took %v, want uplink 1", i, u)
		}
		if took[i] == 0 {
			moved++
		}
	}
	if moved == 0 {
		t.Error("no flow had been on the uplink that went away")
	}
	if d := f.a.drops(); len(d) != 0 {
		t.Errorf("drops %v", d)
	}
}

func TestLinkMetricGoesIntoCE(t *testing.T) {
	cfg := spineConfig()
	for i := range cfg.Ports {
		cfg.Ports[i].Egress.LinkRate = 1e9
	}
	r := newRig(t, cfg, spineTables())
	ce := func() uint8 {
		var d overlay.Decapped
		out := r.send(dn0, viaSpine(vtep3, 1, &overlay.Fabric{Capable: true, LBTag: 3, CE: 2}))
		overlay.Decap(out[dn2][0], overlay.DefaultPort, &d)
		if d.Fabric.LBTag != 3 {
			t.Fatalf("LBTag became %d", d.Fabric.LBTag)
		}
		return d.Fabric.CE
	}
	if got := ce(); got != 2 {
		t.Errorf("CE %d behind an idle link, want the 2 it came with", got)
	}
	// C·τ of 1 Gb/s and 160 µs is 20 kB: 30 frames of 1500 bytes fill it.
	for range 30 {
		r.send(dn0, wrap(own(), vtep3, 100, udp4(hostA, hostB, 0, 1, 1400), &overlay.Fabric{Capable: true}))
	}
	if got := ce(); got != 7 {
		t.Errorf("CE %d behind a full link, want 7", got)
	}
	r.now = r.now.Add(10 * time.Millisecond)
	if got := ce(); got != 2 {
		t.Errorf("CE %d after a pause, want 2", got)
	}
	// Plain VXLAN has no CE field to raise.
	for range 30 {
		out := r.send(dn0, viaSpine(vtep3, 1, nil))
		if v := overlay.VXLAN(out[dn2][0][vxlanAt4:]); v[1] != 0 || v[2] != 0 || v[3] != 0 {
			t.Fatalf("plain header became % x", []byte(v[:8]))
		}
	}
}

func TestWorkersShareLinkMeters(t *testing.T) {
	cfg := Config{Workers: 2, Room: 1, Congestion: congestion.Datacenter()}
	s := newShared(&cfg)
	e := [2]egress{}
	for i := range e {
		e[i] = newEgress(&EgressConfig{QueueBytes: 1 << 20, LinkRate: 1e9}, nil, s.meters[0], i, &s.params, nil)
		e[i].sent(1000, 5000)
	}
	if got := s.meters[0].X(1000); got < 9990 || got > 10010 {
		t.Errorf("the link's register is %.0f, want both workers' 10000", got)
	}
}

func TestClassesChooseTheScheme(t *testing.T) {
	cfg := leafConfig()
	cfg.Scheme = "ecmp"
	only0 := balance.Options{Keys: weights(1, 0)}
	only1 := balance.Options{Keys: weights(0, 1)}
	cfg.Classes = []Class{
		{Protocol: 17, Port: units.Ports{First: 4791, Last: 4791}, Scheme: "static", Options: only0},
		{VNI: 200, Scheme: "static", Options: only1},
		{DSCP: 46 + 1, Scheme: "static", Options: only0},
		{Protocol: 17, Port: units.Ports{First: 61000, Last: 65535}, Scheme: "static", Options: only1},
	}
	tables := leafTables()
	r := newRig(t, cfg, tables)
	for _, vni := range []overlay.VNI{100, 200} {
		r.send(up0, wrap(vtep2, own(), vni, udp4(bcast, hostB, 0, 1, 10), nil))
	}
	ef := udp4(hostB, hostA, 0, 0, 10)
	ef[15] = 46 << 2
	fixChecksum(ef[14:])
	roce := udp4(hostB, hostA, 0, 7, 20)
	roce[36], roce[37] = 4791>>8, 4791&0xff
	port := func(at int, port uint16) []byte {
		b := udp4(hostB, hostA, 0, 7, 20)
		binary.BigEndian.PutUint16(b[at:], port)
		return b
	}
	for _, c := range []struct {
		name  string
		frame []byte
		want  []PortID
	}{
		{"RoCE", roce, []PortID{up0}},
		{"VNI 200, tagged", udp4(hostB, hostA, 20, 1, 10), []PortID{up1}},
		{"DSCP EF", ef, []PortID{up0}},
		{"first port of a range, at the source", port(34, 61000), []PortID{up1}},
		{"last port of a range, at the destination", port(36, 65535), []PortID{up1}},
		{"before a range", port(36, 60999), []PortID{up0, up1}},
		{"the rest", udp4(hostB, hostA, 0, 1, 10), []PortID{up0, up1}},
	} {
		used := make(map[PortID]bool)
		for i := range 64 {
			b := append([]byte(nil), c.frame...)
			port := 34
			if b[12] == 0x81 {
				port += 4
			}
			if b[port] < 0xee { // source port, unless the case has one
				b[port], b[port+1] = 1, byte(i)
			}
			out := r.send(acc0, b)
			for _, p := range []PortID{up0, up1} {
				if len(out[p]) == 1 {
					used[p] = true
				}
			}
		}
		for _, p := range c.want {
			if !used[p] {
				t.Errorf("%s: did not use port %d", c.name, p)
			}
		}
		if len(used) != len(c.want) {
			t.Errorf("%s: used %v, want %v", c.name, used, c.want)
		}
	}
	schemes := r.w.snapshot().Schemes
	if len(schemes) != 2 || schemes[0].Scheme != "static" || schemes[0].Decisions < 3*64 {
		t.Errorf("counted %+v", schemes)
	}
}

func TestSchemeChangeLosesNothing(t *testing.T) {
	f := newTwoLeaves(t, "ecmp")
	f.sayHello()
	for i, scheme := range []string{"conga", "letflow", "spray", "drill", "local", "static", "conga-flow", "ecmp"} {
		f.a.reload(scheme)
		for flow := range uint16(8) {
			if u := f.exchange(f.a, acc0, udp4(hostB, hostA, 0, flow, 100)); len(u) != 1 {
				t.Fatalf("%s: %d frames arrived", scheme, len(u))
			}
		}
		if got := len(f.a.w.snapshot().Schemes); got != min(i+2, 8) {
			t.Errorf("%s: counts of %d schemes, want %d", scheme, got, min(i+2, 8))
		}
	}
	if d := f.a.drops(); len(d) != 0 {
		t.Errorf("drops %v", d)
	}
}

func TestNewPeerInAnOldPlaceStartsFresh(t *testing.T) {
	r := newRig(t, leafConfig(), leafTables())
	r.prove(0)
	r.send(up0, wrap(vtep2, own(), 100, udp4(bcast, hostB, 0, 1, 10),
		&overlay.Fabric{Capable: true, CE: 3, FBValid: true, FBTag: 1, FBMetric: 6}))
	s := r.w.shared.leaf
	if !s.Capable.Capable(0, r.now) || toLeaf(r.w, 1, r.now) != 6 {
		t.Fatal("nothing was learned of the peer")
	}
	r.publish(leafTables()) // the same peers: all stays
	if !s.Capable.Capable(0, r.now) || toLeaf(r.w, 1, r.now) != 6 {
		t.Error("tables with the same peer made it forgotten")
	}
	moved := leafTables()
	moved.Peers[0].VTEP = netip.MustParseAddr("10.0.0.44")
	r.publish(moved)
	if s.Capable.Capable(0, r.now) || toLeaf(r.w, 1, r.now) != 0 {
		t.Error("a new peer inherited the old one's state")
	}
	if _, _, known := s.From.Entry(0, 0, r.now); known {
		t.Error("a new peer inherited the old one's congestion")
	}
}

func TestLinkRateFollowsTheKernelUnlessConfigured(t *testing.T) {
	cfg := spineConfig()
	cfg.Ports[dn1].Egress.LinkRate = 5e9
	cfg.Ports[dn2].Egress.Rate, cfg.Ports[dn2].Egress.Burst = 1e9, 1<<20
	tables := spineTables()
	r := newRig(t, cfg, tables)
	rates := func() [3]uint64 {
		return [3]uint64{r.w.ports[dn0].egress.rate, r.w.ports[dn1].egress.rate, r.w.ports[dn2].egress.rate}
	}
	if got, want := rates(), [3]uint64{0, 5e9, 1e9}; got != want {
		t.Errorf("speeds unknown: %v, want %v", got, want)
	}
	for _, speed := range []uint64{10e9, 40e9, 0} {
		faster := spineTables()
		for i := range faster.Ports {
			faster.Ports[i].Speed = speed
		}
		r.publish(faster)
		if got, want := rates(), [3]uint64{speed, 5e9, 1e9}; got != want {
			t.Errorf("kernel says %d: %v, want %v", speed, got, want)
		}
	}
	for range 50 { // a link of unknown speed has no metric, however busy
		r.send(dn2, wrap(own(), vtep2, 100, udp4(hostA, hostB, 0, 1, 1400), &overlay.Fabric{Capable: true}))
	}
	if m := r.w.ports[dn0].snapshot(r.now).Metric; m != 0 {
		t.Errorf("metric %d of a link of unknown speed", m)
	}
}
