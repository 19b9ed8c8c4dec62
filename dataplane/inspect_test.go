package dataplane

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/internal/units"
	"github.com/loomfabric/loom/overlay"
)

// node is a Node around the rigs' workers.
func node(rigs ...*rig) *Node {
	n := &Node{cfg: *rigs[0].w.cfg, shared: rigs[0].w.shared}
	n.layout.Store(rigs[0].ports)
	for _, r := range rigs {
		n.workers = append(n.workers, r.w)
	}
	return n
}

// randomFlow is a flow from hostA to hostB.
func randomFlow(rng *rand.Rand) *Flow {
	f := &Flow{VNI: 100, SrcMAC: hostA, DstMAC: hostB, DSCP: uint8(rng.IntN(64))}
	var src, dst [16]byte
	for i := range 16 {
		src[i], dst[i] = byte(rng.Uint32()), byte(rng.Uint32())
	}
	f.Src, f.Dst = netip.AddrFrom16(src), netip.AddrFrom16(dst)
	if rng.IntN(2) == 0 {
		f.Src, f.Dst = netip.AddrFrom4([4]byte(src[:4])), netip.AddrFrom4([4]byte(dst[:4]))
	}
	f.Proto = []uint8{6, 17, 132, 1, 47}[rng.IntN(5)]
	if f.Proto != 1 && f.Proto != 47 {
		f.SrcPort, f.DstPort = uint16(rng.Uint32()), uint16(rng.Uint32())
		if f.DstPort == 4791 {
			f.DstPort++ // RoCEv2's queue pair is not part of a Flow
		}
	}
	return f
}

// packet is a frame of f, made by an independent codec.
func packet(t *testing.T, f *Flow, payload int) []byte {
	t.Helper()
	eth := &layers.Ethernet{SrcMAC: f.SrcMAC[:], DstMAC: f.DstMAC[:], EthernetType: layers.EthernetTypeIPv6}
	all := []gopacket.SerializableLayer{eth}
	if f.Src.Is4() {
		eth.EthernetType = layers.EthernetTypeIPv4
		all = append(all, &layers.IPv4{Version: 4, IHL: 5, TTL: 9, TOS: f.DSCP << 2, Protocol: layers.IPProtocol(f.Proto), SrcIP: f.Src.AsSlice(), DstIP: f.Dst.AsSlice()})
	} else {
		all = append(all, &layers.IPv6{Version: 6, HopLimit: 9, TrafficClass: f.DSCP << 2, NextHeader: layers.IPProtocol(f.Proto), SrcIP: f.Src.AsSlice(), DstIP: f.Dst.AsSlice()})
	}
	switch f.Proto {
	case 6:
		all = append(all, &layers.TCP{SrcPort: layers.TCPPort(f.SrcPort), DstPort: layers.TCPPort(f.DstPort), DataOffset: 5})
	case 17:
		all = append(all, &layers.UDP{SrcPort: layers.UDPPort(f.SrcPort), DstPort: layers.UDPPort(f.DstPort)})
	case 132:
		all = append(all, &layers.SCTP{SrcPort: layers.SCTPPort(f.SrcPort), DstPort: layers.SCTPPort(f.DstPort)})
	}
	all = append(all, gopacket.Payload(make([]byte, payload)))
	b := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true}, all...); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// What Explain says is what the worker then does: for random flows among
// others, with congestion that changes, under every scheme.
func TestExplainIsWhatHappens(t *testing.T) {
	for _, scheme := range balance.Names() {
		t.Run(scheme, func(t *testing.T) {
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			rng := rand.New(rand.NewPCG(seed, 1))
			f := newTwoLeaves(t, scheme)
			f.sayHello()
			n := node(f.a)
			foretold := 0
			for range 400 {
				flow := randomFlow(rng)
				for part := range 3 {
					f.a.w.shared.leaf.To.Update(0, uint8(rng.IntN(2)), uint8(rng.IntN(8)), f.a.now)
					x, err := n.Explain(flow)
					if err != nil {
						t.Fatal(err)
					}
					if x.Destination != DestinationRemote || len(x.Peers) != 1 || x.Peers[0].VTEP != vtep2 || !x.Peers[0].Capable {
						t.Fatalf("flow %+v goes to %+v", flow, x)
					}
					took := f.exchange(f.a, acc0, packet(t, flow, rng.IntN(1000)))
					if len(took) != 1 {
						t.Fatalf("%d packets left", len(took))
					}
					p := &x.Peers[0]
					switch {
					case p.Uplink != nil && int(*p.Uplink) != took[0]:
						t.Fatalf("packet %d of %+v took uplink %d, explained was %d: %s", part, flow, took[0], *p.Uplink, p.Reason)
					case p.Uplink == nil && !slices.Contains(p.Fresh, took[0]):
						t.Fatalf("packet %d of %+v took uplink %d, explained was one of %v", part, flow, took[0], p.Fresh)
					case p.Uplink != nil:
						foretold++
					}
					// Flows follow their flowlets, and may have none left to chance.
					_, flowlets := f.a.w.leaf.classes[0].Policy.(balance.FlowletPolicy)
					if part > 0 && flowlets && (p.Uplink == nil || x.Flowlet == nil || !x.Flowlet.Active) {
						t.Fatalf("packet %d of %+v has no flowlet: %+v", part, flow, x)
					}
				}
				f.pass(time.Duration(rng.IntN(1000)) * time.Microsecond)
				f.a.settle() // a worker explains at the time of its round
			}
			least, most := 800, 1200
			if _, ok := f.a.w.leaf.classes[0].Policy.(balance.Explainer); !ok {
				least, most = 0, 0
			} else if scheme == "ecmp" || strings.HasPrefix(scheme, "static") {
				least = most
			}
			if foretold < least || foretold > most {
				t.Errorf("%d of 1200 packets were foretold, want %d to %d", foretold, least, most)
			}
		})
	}
}

func TestExplainSeesWhyAFlowletStays(t *testing.T) {
	f := newTwoLeaves(t, "conga")
	f.sayHello()
	n := node(f.a)
	flow := &Flow{VNI: 100, SrcMAC: hostA, DstMAC: hostB, Src: netip.MustParseAddr("172.16.0.1"), Dst: netip.MustParseAddr("172.16.0.2"), Proto: 17, SrcPort: 7, DstPort: 53}
	took := f.exchange(f.a, acc0, packet(t, flow, 10))[0]
	f.a.w.shared.leaf.To.Update(0, uint8(took), 5, f.a.now)
	x, err := n.Explain(flow)
	if err != nil {
		t.Fatal(err)
	}
	p := &x.Peers[0]
	if p.Uplink == nil || int(*p.Uplink) != took || !slices.Equal(p.Fresh, []int{1 - took}) {
		t.Errorf("on uplink %d, which is congested: %+v", took, p)
	}
	if u := p.Uplinks[took]; u.Remote != 5 || !u.RemoteKnown || u.Combined == nil || *u.Combined != 5 || u.Port != f.a.w.cfg.Ports[int(up0)+took].Name {
		t.Errorf("uplink %+v", u)
	}
	f.pass(time.Millisecond) // its flowlet ends
	f.a.settle()
	if x, err = n.Explain(flow); err != nil {
		t.Fatal(err)
	}
	if p = &x.Peers[0]; p.Uplink == nil || int(*p.Uplink) != 1-took || x.Flowlet.Active || x.Flowlet.Idle < time.Millisecond {
		t.Errorf("after the flowlet: %+v, flowlet %+v", p, x.Flowlet)
	}
}

// A flow is at the worker that saw it last.
func TestExplainAsksTheWorkerThatKnows(t *testing.T) {
	cfg := leafConfig()
	cfg.Scheme = "letflow"
	a, b := newRig(t, cfg, leafTables()), newRig(t, cfg, leafTables())
	b.w.id = 1
	n := node(a, b)
	flow := &Flow{VNI: 100, SrcMAC: hostA, DstMAC: hostB, Src: netip.MustParseAddr("10.1.0.1"), Dst: netip.MustParseAddr("10.1.0.2"), Proto: 17}
	for i, r := range []*rig{b, a, b} {
		for _, all := range []*rig{a, b} {
			all.now = all.now.Add(time.Second)
			all.send(up0, wrap(vtep2, own(), 100, udp4(bcast, hostB, 0, 1, 10), nil))
		}
		r.send(acc0, packet(t, flow, 10))
		x, err := n.Explain(flow)
		if err != nil {
			t.Fatal(err)
		}
		if x.Worker != r.w.id || x.Flowlet == nil || !x.Flowlet.Active {
			t.Errorf("packet %d came to worker %d, explained was %+v", i, r.w.id, x)
		}
	}
}

func TestExplainDestinations(t *testing.T) {
	cfg := leafConfig()
	cfg.Classes = []Class{{VNI: 100, Protocol: 6, Port: units.Ports{First: 80, Last: 80}, Scheme: "spray"}, {DSCP: 46 + 1, Scheme: "static"}}
	r := newRig(t, cfg, leafTables())
	n := node(r)
	r.send(acc1, udp4(bcast, hostC, 0, 1, 10))
	r.send(up0, wrap(vtep3, own(), 100, udp4(bcast, hostB, 0, 1, 10), nil))
	ip := func(dst overlay.MAC, proto uint8, dport uint16) Flow {
		return Flow{VNI: 100, DstMAC: dst, Src: netip.MustParseAddr("10.1.0.1"), Dst: netip.MustParseAddr("10.1.0.2"), Proto: proto, SrcPort: 4, DstPort: dport}
	}
	tests := []struct {
		name, destination, port, scheme, hashed string
		flow                                    Flow
		peers                                   []netip.Addr
	}{
		{"remote", DestinationRemote, "", "ecmp", "5-tuple", ip(hostB, 17, 53), []netip.Addr{vtep3}},
		{"a class", DestinationRemote, "", "spray", "5-tuple", ip(hostB, 6, 80), []netip.Addr{vtep3}},
		{"a class by DSCP", DestinationRemote, "", "static", "IP addresses and protocol",
			Flow{VNI: 100, DstMAC: hostB, Src: netip.MustParseAddr("fd00::1"), Dst: netip.MustParseAddr("fd00::2"), Proto: 58, DSCP: 46}, []netip.Addr{vtep3}},
		{"local", DestinationLocal, "acc1", "ecmp", "IP addresses and protocol", ip(hostC, 1, 0), nil},
		{"not learned", DestinationFlooded, "", "ecmp", "5-tuple", ip(hostA, 17, 53), []netip.Addr{vtep2, vtep3}},
		{"no MAC", DestinationUnnamed, "", "ecmp", "5-tuple", ip(overlay.MAC{}, 17, 53), []netip.Addr{vtep2, vtep3}},
		{"group", DestinationFlooded, "", "ecmp", "MAC addresses and EtherType 0x0806",
			Flow{VNI: 100, SrcMAC: hostA, DstMAC: bcast}, []netip.Addr{vtep2, vtep3}},
		{"RoCE", DestinationRemote, "", "ecmp", "5-tuple (RoCEv2: without the queue pair, which belongs to it)", ip(hostB, 17, 4791), []netip.Addr{vtep3}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			x, err := n.Explain(&tt.flow)
			if err != nil {
				t.Fatal(err)
			}
			var peers []netip.Addr
			for _, p := range x.Peers {
				peers = append(peers, p.VTEP)
				if len(p.Uplinks) != 2 || p.Capable {
					t.Errorf("peer %+v", p)
				}
			}
			if x.Destination != tt.destination || x.Port != tt.port || x.Scheme != tt.scheme || x.Hashed != tt.hashed || !slices.Equal(peers, tt.peers) {
				t.Errorf("explained %+v", x)
			}
		})
	}
}

func TestExplainRefusesWhatCannotBe(t *testing.T) {
	n := node(newRig(t, leafConfig(), leafTables()))
	v4, v6 := netip.MustParseAddr("10.1.0.1"), netip.MustParseAddr("fd00::1")
	for name, f := range map[string]Flow{
		"two versions":       {VNI: 100, Src: v4, Dst: v6},
		"one address":        {VNI: 100, Src: v4, DstMAC: hostB},
		"ports without IP":   {VNI: 100, SrcMAC: hostA, DstMAC: hostB, Proto: 6},
		"one MAC":            {VNI: 100, SrcMAC: hostA},
		"sent from a group":  {VNI: 100, SrcMAC: bcast, DstMAC: hostB},
		"VNI not here":       {VNI: 101, SrcMAC: hostA, DstMAC: hostB},
		"DSCP of seven bits": {VNI: 100, Src: v4, Dst: v4, DSCP: 64},
	} {
		if x, err := n.Explain(&f); err == nil {
			t.Errorf("%s: explained %+v", name, x)
		}
	}
	spine := node(newRig(t, spineConfig(), spineTables()))
	if _, err := spine.Explain(&Flow{VNI: 100, SrcMAC: hostA, DstMAC: hostB}); err == nil {
		t.Error("a spine explained a flow")
	}
	if c, f, l := spine.Congestion(), spine.Flowlets(-1), spine.FDB(-1); len(c)+len(f)+len(l.Entries) != 0 {
		t.Errorf("a spine has %v, %v, %v", c, f, l)
	}
}

// Asking comes before the first tables, too.
func TestInspectWithoutTables(t *testing.T) {
	r := newRig(t, leafConfig(), leafTables())
	r.w.view = nil
	n := node(r)
	if _, err := n.Explain(&Flow{VNI: 100, SrcMAC: hostA, DstMAC: hostB}); err == nil {
		t.Error("explained without tables")
	}
	if c, l := n.Congestion(), n.FDB(-1); len(c)+len(l.Entries) != 0 {
		t.Errorf("without tables there are %v and %v", c, l)
	}
}

func TestCongestionShowsTheTables(t *testing.T) {
	f := newTwoLeaves(t, "conga")
	if c := node(f.a).Congestion(); len(c) != 1 || c[0].Capable || len(c[0].FromLeaf) != 0 || c[0].Paths[0].RemoteKnown {
		t.Errorf("before any greeting: %+v", c)
	}
	f.sayHello()
	f.link = func(uplink int, v overlay.VXLAN) { v.RaiseCE(uint8(3 + uplink)) }
	for i := range 32 {
		f.exchange(f.a, acc0, udp4(hostB, hostA, 0, uint16(i), 100))
		f.exchange(f.b, acc0, udp4(hostA, hostB, 0, uint16(i), 100))
	}
	c := node(f.a).Congestion()
	if len(c) != 1 || c[0].VTEP != vtep2 || !c[0].Capable || len(c[0].Paths) != 2 || len(c[0].FromLeaf) != 2 {
		t.Fatalf("%+v", c)
	}
	for i, p := range c[0].Paths {
		if p.Remote != uint8(3+i) || !p.RemoteKnown || !p.Usable || p.Port != []string{"up0", "up1"}[i] || p.RemoteAge > time.Second {
			t.Errorf("path %+v", p)
		}
		if tag := c[0].FromLeaf[i]; tag.Tag != uint8(i) || tag.Metric != uint8(3+i) {
			t.Errorf("from leaf: %+v", tag)
		}
	}
	down := leafTables()
	down.Peers = []Peer{{VTEP: vtep2, Hops: []HopID{1}}}
	down.VNIs[0].Flood, down.VNIs[1].Flood = nil, nil
	f.a.publish(down)
	if c = node(f.a).Congestion(); c[0].Paths[0].Usable || !c[0].Paths[1].Usable {
		t.Errorf("with one next hop: %+v", c[0].Paths)
	}
}

func TestFlowletsAreCountedAndLimited(t *testing.T) {
	cfg := leafConfig()
	cfg.Scheme = "letflow"
	cfg.Options.Keys = flowletKeys(4 * lookFlowlets)
	cfg.Classes = []Class{{Protocol: 6, Scheme: "ecmp"}, {Protocol: 17, Port: units.Ports{First: 1, Last: 1}, Scheme: "conga"}}
	r := newRig(t, cfg, leafTables())
	n := node(r)
	r.send(up0, wrap(vtep2, own(), 100, udp4(bcast, hostB, 0, 1, 10), nil))
	for i := range 100 {
		r.send(acc0, udp4(hostB, hostA, 0, uint16(1000+i), 10))
		if i == 49 {
			r.now = r.now.Add(time.Second)
		}
	}
	all := n.Flowlets(-1)
	if len(all) != 2 || all[0].Class != 1 || all[0].Scheme != "conga" || all[0].Used != 0 || all[1].Class != 2 || all[1].Scheme != "letflow" {
		t.Fatalf("%+v", all)
	}
	f := all[1]
	active := 0
	for _, e := range f.Entries {
		if e.Active {
			active++
		}
		if e.Active != (e.Idle < time.Second/2) || e.Port == "" {
			t.Errorf("entry %+v", e)
		}
	}
	if f.Used != len(f.Entries) || f.Used < 90 || f.Active != active || active < 40 || active > 50 || f.Started != 100 || f.Size != 4*lookFlowlets {
		t.Errorf("used %d, active %d (%d), started %d, size %d", f.Used, f.Active, active, f.Started, f.Size)
	}
	f = n.Flowlets(active + 5)[1]
	if len(f.Entries) != active+5 || !f.Entries[active-1].Active || f.Entries[active].Active || f.Used < 90 {
		t.Errorf("limited to five more than are active: %d", len(f.Entries))
	}
	if f = n.Flowlets(0)[1]; len(f.Entries) != 0 || f.Active != active {
		t.Errorf("limited to none: %+v", f)
	}
}

func TestFDBMergesWorkers(t *testing.T) {
	a, b := newRig(t, leafConfig(), leafTables()), newRig(t, leafConfig(), leafTables())
	b.w.id = 1
	n := node(a, b)
	a.send(acc0, udp4(bcast, hostA, 20, 1, 10))
	a.send(up0, wrap(vtep3, own(), 100, udp4(bcast, hostB, 0, 1, 10), nil))
	b.now = b.now.Add(time.Minute)
	b.send(acc1, udp4(bcast, hostC, 0, 1, 10))
	b.send(up0, wrap(vtep2, own(), 100, udp4(bcast, hostB, 0, 1, 10), nil)) // it moved
	a.now = b.now
	a.settle()
	got := n.FDB(-1)
	want := []FDBEntry{
		{VNI: 100, MAC: hostB.String(), VTEP: vtep2},
		{VNI: 100, MAC: hostC.String(), Port: "acc1"},
		{VNI: 200, MAC: hostA.String(), Port: "acc0", VLAN: 20},
	}
	for i := range got.Entries {
		if got.Entries[i].Age > time.Minute+time.Second {
			t.Errorf("age of %+v", got.Entries[i])
		}
		got.Entries[i].Age = 0
	}
	if got.Total != 2 || !slices.Equal(got.Entries, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got = n.FDB(1); len(got.Entries) != 1 || got.Total != 2 {
		t.Errorf("limited: %+v", got)
	}
}

// The names in the API are a promise, written in lower case with underscores.
func TestAnswersEncode(t *testing.T) {
	f := newTwoLeaves(t, "conga")
	n := node(f.a)
	x, err := n.Explain(&Flow{VNI: 100, SrcMAC: hostA, DstMAC: hostB})
	if err != nil {
		t.Fatal(err)
	}
	name := regexp.MustCompile(`"([^"]*)":`)
	for _, v := range []any{x, n.Congestion(), n.Flowlets(1), n.FDB(2)} {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		found := name.FindAllSubmatch(b, -1)
		if len(found) < 3 {
			t.Errorf("few names in %s", b)
		}
		for _, m := range found {
			if !regexp.MustCompile(`^[a-z0-9_]+$`).Match(m[1]) {
				t.Errorf("name %q in %s", m[1], b)
			}
		}
	}
}

// Asking, from several goroutines, a worker that runs, while schemes change.
func TestAskingARunningNode(t *testing.T) {
	cfg := leafConfig()
	cfg.Scheme, cfg.Polling, cfg.Options.Keys = "conga", Busy, flowletKeys(2*lookFlowlets)
	cfg.FDBSize = 8192
	r := newRig(t, cfg, leafTables())
	n := node(r)
	if err := r.w.mail.open(); err != nil {
		t.Fatal(err)
	}
	defer r.w.mail.close()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.w.run(ctx) }()
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			for range 20 {
				if c := n.Congestion(); len(c) != 2 {
					t.Errorf("%d peers", len(c))
				}
				n.Flowlets(10)
				n.FDB(10)
				if _, err := n.Explain(&Flow{VNI: 100, SrcMAC: hostA, DstMAC: hostB}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for i := range 20 {
		if err := n.SetSchemes([]string{"conga", "letflow"}[i%2], balance.Options{Keys: flowletKeys(64)}, nil); err != nil {
			t.Error(err)
		}
	}
	wg.Wait()
	if f := n.Flowlets(0); len(f) != 1 || f[0].Size != 64 {
		t.Errorf("flowlet tables after the changes: %+v, want one of 64 entries", f)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
