package dataplane

import (
	"testing"
	"time"
)

// TestBusy: the time from a round with frames to the next round is busy, sleep and idle
// rounds are not, and bursts are counted that have something in them.
func TestBusy(t *testing.T) {
	r := newRig(t, leafConfig(), leafTables())
	before := r.w.snapshot()
	frame := udp4(bcast, hostA, 0, 1, 10)
	round := func(pass time.Duration, frames int) {
		for range frames {
			if !r.links[acc0].put(frame) {
				t.Fatal("no frame to receive into")
			}
		}
		r.now = r.now.Add(pass)
		r.w.round(r.now)
	}
	round(time.Microsecond, 3)   // the round before was idle: not busy
	round(2*time.Microsecond, 1) // it had frames: busy until now
	round(4*time.Microsecond, 0) // busy until now
	round(8*time.Microsecond, 0) // idle
	after := r.w.snapshot()
	if got := after.Busy - before.Busy; got != 6*time.Microsecond {
		t.Errorf("busy for %v", got)
	}
	if got := after.Filled - before.Filled; got != 2 {
		t.Errorf("%d bursts with frames", got)
	}
	if got := after.Bursts - before.Bursts; got != 4 || after.At != r.now {
		t.Errorf("%d rounds, at %v, want %v", got, after.At, r.now)
	}
}
