package dataplane

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/overlay"
)

// Both sides of ordered spraying are shown: flows with the number of their next packet, and
// what waits for a number at the other end.
func TestSprayIsShown(t *testing.T) {
	cfg := leafConfig()
	cfg.Scheme = "reed"
	r := known(t, cfg)
	r.prove(0)
	for flow := range uint16(3) {
		for range 5 + flow {
			r.now = r.now.Add(time.Microsecond)
			r.send(acc0, udp4(hostB, hostA, 0, flow, 100))
		}
	}
	s := node(r).Spray(-1)
	if s.Active != 3 || len(s.Sources) != 3 || len(s.Held) != 0 {
		t.Fatalf("%+v", s)
	}
	for i := range s.Sources { // those that sent last first
		f, flow := &s.Sources[i], 2-i
		if f.Number != uint16(5+flow) || f.VTEP != vtep2 || f.Scheme != "reed" || f.Port != fmt.Sprint("up", f.Uplink) || f.Hash == 0 || f.Held != 0 {
			t.Errorf("flow %d: %+v", flow, f)
		}
	}
	if few := node(r).Spray(1); few.Active != 3 || !slices.Equal(few.Sources, s.Sources[:1]) {
		t.Errorf("one of them: %+v", few)
	}
	for _, number := range []overlay.Tstamp{0, 2, 3} {
		r.send(up0, wrap(vtep2, own(), 100, udp4(hostA, hostB, 0, 9, 100), &overlay.Fabric{Capable: true, Shim: true, Scheme: balance.Find("reed").Wire, Arg: number, Rerouted: true}))
	}
	r.send(up0, wrap(vtep2, own(), 100, udp4(hostA, hostB, 0, 10, 100), &overlay.Fabric{Capable: true, Shim: true, Scheme: balance.Find("reed").Wire})) // nothing of its flow waits
	r.now = r.now.Add(100 * time.Microsecond)
	r.settle()
	s = node(r).Spray(-1)
	if len(s.Held) != 1 || s.Active != 4 {
		t.Fatalf("%+v", s)
	}
	if f := s.Held[0]; f.Number != 1 || f.Held != 2 || f.VTEP != vtep2 || f.Scheme != "reed" || f.Idle < 100*time.Microsecond || f.Idle > time.Millisecond {
		t.Errorf("what waits: %+v", f)
	}
	r.w.shared.leaf.Capable.Revoke(0, overlay.Left)
	r.send(acc0, udp4(hostB, hostA, 0, 99, 100)) // plain: what was numbered before is none of the peer's any more
	if s = node(r).Spray(-1); len(s.Sources) != 0 || len(s.Held) != 1 {
		t.Errorf("the peer has left: %+v", s)
	}
	r.now = r.now.Add(time.Second)
	r.settle()
	if s = node(r).Spray(-1); s.Active != 0 || len(s.Sources)+len(s.Held) != 0 {
		t.Errorf("a second later: %+v", s)
	}
}
