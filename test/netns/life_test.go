package netns

import (
	"fmt"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/loomfabric/loom/config"
	"github.com/loomfabric/loom/overlay"
)

// ports lists the interfaces that a node's daemon uses.
func (f *fab) ports(node string) (names []string) {
	for _, k := range f.topo.Links {
		if f.topo.Leaves[k.Leaf].Name == node {
			names = append(names, k.LeafPort)
		}
		if f.topo.Spines[k.Spine].Name == node {
			names = append(names, k.SpinePort)
		}
	}
	for _, h := range f.topo.Hosts {
		if f.topo.Leaves[h.Leaf].Name == node {
			names = append(names, h.Port)
		}
	}
	return names
}

// programs are the XDP programs on a node's ports, by port.
func (f *fab) programs(node string) map[string]uint32 {
	f.t.Helper()
	programs := make(map[string]uint32)
	for _, p := range f.ports(node) {
		if id := xdp(f.t, f.ns[node], p); id != 0 {
			programs[p] = uint32(id)
		}
	}
	return programs
}

// detached waits until no port of a node has an XDP program, but for access ports that
// are closed without their daemon: all of these keep theirs.
func (f *fab) detached(node string) {
	f.t.Helper()
	closed := make(map[string]bool)
	for _, h := range f.topo.Hosts {
		if f.topo.Leaves[h.Leaf].Name == node && f.lab.File.Fallback != "kernel" {
			closed[h.Port] = true
		}
	}
	eventually(f.t, 3*time.Second, func() string {
		left := f.programs(node)
		for p := range left {
			if !closed[p] {
				return fmt.Sprintf("port %s of %s still has an XDP program", p, node)
			}
		}
		if len(left) != len(closed) {
			return fmt.Sprintf("closed ports of %s: %v, with a program: %v", node, closed, left)
		}
		return ""
	})
}

// TestLeafKilled: leafd dies without a chance to tidy up, and a new one carries
// on: connections survive, and nothing else is touched.
func TestLeafKilled(t *testing.T) {
	f := up(t, "pair.yaml")
	if n := len(f.programs("L0")); n != 5 {
		t.Fatalf("%d ports of L0 have an XDP program, want 5", n)
	}
	s := startStream(t, f.ns["h0"], f.ns["h3"], f.addr("h3"), 1<<20)
	back := startStream(t, f.ns["h4"], f.ns["h1"], f.addr("h1"), 1<<20)
	s.flows(256<<10, 5*time.Second)
	back.flows(256<<10, 5*time.Second)

	d := f.daemons["L0"]
	d.balanced()
	_ = d.signal(unix.SIGKILL) // it ends by the signal, as it should
	f.detached("L0")
	if _, err := os.Stat(d.socket); err != nil {
		t.Errorf("kill -9 cannot have removed the telemetry socket: %v", err)
	}
	d.start()
	d.ready()
	s.flows(256<<10, 10*time.Second)
	back.flows(256<<10, 10*time.Second)
	transfer(t, f.ns["h3"], f.ns["h1"], f.addr("h1"), 1<<20)
}

// TestSpineKilled: a spine whose spined dies is a kernel router again, so that
// traffic goes on even before there is a new one.
func TestSpineKilled(t *testing.T) {
	f := up(t, "trio.yaml") // one spine: there is no other way
	s := startStream(t, f.ns["h0"], f.ns["h2"], f.addr("h2"), 1<<20)
	s.flows(256<<10, 5*time.Second)
	d := f.daemons["S0"]
	_ = d.signal(unix.SIGKILL) // it ends by the signal, as it should
	f.detached("S0")
	s.flows(256<<10, 10*time.Second) // fails open
	d.start()
	d.ready()
	before := d.sent("dn-l1-0")
	s.flows(512<<10, 10*time.Second)
	if n := d.sent("dn-l1-0") - before; n < 100 {
		t.Errorf("the new spined has carried %d frames", n)
	}
	transfer(t, f.ns["h4"], f.ns["h2"], f.addr("h2"), 1<<20)
}

// TestDrain: a leafd that gets SIGTERM sends what it holds, takes its
// programs off and ends with exit code 0.
func TestDrain(t *testing.T) {
	f := up(t, "pair.yaml")
	f.reconfigure("L0", func(c *config.Leaf) {
		for i := range c.Uplinks {
			c.Uplinks[i].Delay = 400 * time.Millisecond
		}
		c.Drain = 4 * time.Second
	})
	w := f.wires()
	dst, src := overlay.MAC(f.host("h3").MAC), overlay.MAC(f.host("h0").MAC)
	d := f.daemons["L0"]
	const frames = 50
	for i := range frames {
		w["h0"].send(frame(dst, src, 0, fmt.Sprintf("on the delay line %d", i)))
	}
	eventually(t, 300*time.Millisecond, func() string { // taken in, and not sent yet
		if n := d.metric("loom_port_received_frames_total", `port="acc-h0"`); n < frames {
			return fmt.Sprintf("L0 has received %d of %d frames", n, frames)
		}
		return ""
	})
	if held := d.metric("loom_worker_held_frames"); held < frames {
		t.Fatalf("L0 holds %d frames before it is stopped, want %d: the test is too slow for the delay line", held, frames)
	}
	start := time.Now()
	if err := d.signal(unix.SIGTERM); err != nil {
		t.Errorf("exit: %v\n%s", err, d.tail())
	}
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("it took %v to stop", took)
	}
	f.detached("L0")
	if _, err := os.Stat(d.socket); err == nil {
		t.Error("the telemetry socket is left behind")
	}
	eventually(t, 3*time.Second, func() string {
		if n := len(w["h3"].got()); n < frames {
			return fmt.Sprintf("%d of %d frames arrived\n%s", n, frames, d.tail())
		}
		return ""
	})
	if n := len(lines(d.tail(), "msg=stopped")); n == 0 {
		t.Errorf("the log does not say that the daemon stopped:\n%s", d.tail())
	}
}

// TestDrainEnds: what cannot be sent within the drain time does not keep the
// daemon.
func TestDrainEnds(t *testing.T) {
	t.Parallel() // it waits for a daemon's end
	f := up(t, "pair.yaml")
	f.reconfigure("L0", func(c *config.Leaf) {
		for i := range c.Uplinks {
			c.Uplinks[i].Delay = 10 * time.Second
		}
		c.Drain = 200 * time.Millisecond
	})
	w := openWire(t, f.ns["h0"], "eth0")
	for i := range 20 {
		w.send(frame(broadcast, overlay.MAC(f.host("h0").MAC), 0, fmt.Sprint(i)))
	}
	start := time.Now()
	if err := f.daemons["L0"].signal(unix.SIGTERM); err != nil {
		t.Errorf("exit: %v\n%s", err, f.daemons["L0"].tail())
	}
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("it took %v to stop, with a drain time of 200 ms", took)
	}
	f.detached("L0")
}
