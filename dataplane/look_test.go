package dataplane

import (
	"testing"
	"time"

	"github.com/loomfabric/loom/balance"
)

// A worker reads its links' meters for schemes
// that decide by them, and then those that are: flows avoid an uplink that is
// busy with other leaves' traffic. Explaining looks, too.
func TestLinksAreLookedAtToDecide(t *testing.T) {
	looks := map[string]bool{"local": true, "conga": true, "conga-flow": true, "drill": true, "conweave-informed": true, "flowcut": true, "reed": true,
		"caar": true, "caar-flow": true}
	for _, scheme := range balance.Names() {
		t.Run(scheme, func(t *testing.T) {
			f := newTwoLeaves(t, scheme)
			f.sayHello()
			f.pass(20 * time.Millisecond)  // for ConWeave, nothing is under way any more that went by hash
			const full, rate = 40_000, 1e9 // bytes within τ; C·τ is 20 kB
			for _, p := range f.a.w.leaf.uplinks {
				f.a.w.ports[p].egress.rate = rate
			}
			f.a.w.ports[up0].egress.sent(f.a.now, full)
			f.a.w.leaf.looked = 0
			var took [2]int
			for flow := range uint16(20) {
				for _, u := range f.exchange(f.a, acc0, udp4(hostB, hostA, 0, 100+flow, 100)) {
					took[u]++
				}
			}
			if got := f.a.w.leaf.looked != 0; got != looks[scheme] {
				t.Errorf("looked at the links: %v, want %v", got, looks[scheme])
			}
			if _, ok := f.a.w.leaf.classes[0].Policy.(balance.FlowletPolicy); ok && looks[scheme] && took != [2]int{0, 20} {
				t.Errorf("flows took the uplinks %v times, of which the first is full", took)
			}
			f.a.w.leaf.looked, f.a.w.leaf.brain.Local = 0, [balance.MaxPaths]uint8{}
			x, err := node(f.a).Explain(&Flow{VNI: 100, SrcMAC: hostA, DstMAC: hostB})
			if err != nil {
				t.Fatal(err)
			}
			if u := x.Peers[0].Uplinks; u[0].Local != 7 || u[1].Local == 7 {
				t.Errorf("explained by local metrics %d and %d", u[0].Local, u[1].Local)
			}
			if u := x.Peers[0].Uplinks; !balance.Find(scheme).Queues && u[0].Combined != nil && *u[0].Combined != 7 {
				t.Errorf("explained by a combined metric of %d", *u[0].Combined)
			}
		})
	}
}
