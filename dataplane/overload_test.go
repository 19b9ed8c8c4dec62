package dataplane

import (
	"testing"
	"time"

	"github.com/loomfabric/loom/internal/drop"
	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/liveness"
)

// All directions are overloaded with the frames that queues hold most of, and the kernel
// takes little from every port but one. What is dropped is dropped by name and in
// queues, none for want of a frame to receive into: the port that is not congested loses
// nothing, HELLOs go out, and when the load ends everything is as before.
func TestOverloadInAllDirections(t *testing.T) {
	cfg := leafConfig()
	r := newRig(t, cfg, leafTables())
	r.w.leaf.brain.SetHello(r.now)
	r.send(acc0, udp4(bcast, hostA, 0, 1, 10))
	r.send(acc1, udp4(bcast, hostC, 0, 1, 10))
	r.send(up0, wrap(vtep2, own(), 100, udp4(bcast, hostB, 0, 1, 10), nil))
	free := r.w.pool.Free()
	for _, l := range r.links {
		l.keep, l.pace, l.sent = false, 2, 0
	}
	quiet := r.links[acc1]
	quiet.pace = 0

	out, in := udp4(hostB, hostA, 0, 1, 18), wrap(vtep2, own(), 100, udp4(hostA, hostB, 0, 1, 18), nil)
	stream := wrap(vtep2, own(), 100, udp4(hostC, hostB, 0, 1, 18), nil)
	var offered, lost [5]int
	const rounds = 20000
	streamed := 0
	begin := r.now
	for range rounds {
		for range 16 {
			for port, b := range map[PortID][]byte{acc0: out, up0: in, up1: in} {
				offered[port]++
				if !r.links[port].put(b) {
					lost[port]++
				}
			}
		}
		offered[up1]++
		if !r.links[up1].put(stream) {
			lost[up1]++
		}
		streamed++
		r.w.round(r.now)
		r.now += mono.Time(50 * time.Microsecond)
	}
	t.Logf("offered %v, lost %v; drops %v; made %d, free %d of %d", offered, lost, r.drops(), r.w.made, r.w.pool.Free(), r.w.pool.Frames())
	if lost != [5]int{} {
		t.Errorf("of %v frames %v found no frame to be received into", offered, lost)
	}
	for reason, n := range r.drops() {
		if reason != drop.QueueFull && reason != drop.NoBuffer && reason != drop.ControlFull {
			t.Errorf("%d frames were dropped as %v", n, reason)
		}
	}
	if quiet.sent < streamed-burstSize {
		t.Errorf("the port that is not congested got %d of %d frames", quiet.sent, streamed)
	}
	// To two peers by two paths.
	if want := 4 * uint64(r.now.Sub(begin)/liveness.Interval(2)); r.w.made < want {
		t.Errorf("%d HELLOs were made, want %d at least", r.w.made, want)
	}
	r.w.leaf.brain.SetHello(idle)
	for _, l := range r.links {
		l.pace = 0
	}
	for r.w.held() > 0 || r.w.unsent() {
		r.settle()
		r.now += kickDelay
	}
	r.settle()
	if n := r.w.pool.Free(); n < free-2 {
		t.Errorf("%d frames are free after the load, %d were before", n, free)
	}
}
