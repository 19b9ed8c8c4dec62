package reorder

import (
	"testing"
	"time"

	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/overlay"
)

// New times count for queues that are taken from now on.
func TestRetime(t *testing.T) {
	p := Lab()
	p.Flows, p.Leaves = 64, 4
	c, err := New[int](p)
	if err != nil {
		t.Fatal(err)
	}
	rerouted := &overlay.Fabric{Capable: true, Shim: true, Rerouted: true, Arg: 1}
	hold := func(now mono.Time, flow uint32) mono.Time {
		if v, _ := c.Arrive(now, 1, flow, rerouted, false, 0, 100, 0); v != Hold {
			t.Fatalf("flow %d: verdict %d", flow, v)
		}
		return c.Deadline()
	}
	const now = mono.Time(1e9)
	if at := hold(now, 1); at.Sub(now) != p.ResumeDefault {
		t.Fatalf("held for %v, want %v", at.Sub(now), p.ResumeDefault)
	}
	if err := c.Retime(time.Millisecond, 2*time.Millisecond, 10*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if at := hold(now, 2); at.Sub(now) != 2*time.Millisecond {
		t.Errorf("held for %v by the new times, want 2ms", at.Sub(now))
	}
	if err := c.Retime(time.Millisecond, 20*time.Millisecond, 10*time.Millisecond); err == nil || c.Params().ResumeDefault != 2*time.Millisecond {
		t.Errorf("a default above the longest hold: %v, %v", err, c.Params().ResumeDefault)
	}
	flushed := 0
	for q, ok := c.Expire(now.Add(p.ResumeDefault)); ok; q, ok = c.Expire(now.Add(p.ResumeDefault)) {
		for _, ok := c.Pop(q); ok; _, ok = c.Pop(q) {
			flushed++
		}
	}
	if flushed != 2 {
		t.Errorf("%d packets are let go, want 2", flushed)
	}
}
