package dataplane

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/loomfabric/loom/overlay"
)

// arrival asks about frames to an address that come from a peer.
func arrival(from netip.Addr, in string, vni overlay.VNI, dst overlay.MAC) *InnerFlow {
	return &InnerFlow{From: from, In: in, VNI: vni, DstMAC: dst}
}

// TestExplainArrival: what is said of packets out of the fabric is what becomes of them.
func TestExplainArrival(t *testing.T) {
	r := newRig(t, leafConfig(), leafTables())
	n := node(r)
	r.send(acc0, udp4(bcast, hostA, 0, 1, 10))
	uplink := r.w.cfg.Ports[up0].Name
	for name, tt := range map[string]struct {
		ask         *InnerFlow
		destination string
		ports       int
		drop        string
	}{
		"local":          {arrival(vtep2, uplink, 100, hostA), DestinationLocal, 1, ""},
		"unknown":        {arrival(vtep2, uplink, 100, hostB), DestinationFlooded, len(r.w.view.members[0]), ""},
		"group":          {arrival(vtep2, "", 100, bcast), DestinationFlooded, len(r.w.view.members[0]), ""},
		"no network":     {arrival(vtep2, uplink, 4711, hostA), "", 0, "vni_unknown"},
		"no peer":        {arrival(netip.MustParseAddr("10.9.9.9"), uplink, 100, hostA), "", 0, "vtep_unknown"},
		"no uplink":      {arrival(vtep2, "nosuch", 100, hostA), "", 0, "reverse_path"},
		"by access port": {arrival(vtep2, r.w.cfg.Ports[acc0].Name, 100, hostA), "", 0, "reverse_path"},
	} {
		x, err := n.ExplainArrival(tt.ask)
		if err != nil || x.Destination != tt.destination || len(x.Ports) != tt.ports || x.Drop != tt.drop || x.Reason == "" {
			t.Errorf("%s: %+v, %v", name, x, err)
		}
	}
	if _, err := n.ExplainRoute(&OuterFlow{}); err == nil {
		t.Error("a leaf explains routes")
	}
	// An address behind the fabric.
	r.send(up0, wrap(vtep2, own(), 100, udp4(bcast, hostB, 0, 1, 10), nil))
	if x, err := n.ExplainArrival(arrival(vtep3, "", 100, hostB)); err != nil || x.Drop != "split_horizon" {
		t.Errorf("%+v, %v", x, err)
	}
}

// TestAnnouncedHosts: ARP from hosts and from the fabric says which MAC address goes with
// an IP address, and explanations use it.
func TestAnnouncedHosts(t *testing.T) {
	r := newRig(t, leafConfig(), leafTables())
	n := node(r)
	arp := func(src overlay.MAC, ip byte) []byte {
		b := append(append([]byte{}, bcast[:]...), src[:]...)
		b = append(b, 8, 6, 0, 1, 8, 0, 6, 4, 0, 1)
		b = append(append(b, src[:]...), 10, 0, 0, ip)
		return append(b, make([]byte, 32)...)
	}
	r.send(acc0, arp(hostA, 1))
	r.now = r.now.Add(time.Second)
	r.send(up0, wrap(vtep2, own(), 100, arp(hostB, 2), nil))
	table := n.Hosts(-1)
	if len(table.Hosts) != 2 || table.Total != 2 {
		t.Fatalf("%+v", table)
	}
	a, b := table.Hosts[0], table.Hosts[1]
	if a.MAC != hostA.String() || a.Port != r.w.cfg.Ports[acc0].Name || a.VTEP.IsValid() || a.Age < 900*time.Millisecond || a.VNI != 100 || a.IP != netip.MustParseAddr("10.0.0.1") {
		t.Errorf("%+v", a)
	}
	if b.MAC != hostB.String() || b.Port != "" || b.VTEP != vtep2 {
		t.Errorf("%+v", b)
	}
	if one := n.Hosts(1); len(one.Hosts) != 1 || one.Total != 2 {
		t.Errorf("%+v", one)
	}
	x, err := n.Explain(&Flow{VNI: 100, Src: netip.MustParseAddr("10.0.0.1"), Dst: netip.MustParseAddr("10.0.0.2"), Proto: 17, SrcPort: 1, DstPort: 2})
	if err != nil || x.Destination != DestinationRemote || x.DstMAC != hostB.String() || x.Announced == nil || x.Peers[0].Uplinks[0].NextHop.Port == "" {
		t.Errorf("%+v, %v", x, err)
	}
	x, err = n.Explain(&Flow{VNI: 100, Src: netip.MustParseAddr("10.0.0.2"), Dst: netip.MustParseAddr("10.0.0.1"), Proto: 17})
	if err != nil || x.Destination != DestinationLocal || x.Port != a.Port || x.Drop != "" {
		t.Errorf("%+v, %v", x, err)
	}
	x, err = n.Explain(&Flow{VNI: 100, Src: netip.MustParseAddr("10.0.0.2"), Dst: netip.MustParseAddr("10.0.0.3"), Proto: 17})
	if err != nil || x.Destination != DestinationUnnamed || x.DstMAC != "" || x.Announced != nil {
		t.Errorf("%+v, %v", x, err)
	}
}

// TestExplainRoute: the next hop that a spine is said to choose is the one that it
// chooses, for packets with the fabric's fields and without.
func TestExplainRoute(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	r := newRig(t, spineConfig(), spineTables())
	n := node(r)
	taken := make(map[int]bool)
	for range 200 {
		flow, selector := rng.IntN(1<<14), uint8(rng.IntN(16))
		fabric := (*overlay.Fabric)(nil)
		ask := &OuterFlow{Src: own(), Dst: vtep2, SrcPort: 0xc000 | uint16(flow), In: "dn2"}
		if rng.IntN(2) == 0 {
			fabric = &overlay.Fabric{Capable: true, Path: overlay.MakePathID(1, selector)}
			ask.Capable, ask.Selector = true, &selector
		}
		x, err := n.ExplainRoute(ask)
		if err != nil || x.NextHop == nil || x.Drop != "" || len(x.NextHops) != 2 || x.Prefix.String() != "10.0.0.2/32" {
			t.Fatalf("%+v, %v", x, err)
		}
		out := r.send(dn2, viaSpine(vtep2, flow, fabric))
		took := slices.IndexFunc(out, func(sent [][]byte) bool { return len(sent) == 1 })
		if want := slices.IndexFunc(r.w.cfg.Ports, func(p PortConfig) bool { return p.Name == x.NextHop.Port }); took != want {
			t.Fatalf("%+v: took port %d, explained was %d: %s", ask, took, want, x.Reason)
		}
		taken[took] = true
	}
	if len(taken) < 2 {
		t.Errorf("all packets took one port")
	}
	if x, err := n.ExplainRoute(&OuterFlow{Src: own(), Dst: netip.MustParseAddr("10.77.0.1")}); err != nil || x.Drop != "no_route" || x.Prefix.IsValid() {
		t.Errorf("%+v, %v", x, err)
	}
	if x, err := n.ExplainRoute(&OuterFlow{Src: own(), Dst: vtep2, In: "nosuch"}); err != nil || x.Drop != "reverse_path" {
		t.Errorf("%+v, %v", x, err)
	}
	if _, err := n.ExplainRoute(&OuterFlow{Src: own()}); err == nil {
		t.Error("a flow without an end is explained")
	}
	if _, err := n.ExplainArrival(&InnerFlow{}); err == nil {
		t.Error("a spine explains arrivals")
	}
}
