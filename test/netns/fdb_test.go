package netns

import (
	"fmt"
	"testing"
	"time"

	"github.com/loomfabric/loom/config"
	"github.com/loomfabric/loom/overlay"
)

// gratuitousARP is what a host sends that has come to a new place.
func gratuitousARP(mac overlay.MAC, ip [4]byte) []byte {
	b := append(append([]byte{}, broadcast[:]...), mac[:]...)
	b = append(b, 0x08, 0x06, 0, 1, 0x08, 0, 6, 4, 0, 1)
	b = append(append(b, mac[:]...), ip[:]...)
	b = append(append(b, 0, 0, 0, 0, 0, 0), ip[:]...)
	return append(b, make([]byte, 60-len(b))...)
}

// TestMove: an address that appears behind another leaf is followed at once.
func TestMove(t *testing.T) {
	f := up(t, "pair.yaml")
	h1 := f.host("h1")
	mac := overlay.MAC(h1.MAC)
	transfer(t, f.ns["h0"], f.ns["h1"], h1.Addr.Addr(), 64<<10)
	transfer(t, f.ns["h3"], f.ns["h1"], h1.Addr.Addr(), 64<<10)
	moved := func(leaf string) uint64 { return f.daemons[leaf].metric("loom_fdb_moved_total") }
	before := map[string]uint64{"L0": moved("L0"), "L1": moved("L1")}

	// The host moves from L0 to L1. Its old port stays up, so that nothing but
	// the frames tells.
	setIdentity(t, f.ns["h1"], overlay.MAC{2, 0, 0, 0, 0, 0x77}, "")
	setIdentity(t, f.ns["h4"], mac, h1.Addr.String())
	w := f.wires()
	w["h4"].send(gratuitousARP(mac, h1.Addr.Addr().As4()))
	eventually(t, 3*time.Second, func() string {
		for leaf, n := range before {
			if moved(leaf) == n {
				return leaf + " has not counted a move"
			}
		}
		return ""
	})
	for _, from := range []string{"h0", "h3"} {
		b := frame(mac, overlay.MAC(f.host(from).MAC), 0, "to the new place from "+from)
		w[from].send(b)
		w["h4"].expect(b, "h4")
		time.Sleep(quiet)
		if w["h1"].count(b) > 0 {
			t.Errorf("%s's frame went to the old place", from)
		}
		transfer(t, f.ns[from], f.ns["h4"], h1.Addr.Addr(), 1<<20)
	}

	// And back: the last one seen wins.
	before = map[string]uint64{"L0": moved("L0"), "L1": moved("L1")}
	back := frame(broadcast, mac, 0, "I am back")
	w["h1"].send(back)
	w["h3"].expect(back, "h3")
	b := frame(mac, overlay.MAC(f.host("h3").MAC), 0, "to the old place")
	// Again if need be: what the other place still says in its name counts, too.
	strays := 0
	eventually(t, 5*time.Second, func() string {
		strays = w["h4"].count(b)
		w["h1"].send(back)
		w["h3"].send(b)
		time.Sleep(quiet)
		if w["h1"].count(b) == 0 {
			return "h1 has not got h3's frame"
		}
		return ""
	})
	if w["h4"].count(b) > strays {
		t.Error("the frame went to the place that the host had left")
	}
	for leaf, n := range before {
		if moved(leaf) == n {
			t.Errorf("%s has not counted the move back", leaf)
		}
	}
}

// TestFlooding: broadcast, multicast and unknown unicast reach every other
// member of the VNI exactly once, and known unicast nobody but its destination.
func TestFlooding(t *testing.T) {
	f := up(t, "trio.yaml")
	w := f.wires()
	const each = 100
	src := overlay.MAC(f.host("h0").MAC)
	var all [][]byte
	for kind, dst := range map[string]overlay.MAC{
		"broadcast": broadcast, "multicast": {1, 0, 0x5e, 0, 0, 9}, "unknown unicast": {2, 0, 0, 0, 0, 9},
	} {
		for i := range each {
			all = append(all, frame(dst, src, 0, fmt.Sprintf("%s %d", kind, i)))
		}
	}
	flooded := f.daemons["L0"].metric("loom_vni_flooded_frames_total")
	for _, b := range all {
		w["h0"].send(b)
		time.Sleep(200 * time.Microsecond)
	}
	for _, h := range []string{"h1", "h2", "h3", "h4", "h5"} {
		eventually(t, 5*time.Second, func() string {
			if n := len(w[h].got()); n < len(all) {
				return fmt.Sprintf("%s got %d of %d frames", h, n, len(all))
			}
			return ""
		})
	}
	time.Sleep(quiet)
	for name, seen := range w {
		count := map[string]int{}
		for _, b := range seen.got() {
			count[string(b)]++
		}
		for _, b := range all {
			want := 1
			if name == "h0" {
				want = 0
			}
			if n := count[string(b)]; n != want {
				t.Fatalf("%s got %q %d times, want %d", name, b[14:40], n, want)
			}
		}
	}
	if n := f.daemons["L0"].metric("loom_vni_flooded_frames_total") - flooded; n < uint64(len(all)) {
		t.Errorf("L0 counts %d flooded frames of %d", n, len(all))
	}

	known := frame(src, overlay.MAC(f.host("h5").MAC), 0, "to an address that is known")
	w["h5"].send(known)
	w["h0"].expect(known, "h0")
	time.Sleep(quiet)
	for name, seen := range w {
		if n := seen.count(known); name != "h0" && n > 0 {
			t.Errorf("%s got a frame for h0", name)
		}
	}
}

// TestStormLimit: flooding beyond a VNI's rate is dropped, and counted; what is
// not flooded is not limited.
func TestStormLimit(t *testing.T) {
	f := up(t, "pair.yaml")
	const rate, burst, total = 200, 40, 2000
	f.reconfigure("L0", func(c *config.Leaf) {
		for i := range c.VNIs {
			if c.VNIs[i].VNI == 10 {
				c.VNIs[i].Storm = config.Storm{Rate: rate, Burst: burst}
			}
		}
	})
	w := f.wires()
	d := f.daemons["L0"]
	src := overlay.MAC(f.host("h0").MAC)
	learn := frame(src, overlay.MAC(f.host("h3").MAC), 0, "I am here")
	w["h3"].send(learn)
	w["h0"].expect(learn, "h0")
	w["h1"].forget()                   // it was flooded
	time.Sleep(300 * time.Millisecond) // the bucket is full again

	before, start := d.drops("storm_limit"), time.Now()
	for i := range total {
		w["h0"].send(frame(broadcast, src, 0, fmt.Sprintf("storm %d", i)))
		if i%10 == 9 {
			time.Sleep(5 * time.Millisecond)
		}
	}
	eventually(t, 3*time.Second, func() string {
		n := uint64(len(w["h3"].got())) + d.drops("storm_limit") - before
		if n < total {
			return fmt.Sprintf("%d of %d frames have arrived or were dropped by the limit", n, total)
		}
		return ""
	})
	took := time.Since(start)
	time.Sleep(quiet) // the last ones are on their way to h1
	passed, dropped := len(w["h3"].got()), int(d.drops("storm_limit")-before)
	// Hosts' own multicast takes of the same tokens, and the measured time
	// contains the test's own delays: the bounds are wide, but far from no limit.
	most := burst + int(rate*took.Seconds()) + 5
	if passed > most || passed < most/4 {
		t.Errorf("%d frames passed in %v, want at most %d and not much less", passed, took, most)
	}
	if passed+dropped < total || passed+dropped > total+50 {
		t.Errorf("%d passed, %d dropped under storm_limit, %d sent", passed, dropped, total)
	}
	if n := len(w["h1"].got()); n != passed {
		t.Errorf("h1 behind the same leaf got %d frames, h3 %d", n, passed)
	}

	w["h3"].forget()
	const unicast = 500
	for i := range unicast {
		w["h0"].send(frame(overlay.MAC(f.host("h3").MAC), src, 0, fmt.Sprintf("unicast %d", i)))
		if i%10 == 9 {
			time.Sleep(time.Millisecond)
		}
	}
	eventually(t, 3*time.Second, func() string {
		if n := len(w["h3"].got()); n < unicast {
			return fmt.Sprintf("%d of %d known-unicast frames arrived", n, unicast)
		}
		return ""
	})
}
