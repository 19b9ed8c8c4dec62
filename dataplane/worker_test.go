package dataplane

import "testing"

// A port whose fill ring ran dry while there were no frames gets some when there
// are, however busy another port is: nothing comes in that would refill it.
func TestStarvedPortIsRefilledWhileOthersAreBusy(t *testing.T) {
	r := newRig(t, leafConfig(), leafTables())
	l := r.links[acc1]
	idle := l.filled // as if they had been received, and all frames were elsewhere
	l.filled = nil
	var taken []uint64
	for a, ok := r.w.pool.Get(); ok; a, ok = r.w.pool.Get() {
		taken = append(taken, a)
	}
	r.w.refill(&r.w.ports[acc1])
	if len(l.filled) != 0 {
		t.Fatal("there are frames left")
	}
	for _, a := range idle {
		r.w.pool.PutFrom(a, r.w.ports[acc1].owner())
	}
	for _, a := range taken {
		r.w.pool.Put(a)
	}
	for range 3 {
		r.links[acc0].put(udp4(hostB, hostA, 0, 1, 10))
		if r.w.round(r.now) == 0 {
			t.Fatal("acc0 is not busy")
		}
	}
	if len(l.filled) != l.size {
		t.Errorf("%d frames to receive into, want %d", len(l.filled), l.size)
	}
}
