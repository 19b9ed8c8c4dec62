package peers

import (
	"testing"
	"time"

	"github.com/cilium/ebpf/rlimit"

	"github.com/loomfabric/loom/internal/testenv"
)

// TestFloor sends a few frames through the bed, where an XDP program puts them into tunnels: generator,
// both receivers and the times under way are right.
func TestFloor(t *testing.T) {
	testenv.NeedRoot(t)
	if err := rlimit.RemoveMemlock(); err != nil {
		t.Fatal(err)
	}
	d := newBed(t, &jobs[0], "")
	gen := newGenerator(t, d)
	s, w := encapsulated(d, 64)
	startFloor(t, d)
	for _, r := range []receiver{noBuffers, buffers} {
		to := d.newSink(t, r, &w, false)
		l := gen.send(t, &s, 640)
		time.Sleep(10 * time.Millisecond)
		if good, other := to.count(t, sinkGood), to.count(t, sinkOther); l.frames != 640 || good == 0 || good+other > 640 {
			t.Errorf("receiver %d: %d frames were sent, %d arrived as they should and %d others", r, l.frames, good, other)
		}
		to.close(t)
	}
	to := d.newSink(t, noBuffers, &w, true)
	l := gen.pace(t, &s, 20*time.Microsecond, 0)
	times := to.underWay(t)
	if n := uint64(len(times)); n != l.frames || n != to.count(t, sinkGood) {
		t.Fatalf("%d frames with the time in them were sent, %d arrived as they should, %d times were noted", l.frames, to.count(t, sinkGood), n)
	}
	if first, last := times[0], times[len(times)-1]; first == 0 || last > 5e9 {
		t.Errorf("frames were under way for %d to %d ns", first, last)
	}
	to.close(t)
	// A frame of another network is not what is wanted.
	w.frame[offVXLAN+6]++
	strict := d.newSink(t, noBuffers, &w, false)
	defer strict.close(t)
	gen.send(t, &s, 64)
	if good, other := strict.count(t, sinkGood), strict.count(t, sinkOther); good != 0 || other == 0 {
		t.Errorf("%d frames arrived as they should and %d others, of a wrong network", good, other)
	}
}
