package netns

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/loomfabric/loom/config"
	"github.com/loomfabric/loom/dataplane"
	"github.com/loomfabric/loom/internal/testenv"
)

// goFast restarts a spine with its fast path, and waits until it is there.
func (f *fab) goFast(spine string, more ...string) *daemon {
	f.t.Helper()
	d := f.daemons[spine]
	text, err := os.ReadFile(d.config)
	if err == nil {
		err = os.WriteFile(d.config, append(text, strings.Join(append(more, "fast_path: on\n"), "\n")...), 0o644)
	}
	if err != nil {
		f.t.Fatal(err)
	}
	d.stop()
	d.start()
	d.ready()
	return d
}

// forwarded returns how many frames XDP has forwarded by itself, and how many workers have
// sent.
func (d *daemon) forwarded() (fast, all uint64) {
	d.t.Helper()
	return d.metric("loom_classifier_frames_total", `verdict="fast"`), d.metric("loom_port_sent_frames_total")
}

// becomesFast waits until XDP forwards what the spine gets of a ping.
func (f *fab) becomesFast(d *daemon, from, to string) {
	f.t.Helper()
	eventually(f.t, 10*time.Second, func() string {
		was, _ := d.forwarded()
		testenv.Ping(f.t, f.ns[from], f.addr(to), 56, 2)
		if n, _ := d.forwarded(); n == was {
			return d.name + " forwards nothing in XDP\n" + d.tail()
		}
		return ""
	})
}

// routes returns what puts a node's routes back as they are now.
func (f *fab) routes(node string) (restore func()) {
	f.t.Helper()
	var were []netlink.Route
	f.ns[node].Do(f.t, func() {
		var err error
		if were, err = netlink.RouteList(nil, netlink.FAMILY_V4); err != nil {
			f.t.Fatal(err)
		}
	})
	return func() {
		f.ns[node].Do(f.t, func() {
			for i := range were {
				if len(were[i].MultiPath) == 0 {
					continue
				}
				if err := netlink.RouteReplace(&were[i]); err != nil {
					f.t.Fatalf("replace route %v in %s: %v", were[i], node, err)
				}
			}
		})
	}
}

// TestFastPath: a spine forwards in XDP what leaves send, and nothing is lost or dropped by
// that: not while routes change, not at a reload, and not when another process takes over.
// Counters are the same, whoever forwards, and balance.
func TestFastPath(t *testing.T) {
	f := up(t, "bundle.yaml")
	// L1 goes on by both links while the spine has one: that is believed.
	f.reconfigure("L1", func(c *config.Leaf) { c.ReversePath = config.ReversePath(dataplane.FeasiblePath) })
	d := f.goFast("S0", "reverse_path: feasible")
	transfer(t, f.ns["h0"], f.ns["h1"], f.addr("h1"), 1<<20)
	f.becomesFast(d, "h0", "h1")
	fast, all := d.forwarded()
	ringsFull := f.vethDrops()
	frames := number(t, "LOOM_FAST_FRAMES", 9000)
	there := startSeries(t, "there", f.ns["h0"], f.ns["h1"], f.addr("h1"), frames, 1500)
	back := startSeries(t, "back", f.ns["h1"], f.ns["h0"], f.addr("h0"), frames, 1500)

	defer func() {
		for name, d := range f.daemons {
			if t.Failed() {
				t.Logf("%s dropped %v; log:\n%s", name, d.stats().Drops, d.tail())
			}
		}
	}()
	link := f.link("L1-S0.0")
	restore := f.routes("S0")
	for range 5 { // the spine's way to L1 is one link, and two again
		f.routesWithout("S0", link.SpinePort)
		time.Sleep(150 * time.Millisecond)
		before := d.sent(link.SpinePort)
		time.Sleep(150 * time.Millisecond)
		if n := d.sent(link.SpinePort) - before; n > 10 { // HELLOs' answers
			t.Errorf("%d frames left by a port that no route leads to", n)
		}
		restore()
		time.Sleep(150 * time.Millisecond)
	}
	d.reload("nothing has changed")
	d.balanced()
	d.takeOver(filepath.Join(daemons, "spined"))
	f.becomesFast(d, "h0", "h1")
	<-there.done
	<-back.done
	lost := f.vethDrops() - ringsFull
	there.complete(func() int { return lost })
	back.complete(func() int { return lost })

	fastNow, allNow := d.forwarded()
	fast, all = fastNow-fast, allNow-all
	t.Logf("S0 has sent %d frames, %d of them in XDP; %d frames found a veth's ring full", all, fast, lost)
	if fast > all || fast < all/2 {
		t.Errorf("S0 has sent %d frames, %d of them in XDP: most should be", all, fast)
	}
	if refused := d.drops("driver_refused"); d.metric("loom_drops_total") > refused || int(refused) > lost {
		t.Errorf("dropped %v, and %d frames found a ring full", d.stats().Drops, lost)
	}
	if log := lines(d.whole(), "level=ERROR"); len(log) > 0 {
		t.Errorf("log: %s", log[0])
	}
}

// TestFastPathKilled: without its process a spine is a router, as it is without a fast path.
func TestFastPathKilled(t *testing.T) {
	f := up(t, "bundle.yaml")
	d := f.goFast("S0")
	transfer(t, f.ns["h0"], f.ns["h1"], f.addr("h1"), 1<<18)
	f.becomesFast(d, "h0", "h1")
	if err := d.signal(unix.SIGKILL); err == nil && d.cmd != nil {
		t.Error("the process ended in order")
	}
	transfer(t, f.ns["h0"], f.ns["h1"], f.addr("h1"), 1<<18)
	if log := d.whole(); strings.Contains(log, "level=ERROR") {
		t.Errorf("log:\n%s", d.tail())
	}
	d.start()
	d.ready()
	transfer(t, f.ns["h0"], f.ns["h1"], f.addr("h1"), 1<<18)
	f.becomesFast(d, "h0", "h1")
}

// TestFastPathHangs: the kernel routes for a spine whose process does not run, and does not
// end either; and once it runs again it goes on.
func TestFastPathHangs(t *testing.T) {
	f := up(t, "bundle.yaml")
	d := f.goFast("S0")
	transfer(t, f.ns["h0"], f.ns["h1"], f.addr("h1"), 1<<18)
	f.becomesFast(d, "h0", "h1")
	if err := unix.Kill(d.pid, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	again := func() { _ = unix.Kill(d.pid, unix.SIGCONT) }
	defer again()
	time.Sleep(1200 * time.Millisecond) // XDP goes on by itself at first, and hands frames over then
	eventually(t, 10*time.Second, func() string {
		if out, ok := testenv.Ping(t, f.ns["h0"], f.addr("h1"), 1400, 1); !ok {
			return out
		}
		return ""
	})
	transfer(t, f.ns["h0"], f.ns["h1"], f.addr("h1"), 1<<18)
	again()
	f.becomesFast(d, "h0", "h1")
	transfer(t, f.ns["h0"], f.ns["h1"], f.addr("h1"), 1<<18)
	d.balanced()
	if n := d.metric("loom_classifier_frames_total", `verdict="pass_no_socket"`); n < 100 {
		t.Errorf("%d frames were the kernel's while the process hung", n)
	}
}

// TestFastPathFollowsThePeer: a veth takes frames from XDP only while the other end has an
// XDP program. Without one, as when a leaf has stopped, workers send, and the kernel there
// gets what is sent; with one again, XDP does.
func TestFastPathFollowsThePeer(t *testing.T) {
	f := up(t, "bundle.yaml")
	d, leaf := f.goFast("S0"), f.daemons["L1"]
	transfer(t, f.ns["h0"], f.ns["h1"], f.addr("h1"), 1<<18)
	f.becomesFast(d, "h0", "h1")
	leaf.stop()
	eventually(t, 10*time.Second, func() string { // once for each link
		if n := len(lines(d.whole(), "takes no frames from XDP")); n != 2 {
			return fmt.Sprintf("S0 says so %d times\n%s", n, d.tail())
		}
		return ""
	})
	before := d.sent(f.link("L1-S0.0").SpinePort) + d.sent(f.link("L1-S0.1").SpinePort)
	testenv.Ping(t, f.ns["h0"], f.addr("h1"), 56, 2) // to a leaf that nobody serves
	if n := d.sent(f.link("L1-S0.0").SpinePort) + d.sent(f.link("L1-S0.1").SpinePort); n == before {
		t.Error("nothing was sent to a leaf without leafd")
	}
	leaf.start()
	leaf.ready()
	transfer(t, f.ns["h0"], f.ns["h1"], f.addr("h1"), 1<<18)
	f.becomesFast(d, "h0", "h1")
}
