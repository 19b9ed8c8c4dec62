package netns

import (
	"sync"
	"testing"
	"time"

	"github.com/loomfabric/loom/internal/testenv"
)

// TestJumboFrames: hosts with an MTU of 9000 talk through leaves and a spine, of which the
// kernel gives and takes such frames in three parts. Packets of every number of parts
// arrive whole, are put in order, and outlive hand-overs.
func TestJumboFrames(t *testing.T) {
	f := up(t, "jumbo.yaml")
	for _, size := range []int{56, 3500, 3812, 3813, 7652, 7653, 8972} { // 28 bytes less than a frame's
		for _, way := range [][2]string{{"h0", "h2"}, {"h3", "h1"}, {"h0", "h1"}} {
			if out, ok := testenv.Ping(t, f.ns[way[0]], f.addr(way[1]), size, 1); !ok {
				t.Errorf("ping from %s to %s with %d bytes:\n%s", way[0], way[1], size, out)
			}
		}
	}
	l0, s0 := f.daemons["L0"], f.daemons["S0"]
	var done sync.WaitGroup
	for _, way := range [][2]string{{"h0", "h2"}, {"h3", "h1"}} {
		done.Go(func() {
			for range 4 {
				if err := tryTransfer(t, f.ns[way[0]], f.ns[way[1]], f.addr(way[1]), 8<<20, 60*time.Second); err != nil {
					t.Errorf("TCP from %s to %s: %v", way[0], way[1], err)
				}
			}
		})
	}
	l0.takeOver(daemons + "/leafd")
	s0.takeOver(daemons + "/spined")
	done.Wait()
	for _, d := range []*daemon{l0, s0} {
		bytes, frames := d.metric("loom_port_received_bytes_total"), d.metric("loom_port_received_frames_total")
		t.Logf("%s received %d bytes in %d frames", d.name, bytes, frames)
		if bytes < 2000*frames {
			t.Errorf("%s received %d bytes in %d frames: hosts did not send long ones", d.name, bytes, frames)
		}
		if n := d.drops("too_big"); n > 0 {
			t.Errorf("%s: %d frames were too big", d.name, n)
		}
		d.balanced()
	}
	if n := f.daemons["L1"].metric("loom_reed_receiver_held_frames_total"); n == 0 {
		t.Error("no frame had to wait to be in order, and none proves that they can")
	}
}
