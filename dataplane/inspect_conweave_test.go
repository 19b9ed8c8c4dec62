package dataplane

import (
	"cmp"
	"fmt"
	"iter"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/internal/mono"
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
	if e.State != balance.ConnectionRerouted || e.Path != is.Path.String() || e.Old != is.Old.String() || e.Path == e.Old ||
		e.VTEP != l.b.w.cfg.VTEP || e.Hash != is.Hash || e.Port != fmt.Sprint("up", is.Path.Uplink()) {
		t.Errorf("connection: %+v, want %+v", e, is)
	}
	x, err := node(l.a).Explain(&Flow{VNI: 100, SrcMAC: hostA, DstMAC: hostB, Src: netip.MustParseAddr("172.16.0.1"), Dst: netip.MustParseAddr("172.16.0.2"), Proto: 17, SrcPort: 7, DstPort: 53})
	if err != nil || x.Connection == nil || *x.Connection != e {
		t.Errorf("explained by connection %+v (%v), want %+v", x.Connection, err, e)
	}
	d, held := b.Destination, l.b.held()
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

// timedPolicy counts what its owner looks at. Nothing but a ConWeavePolicy is seen
// of it.
type timedPolicy struct {
	balance.ConWeavePolicy
	connections, marks atomic.Int64
}

func (p *timedPolicy) counted(all iter.Seq[balance.Connection]) iter.Seq[balance.Connection] {
	return func(yield func(balance.Connection) bool) {
		for c := range all {
			if p.connections.Add(1); !yield(c) {
				return
			}
		}
	}
}

func (p *timedPolicy) Connections(now mono.Time, from, to int) iter.Seq[balance.Connection] {
	return p.counted(p.ConWeavePolicy.Connections(now, from, to))
}

func (p *timedPolicy) BusyUntil(now mono.Time, leaf uint16, path overlay.PathID) (mono.Time, bool) {
	p.marks.Add(1)
	return p.ConWeavePolicy.BusyUntil(now, leaf, path)
}

// However much there is to list, frames wait for a part of it only, and what is
// listed is right all the same: the part is that of the whole which was asked for.
func TestConWeaveIsLookedAtInParts(t *testing.T) {
	cfg, tables := leafConfig(), leafTables()
	params := labConWeave()
	params.Source.Inactive, params.Source.Connections, params.Source.Selectors = 30*time.Millisecond, 1<<14, 16
	useConWeave(&cfg, params)
	for len(tables.Peers) < MaxPeers {
		tables.Peers = append(tables.Peers, Peer{})
	}
	r := newRig(t, cfg, tables)
	p := &timedPolicy{ConWeavePolicy: r.w.leaf.classes[0].Policy.(balance.ConWeavePolicy)}
	r.prove(0)
	r.send(up0, wrap(vtep2, own(), 100, udp4(bcast, hostB, 0, 1, 10), &overlay.Fabric{Capable: true}))
	view := balance.View{Paths: r.w.view.paths, Capable: r.w.shared.leaf.Capable}
	for i := range uint32(1 << 15) { // twice what there is room for
		p.Choose(r.now.Add(time.Duration(i*7919%1000)*time.Microsecond), &view, []balance.Packet{{Hash: i * 2654435761}})
	}
	r.now = r.now.Add(time.Millisecond)
	r.settle()
	r.w.leaf.classes[0].Policy = p
	n := node(r)
	var most, marks int64
	ended := make(chan struct{})
	stop := atomic.Bool{}
	r.w.begin() // from here on this goroutine is the worker, which looks at its mail between bursts
	go func() {
		defer close(ended)
		for !stop.Load() {
			r.w.mail.read()
			most, marks = max(most, p.connections.Swap(0)), max(marks, p.marks.Swap(0))
			time.Sleep(10 * time.Microsecond)
		}
	}()
	all := n.ConWeave(-1).Sources[0]
	for _, limit := range []int{0, 1, 7, 2000, 1 << 20} {
		some := n.ConWeave(limit).Sources[0]
		if !slices.Equal(some.Connections, all.Connections[:min(limit, len(all.Connections))]) {
			t.Errorf("limit %d lists %d connections, not the first of all", limit, len(some.Connections))
		}
		if some.Active != all.Active || some.Asked != all.Asked {
			t.Errorf("limit %d: %d of %d connections, %d of %d asked", limit, some.Active, all.Active, some.Asked, all.Asked)
		}
	}
	stop.Store(true)
	<-ended
	r.w.end()
	if all.Active != 1<<14 || all.Active != len(all.Connections) || all.Active != all.Asked {
		t.Errorf("%d connections are active, %d asked, %d listed", all.Active, all.Asked, len(all.Connections))
	}
	if !slices.IsSortedFunc(all.Connections, func(a, b ConnectionEntry) int {
		return cmp.Or(cmp.Compare(a.Idle, b.Idle), cmp.Compare(a.Hash, b.Hash))
	}) {
		t.Error("they are not listed in order")
	}
	if most == 0 || most > 4*lookConnectionSets || marks == 0 || marks > lookPaths {
		t.Errorf("frames waited for %d connections and %d paths to be looked at", most, marks)
	}
	if x := r.w.leaf.connectionOf(p, all.Connections[3].Hash); x == nil || *x != all.Connections[3] || p.connections.Load() != 0 {
		t.Errorf("one of them: %+v, want %+v; %d connections looked at", x, all.Connections[3], p.connections.Load())
	}
}

// With selectors, a path is an uplink and one of so many choices of the spines, and
// the header says which.
func TestSelectorsAreStamped(t *testing.T) {
	for _, selectors := range []int{1, 3} {
		cfg := leafConfig()
		p := labConWeave()
		p.Source.Selectors = selectors
		useConWeave(&cfg, p)
		r := newRig(t, cfg, leafTables())
		r.prove(0)
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
