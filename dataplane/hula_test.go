package dataplane

import (
	"testing"
	"time"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/overlay"
)

// ferry carries what left a leaf to the other one, and what that says at once back, but
// for what goes by the uplinks that are down.
func (f *twoLeaves) ferry(r *rig, out [][][]byte, down [2]bool) {
	to := f.other(r)
	to.now = max(to.now, r.now)
	for u, port := range []PortID{up0, up1} {
		for _, b := range out[port] {
			if down[u] {
				continue
			}
			f.link(u, overlay.VXLAN(b[vxlanAt4:]))
			overlay.Ethernet(b).SetDst(ownMAC)
			f.ferry(to, to.send(port, b), down)
		}
	}
}

// HULA's probes and answers travel between daemons: new flows avoid the path on which
// probes met congestion, and one whose probes are lost.
func TestHULABetweenLeaves(t *testing.T) {
	f := newTwoLeaves(t, "hula")
	ce := [2]uint8{5, 2}
	f.link = func(u int, v overlay.VXLAN) { v.RaiseCE(ce[u]) }
	pass := func(d time.Duration, down [2]bool) {
		for range d / time.Millisecond {
			f.pass(time.Millisecond)
			for _, r := range []*rig{f.a, f.b} {
				r.prove(0)
				f.ferry(r, r.settle(), down)
			}
		}
	}
	port := uint16(100)
	takes := func(want int) {
		t.Helper()
		for range 10 {
			port++
			for _, u := range f.exchange(f.a, acc0, udp4(hostB, hostA, 0, port, 100)) {
				if u != want {
					t.Fatalf("a new flow took uplink %d, want %d", u, want)
				}
			}
		}
	}
	pass(50*time.Millisecond, [2]bool{})
	takes(1)
	ce = [2]uint8{2, 5}
	pass(50*time.Millisecond, [2]bool{})
	takes(0)
	pass(200*time.Millisecond, [2]bool{0: true})
	takes(1)
	own := f.a.w.leaf.classes[0].Policy.Stats().Own.(*balance.HULAStats)
	if own.Probes == 0 || own.Answers == 0 || own.Learned == 0 || own.Silent != 1 || own.Hashed > 1 { // one before the first probe
		t.Errorf("%+v", own)
	}
	for _, r := range []*rig{f.a, f.b} {
		if d := r.drops(); len(d) != 0 {
			t.Errorf("drops: %v", d)
		}
	}
}
