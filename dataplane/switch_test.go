package dataplane

import (
	"net/netip"
	"testing"
	"time"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/internal/drop"
	"github.com/loomfabric/loom/overlay"
)

// caarConfig has the worker's links shaped, so that queues are this side of the wire.
func caarConfig(cfg Config, ports ...PortID) Config {
	cfg.Scheme = "caar"
	for _, p := range ports {
		cfg.Ports[p].Egress.Rate, cfg.Ports[p].Egress.Burst = 10e6, 100
	}
	return cfg
}

// A spine under CAAR tells its neighbours the queue to a leaf, but not those behind which
// the leaf is, and a leaf goes by it: over the frames that pass between them.
func TestCAARTellsAndFollows(t *testing.T) {
	cfg := caarConfig(spineConfig(), dn0, dn1)
	s := newRig(t, cfg, spineTables())
	s.settle()
	for flow := range 60 { // to 10.0.0.2, which is behind dn0 and dn1
		s.links[dn2].put(viaSpine(vtep2, flow, nil))
		s.w.round(s.now)
	}
	if s.w.ports[dn0].egress.data.len() == 0 || s.w.ports[dn1].egress.data.len() == 0 {
		t.Fatalf("queues of %d and %d frames", s.w.ports[dn0].egress.data.len(), s.w.ports[dn1].egress.data.len())
	}
	s.now = s.now.Add(time.Millisecond) // the next slot has begun
	s.w.round(s.now)
	var told []byte
	for _, b := range s.links[dn2].out {
		if overlay.Ethernet(b).EtherType() == overlay.EtherTypeLocal {
			told = b
		}
	}
	if told == nil || len(told) != overlay.LinkMessageLen {
		t.Fatalf("the neighbour was not told; %d frames left", len(s.links[dn2].out))
	}

	l := newRig(t, caarConfig(leafConfig()), leafTables())
	overlay.Ethernet(told).SetDst(ownMAC)
	l.settle()
	took := func() (n [2]int) {
		for flow := range uint16(20) {
			out := l.send(acc0, udp4(hostB, hostA, 0, 100+flow, 100))
			n[0] += len(out[up0])
			n[1] += len(out[up1])
		}
		return n
	}
	l.send(up0, wrap(vtep2, own(), 100, udp4(bcast, hostB, 0, 1, 10), nil)) // hostB is behind vtep2
	if n := took(); n[0] == 0 || n[1] == 0 {
		t.Errorf("of 20 flows %v took each uplink before anything was told", n)
	}
	l.send(up0, told)
	for i, c := range l.w.leaf.classes {
		if own := c.Policy.Stats().Own.(*balance.CAARStats); own.Heard != 1 {
			t.Errorf("class %d counted %+v; drops %v", i, own, l.drops())
		}
	}
	fresh := func() (n [2]int) {
		for flow := range uint16(20) {
			out := l.send(acc0, udp4(hostB, hostA, 0, 500+flow, 100))
			n[0] += len(out[up0])
			n[1] += len(out[up1])
		}
		return n
	}
	if n := fresh(); n[0] != 0 || n[1] != 20 {
		t.Errorf("of 20 new flows %v took each uplink, and the neighbour of the first has a queue", n)
	}
	if d := l.drops(); len(d) != 0 {
		t.Errorf("drops %v", d)
	}
}

// A port that is held sends no data, but control packets, and the worker wakes up when its
// time is over.
func TestPortsAreHeld(t *testing.T) {
	for _, rate := range []uint64{0, 100e6} {
		cfg := leafConfig()
		cfg.Ports[up0].Egress.Rate, cfg.Ports[up0].Egress.Burst = rate, 3000
		cfg.Ports[up1].Egress.Rate, cfg.Ports[up1].Egress.Burst = rate, 3000
		r := newRig(t, cfg, leafTables())
		r.send(up0, wrap(vtep2, own(), 100, udp4(bcast, hostB, 0, 1, 10), nil))
		node, until := leafNode{r.w.leaf}, r.now.Add(time.Millisecond)
		for u := range r.w.leaf.uplinks {
			node.Hold(r.now, u, until)
		}
		out := r.send(acc0, udp4(hostB, hostA, 0, 7, 100))
		if n := len(out[up0]) + len(out[up1]); n != 0 || r.w.held() != 1 {
			t.Fatalf("%d frames left a port that is held", n)
		}
		if q := node.Queue(r.now, 0) + node.Queue(r.now, 1); q == 0 {
			t.Error("no queue is seen")
		}
		if at, backlog := r.w.nextDeadline(r.now); at != until || backlog {
			t.Errorf("the worker sleeps until %v, want %v", at, until)
		}
		control := frame{kind: kindControl, len: 60, in: up0}
		a, _ := r.w.pool.Get()
		r.w.made++
		control.off = uint32(a) + controlAt
		r.w.ports[up0].egress.enqueue(&control)
		r.w.ports[up0].dirty = true
		if out = r.settle(); len(out[up0]) != 1 {
			t.Errorf("%d control packets left", len(out[up0]))
		}
		r.now = until
		if out = r.settle(); len(out[up0])+len(out[up1]) != 1 || r.w.held() != 0 {
			t.Errorf("%d frames left, %d are held", len(out[up0])+len(out[up1]), r.w.held())
		}
		node.Hold(r.now, 0, r.now.Add(time.Hour))
		node.Hold(r.now, 1, r.now.Add(time.Hour))
		r.send(acc0, udp4(hostB, hostA, 0, 7, 100))
		node.Hold(r.now, 0, 0)
		node.Hold(r.now, 1, 0)
		if out = r.settle(); len(out[up0])+len(out[up1]) != 1 {
			t.Error("a port that was let go sends nothing")
		}
	}
}

// A queue is the sum of what waits in all workers.
func TestQueueOfAllWorkers(t *testing.T) {
	q := make(queueOf, 3)
	q.look(0, 100)
	q.look(2, 1000)
	if got := q.look(1, 10); got != 1110 {
		t.Errorf("%d bytes", got)
	}
	if got := q.look(0, 0); got != 1010 {
		t.Errorf("%d bytes", got)
	}
}

// Static routing by destination: packets to one host take one hop, at a leaf by their own
// header and at a spine by that in the tunnel.
func TestStaticByDestination(t *testing.T) {
	to := func(last byte) []byte {
		b := udp4(hostB, hostA, 0, uint16(last)*7, 100)
		copy(b[30:], []byte{10, 1, 0, last})
		return b
	}
	cfg := leafConfig()
	cfg.Scheme = "static-dst"
	r := newRig(t, cfg, leafTables())
	r.send(up0, wrap(vtep2, own(), 100, udp4(bcast, hostB, 0, 1, 10), nil))
	for last := range byte(8) {
		out := r.send(acc0, to(last))
		if len(out[up0]) != int(1-last%2) || len(out[up1]) != int(last%2) {
			t.Errorf("host %d: by %d and %d", last, len(out[up0]), len(out[up1]))
		}
	}
	s := schemeSpine(t, "static-dst", nil)
	for last := range byte(8) {
		for _, f := range []*overlay.Fabric{nil, {Capable: true}, {Capable: true, Shim: true, Scheme: 1}} {
			out := s.send(dn2, wrap(own(), vtep2, 100, to(last), f))
			if len(out[dn0]) != int(1-last%2) || len(out[dn1]) != int(last%2) {
				t.Errorf("host %d at a spine, %+v: by %d and %d; drops %v", last, f, len(out[dn0]), len(out[dn1]), s.drops())
			}
		}
	}
	if n := numberOf(netip.MustParseAddr("10.255.3.7")); n != 3<<8|7 {
		t.Errorf("number %d", n)
	}
}

// Whatever comes in a tunnel, a spine that looks for its host does not break.
func FuzzInnerHost(f *testing.F) {
	whole := wrap(own(), vtep2, 100, udp4(hostB, hostA, 0, 1, 20), &overlay.Fabric{Capable: true, Shim: true})
	for n := 34; n <= len(whole); n += 7 {
		f.Add(whole[:n])
	}
	f.Add(wrap(own6, vtep6, 100, udp4(hostB, hostA, 0, 1, 20), &overlay.Fabric{Capable: true, Shim: true}))
	f.Fuzz(func(t *testing.T, b []byte) {
		var o overlay.Outer
		if overlay.CheckOuter(b, &o) == drop.None {
			innerHost(b, &o, 4789)
		}
	})
}
