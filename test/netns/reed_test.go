package netns

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/loomfabric/loom/config"
	"github.com/loomfabric/loom/internal/testenv"
)

// Ordered spraying over two paths of which one is slower and 3 ms longer: each flow's
// packets take both, and come out in order but for those that the leaf owns up to. TCP
// gets what both paths have together.
func TestReedPutsInOrder(t *testing.T) {
	f := up(t, "conweave.yaml")
	for _, leaf := range []string{"L0", "L1"} {
		f.reconfigure(leaf, func(c *config.Leaf) { c.Scheme = "reed" })
	}
	l0, l1 := f.daemons["L0"], f.daemons["L1"]
	if _, ok := testenv.Ping(t, f.ns["h0"], f.addr("h2"), 56, 5); !ok {
		t.Fatal("no way from h0 to h2")
	}
	o := sendNumbered(t, f.ns["h0"], f.ns["h2"], f.addr("h2"), 8, 2*time.Millisecond, 1000, 3*time.Second)
	held := l1.metric("loom_reed_receiver_held_frames_total")
	owned := func() (n uint64) {
		for _, name := range []string{"late_frames", "no_flow_frames", "exhausted"} {
			n += uint64(l1.metric("loom_reed_receiver_" + name + "_total"))
		}
		return n
	}
	t.Logf("%d of %d datagrams came, %d out of order; %d of %d frames took another uplink than the one before, %d were held; settled %d, expired %d, owned up to %d", o.got, o.sent, o.late,
		l0.metric("loom_reed_moves_total"), l0.metric("loom_reed_frames_total"), held,
		l1.metric("loom_reed_receiver_settled_total"), l1.metric("loom_reed_receiver_expired_total"), owned())
	if held < 100 {
		t.Errorf("%d frames held prove nothing", held)
	}
	if given := l0.metric("loom_path_given_up_total"); o.late > int(owned()) && given == 0 {
		t.Errorf("%d datagrams came out of order, and the leaf owns up to %d", o.late, owned())
	}
	if o.got < o.sent/2 {
		t.Errorf("%d of %d datagrams came", o.got, o.sent)
	}

	var done sync.WaitGroup
	for _, way := range [][2]string{{"h0", "h2"}, {"h3", "h1"}} {
		done.Go(func() {
			if err := tryTransfer(t, f.ns[way[0]], f.ns[way[1]], f.addr(way[1]), 2<<20, 40*time.Second); err != nil {
				t.Errorf("TCP from %s to %s: %v", way[0], way[1], err)
			}
		})
	}
	done.Wait()
	eventually(t, 5*time.Second, func() string {
		if n := l1.metric("loom_reed_receiver_waiting_frames"); n != 0 {
			return fmt.Sprintf("%d frames are still held", n)
		}
		return ""
	})
}
