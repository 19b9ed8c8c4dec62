package dataplane

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/overlay"
	"github.com/loomfabric/loom/reorder"
)

// What people are shown is what both sides are at.
func TestConWeaveIsShown(t *testing.T) {
	l := holding(t)
	a, b := node(l.a).ConWeave(-1), node(l.b).ConWeave(-1)
	if len(a.Sources) != 1 {
		t.Fatalf("%d sources", len(a.Sources))
	}
	s, lab := a.Sources[0], balance.LabConWeave()
	if s.Scheme != "conweave" || s.Reply != lab.Reply || s.Inactive != lab.Inactive || s.Size != lab.Connections || s.Active != 1 || s.Rerouted != 1 || s.Asked+s.Moved != 0 {
		t.Errorf("source: %+v", s)
	}
	e, is := s.Connections[0], l.connection()
	if e.State != ConnectionRerouted || e.Path != is.Path.String() || e.Old != is.Old.String() || e.Path == e.Old ||
		e.VTEP != l.b.w.cfg.VTEP || e.Hash != is.Hash || e.Port != fmt.Sprint("up", is.Path.Uplink()) {
		t.Errorf("connection: %+v, want %+v", e, is)
	}
	x, err := node(l.a).Explain(&Flow{VNI: 100, SrcMAC: hostA, DstMAC: hostB, Src: netip.MustParseAddr("172.16.0.1"), Dst: netip.MustParseAddr("172.16.0.2"), Proto: 17, SrcPort: 7, DstPort: 53})
	if err != nil || x.Connection == nil || *x.Connection != e {
		t.Errorf("explained by connection %+v (%v), want %+v", x.Connection, err, e)
	}
	d, held := b.Destination, l.b.w.order.held
	if d.Held.Packets != held || d.Held.Queues != 1 || d.Held.Bytes == 0 || d.Peak.Packets < held || d.ResumeExtra != reorder.Lab().ResumeExtra {
		t.Errorf("destination: %+v", d)
	}
	if len(d.Ports) != 1 || d.Ports[0].Port != "acc0" || d.Ports[0].Held != d.Held || d.PortLimit.Queues != reorder.Lab().PortQueues {
		t.Errorf("ports: %+v", d.Ports)
	}
	if few := node(l.a).ConWeave(0); len(few.Sources[0].Connections) != 0 || few.Sources[0].Active != 1 {
		t.Errorf("with no connections asked for: %+v", few.Sources[0])
	}
	if spine := node(newRig(t, spineConfig(), spineTables())).ConWeave(-1); spine != nil {
		t.Errorf("a spine shows %+v", spine)
	}
}

// With selectors, a path is an uplink and one of so many choices of the spines, and
// the header says which.
func TestSelectorsAreStamped(t *testing.T) {
	for _, selectors := range []int{1, 3} {
		cfg := leafConfig()
		cfg.Scheme, cfg.Options.ConWeave = "conweave", balance.LabConWeave()
		cfg.Options.ConWeave.Selectors = selectors
		r := newRig(t, cfg, leafTables())
		r.send(up0, wrap(vtep2, own(), 100, udp4(bcast, hostB, 0, 1, 10), &overlay.Fabric{Capable: true}))
		paths := make(map[overlay.PathID]bool)
		for flow := range uint16(300) {
			out := r.send(acc0, udp4(hostB, hostA, 0, flow, 10))
			for u, port := range []PortID{up0, up1} {
				for _, b := range out[port] {
					d, _ := unwrap(t, b)
					if int(d.Fabric.Path.Uplink()) != u || int(d.Fabric.LBTag) != u {
						t.Fatalf("path %v, tag %d, by uplink %d", d.Fabric.Path, d.Fabric.LBTag, u)
					}
					paths[d.Fabric.Path] = true
				}
			}
		}
		want := 2 * selectors
		if selectors == 1 {
			want = 2 * 16 // each flow has its own, for all uplinks
		}
		if len(paths) != want {
			t.Errorf("%d selectors: flows took %d paths, want %d: %v", selectors, len(paths), want, paths)
		}
	}
}
