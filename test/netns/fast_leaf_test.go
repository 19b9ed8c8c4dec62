package netns

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/loomfabric/loom/dataplane"
	"github.com/loomfabric/loom/internal/ethtool"
)

// takesRedirects has the driver of an access port take frames from XDP: the host's end of
// the veth pair gets NAPI, by GRO.
func (f *fab) takesRedirects(host string) {
	f.t.Helper()
	f.ns[host].Do(f.t, func() {
		s, err := ethtool.Open()
		if err == nil {
			defer s.Close()
			err = s.Set("eth0", ethtool.GRO, true)
		}
		if err != nil {
			f.t.Fatal(err)
		}
	})
}

// finishes has a host finish the checksums of what it sends, as one with a network card does.
func (f *fab) finishes(host string) {
	f.t.Helper()
	f.ns[host].Do(f.t, func() {
		s, err := ethtool.Open()
		if err == nil {
			defer s.Close()
			err = s.Set("eth0", ethtool.TXChecksum, false)
		}
		if err != nil {
			f.t.Fatal(err)
		}
	})
}

// wrapped returns how many frames of a host XDP has put into tunnels.
func (f *fab) wrapped(d *daemon, host string) uint64 {
	f.t.Helper()
	for _, p := range d.fastState().Ports {
		if p.Port == f.host(host).Port {
			return p.Frames
		}
	}
	f.t.Fatalf("%s has no port of %s", d.name, host)
	return 0
}

// fastState is the daemon's answer to `loomctl fast`.
func (d *daemon) fastState() (s dataplane.FastState) {
	d.t.Helper()
	if err := json.Unmarshal([]byte(d.loomctl("fast", "-o", "json")), &s); err != nil {
		d.t.Fatal(err)
	}
	return s
}

// TestFastLeaf: a leaf delivers in XDP what comes out of tunnels, and puts into them what a host
// sends with checksums of its own, and nothing is lost by that: not at a reload, and not when another process takes over or the host's end of its
// port stops taking frames from XDP. Counters balance.
func TestFastLeaf(t *testing.T) {
	f := up(t, "bundle.yaml")
	f.takesRedirects("h1")
	f.finishes("h1")
	d := f.goFast("L1")
	transfer(t, f.ns["h0"], f.ns["h1"], f.addr("h1"), 1<<20)
	f.becomesFast(d, "h0", "h1")
	fast, _ := d.forwarded()
	wrapped := f.wrapped(d, "h1")
	ringsFull := f.vethDrops()
	frames := number(t, "LOOM_FAST_FRAMES", 4500)
	there := startSeries(t, "there", f.ns["h0"], f.ns["h1"], f.addr("h1"), frames, 1500)
	back := startSeries(t, "back", f.ns["h1"], f.ns["h0"], f.addr("h0"), frames, 1500)
	defer func() {
		if t.Failed() {
			t.Logf("L1 dropped %v; log:\n%s", d.stats().Drops, d.tail())
		}
	}()
	time.Sleep(500 * time.Millisecond)
	d.reload("nothing has changed")
	d.balanced()
	for _, p := range d.fastState().Ports {
		if p.In != "" || p.Out != "" {
			t.Errorf("port %s: in %q, out %q", p.Port, p.In, p.Out)
		}
	}
	if n := f.wrapped(d, "h1") - wrapped; n < 200 {
		t.Errorf("L1 has put %d frames into tunnels in XDP: most of 750 should be\n%s", n, d.loomctl("fast"))
	}
	d.takeOver(filepath.Join(daemons, "leafd"))
	f.becomesFast(d, "h0", "h1")
	<-there.done
	<-back.done
	lost := f.vethDrops() - ringsFull
	there.complete(func() int { return lost })
	back.complete(func() int { return lost })
	now, _ := d.forwarded()
	t.Logf("L1 has forwarded %d frames in XDP; %d frames found a veth's ring full", now-fast, lost)
	if now-fast < uint64(frames)/2 { // workers forward while a process takes over
		t.Errorf("L1 has forwarded %d frames in XDP, of %d: most should be", now-fast, 2*frames)
	}
	if refused := d.drops("driver_refused"); int(refused) > lost {
		t.Errorf("dropped %v, and %d frames found a ring full", d.stats().Drops, lost)
	}
	d.balanced()
	if log := lines(d.whole(), "level=ERROR"); len(log) > 0 {
		t.Errorf("log: %s", log[0])
	}
	f.hostStopsTaking(d)
	f.killed(d)
}

// hostStopsTaking takes NAPI away from the host's end: workers deliver then.
func (f *fab) hostStopsTaking(d *daemon) {
	f.t.Helper()
	f.ns["h1"].Do(f.t, func() {
		s, err := ethtool.Open()
		if err == nil {
			defer s.Close()
			err = s.Set("eth0", ethtool.GRO, false)
		}
		if err != nil {
			f.t.Fatal(err)
		}
	})
	eventually(f.t, 10*time.Second, func() string {
		for _, p := range d.fastState().Ports {
			if p.Port == f.host("h1").Port && !strings.Contains(p.Out, "GRO") {
				return "nobody says that the host's end takes no frames from XDP"
			}
		}
		return ""
	})
	transfer(f.t, f.ns["h0"], f.ns["h1"], f.addr("h1"), 1<<18)
	f.takesRedirects("h1")
	f.becomesFast(d, "h0", "h1")
}

// killed ends a leaf's process in disorder, and starts another one.
func (f *fab) killed(d *daemon) {
	f.t.Helper()
	if err := d.signal(unix.SIGKILL); err == nil && d.cmd != nil {
		f.t.Error("the process ended in order")
	}
	d.start()
	d.ready()
	transfer(f.t, f.ns["h0"], f.ns["h1"], f.addr("h1"), 1<<18)
	f.becomesFast(d, "h0", "h1")
}
