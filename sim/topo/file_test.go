package topo

import (
	"testing"

	"github.com/loomfabric/loom/config/fabric"
	"github.com/loomfabric/loom/config/vocab"
	"github.com/loomfabric/loom/sim/engine"
	"github.com/loomfabric/loom/sim/network"
	"github.com/loomfabric/loom/sim/node"
)

const someFabric = `
name: some
leaves: 3
spines: 2
links: {rate: 100Mbit, delay: 50us, queue: 64KB, parallel: 2, ecn: {kmin: 10KB, kmax: 40KB, pmax: 0.1}}
hosts: {per_leaf: 1, link: {rate: 50Mbit}, list: [{name: client, leaf: L2}]}
vnis: [{vni: 100}]
overrides:
  - {link: L1-S1.0, rate: 50Mbit, direction: down}
  - {link: L0-S0.1, delay: 1ms, queue: 8KB}
faults:
  - {at: 0s, fail: L2-S0.0}
  - {at: 20ms, restore: L2-S0.0}
`

// A fabric.yaml means here what it means in the lab: names, places of uplinks,
// both directions of overrides, faults.
func TestAFabricFile(t *testing.T) {
	f, err := fabric.Parse("some.yaml", []byte(someFabric))
	if err != nil {
		t.Fatal(err)
	}
	top := mustBuild(t, FromFile(f), node.DefaultConfig())
	want := f.Expand()
	if len(top.Hosts) != len(want.Hosts) {
		t.Fatalf("%d hosts, want %d", len(top.Hosts), len(want.Hosts))
	}
	for i, h := range want.Hosts {
		p := top.Leaves[h.Leaf].HostPort(network.HostID(i))
		if top.HostNames[i] != h.Name || int(top.LeafOf[i]) != h.Leaf || p == nil || p.Rate != uint64(h.Access.Rate) {
			t.Errorf("host %d is %s behind leaf %d, want %+v", i, top.HostNames[i], top.LeafOf[i], h)
		}
	}
	for i, l := range want.Links {
		got := top.Links[i]
		if got.Name != l.Name || got.A.Index != l.LeafUplinkID {
			t.Errorf("link %d is %s by uplink %d, want %s by %d", i, got.Name, got.A.Index, l.Name, l.LeafUplinkID)
		}
		for j, d := range []vocab.Link{l.Up, l.Down} {
			p := []*network.Port{got.A, got.B}[j]
			ecn := network.ECN{Kmin: 10_000, Kmax: 40_000, Pmax: 0.1}
			if p.Rate != uint64(d.Rate) || p.Delay.Duration() != d.Delay || p.Limit != uint64(d.Queue) || p.ECN != ecn {
				t.Errorf("%s: %+v, want %+v", p.Name, p.PortConfig, d)
			}
		}
	}
	if n := top.Leaves[2].Paths(0).N; n != 3 {
		t.Errorf("leaf 2 begins with %d paths, want 3", n)
	}
	top.Network.Engine.Run(20 * engine.Millisecond)
	if n := top.Leaves[2].Paths(0).N; n != 4 {
		t.Errorf("leaf 2 has %d paths after the repair, want 4", n)
	}
	if top.Hosts[0].Port.Rate != Unshaped {
		t.Errorf("hosts send at %d", top.Hosts[0].Port.Rate)
	}
}
