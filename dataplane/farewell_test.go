package dataplane

import (
	"bytes"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/loomfabric/loom/internal/drop"
	"github.com/loomfabric/loom/internal/testenv"
	"github.com/loomfabric/loom/leaf"
	"github.com/loomfabric/loom/overlay"
)

// hellos lets rounds of HELLOs pass between both leaves.
func (f *twoLeaves) hellos(rounds int) {
	for range rounds {
		for _, r := range []*rig{f.a, f.b} {
			r.w.leaf.brain.SetHello(0)
			f.carry(r, r.settle())
			r.w.leaf.brain.SetHello(idle)
		}
		f.pass(100 * time.Millisecond)
	}
}

// fieldsOf returns the fabric's header of what a leaf sends for a host's frame.
func fieldsOf(t *testing.T, r *rig, b []byte) overlay.Fabric {
	t.Helper()
	out := r.send(acc0, b)
	sent := slices.Concat(out[up0], out[up1])
	if len(sent) != 1 {
		t.Fatalf("%d frames were sent of one", len(sent))
	}
	var d overlay.Decapped
	if why := overlay.Decap(sent[0], overlay.DefaultPort, &d); why != drop.None {
		t.Fatal(why)
	}
	return d.Fabric
}

// A leaf says goodbye, sealed where there are keys: the next frame for it is plain, also
// under a scheme with a shim, while both go on with what comes. The log of its peer says
// so, once, and when the leaf is back. What has no seal, or the wrong one, revokes nothing.
func TestFarewell(t *testing.T) {
	keys, wrong := overlay.Keys{{1, 2}}, overlay.Keys{{3, 4}}
	for _, tt := range []struct {
		name   string
		scheme string
		a, b   overlay.Keys
		left   bool
	}{
		{"without keys", "conga", nil, nil, true},
		{"with a shim", "conweave", nil, nil, true},
		{"with keys", "conga", keys, keys, true},
		{"without the peer's key", "conga", wrong, keys, false},
		{"without a seal", "conga", nil, keys, false},
	} {
		f := newTwoLeavesWith(t, func(c *Config) {
			c.Scheme = tt.scheme
			c.Keys = tt.b
		})
		f.hellos(3)
		f.a.w.cfg.Keys = tt.a
		n, log := node(f.b), new(bytes.Buffer)
		n.log = slog.New(slog.NewTextHandler(log, nil))
		n.view.Store(f.b.w.view)
		report := peerReporter{node: n, gone: make(map[netip.Addr]overlay.Standing)}
		report.report(f.b.now)

		toA := udp4(hostA, hostB, 0, 1, 100)
		if h := fieldsOf(t, f.b, toA); !h.Capable {
			t.Fatalf("%s: plain before the farewell: %+v", tt.name, h)
		}
		if d := f.a.w.leaf.brain.Leave(f.a.now); d != leaf.FarewellFor {
			t.Fatalf("%s: the leaf goes on for %v", tt.name, d)
		}
		f.carry(f.a, f.a.settle())
		report.report(f.b.now)
		if h := fieldsOf(t, f.b, toA); h.Capable == tt.left || h.Shim && tt.left {
			t.Errorf("%s: after the farewell: %+v", tt.name, h)
		}
		if got := f.exchange(f.a, acc0, udp4(hostB, hostA, 0, 1, 100)); len(got) != 1 {
			t.Errorf("%s: the leaf that leaves sent %d frames of one", tt.name, len(got))
		}
		if n := f.b.w.leaf.brain.Stats().Farewells; n != map[bool]uint64{true: 1}[tt.left] {
			t.Errorf("%s: %d farewells", tt.name, n)
		}
		if bad := f.b.drops()[drop.BadSeal]; (bad == 0) != tt.left {
			t.Errorf("%s: %d bad seals", tt.name, bad)
		}
		if s := log.String(); strings.Contains(s, "peer said goodbye") != tt.left || strings.Count(s, "msg=") > 1 {
			t.Errorf("%s: the log says %q", tt.name, s)
		}
	}
}

// A leaf that was silent is told of, and again when it is back.
func TestSilentPeersAreReported(t *testing.T) {
	f := newTwoLeaves(t, "conga")
	n, log := node(f.b), new(bytes.Buffer)
	n.log = slog.New(slog.NewTextHandler(log, nil))
	n.view.Store(f.b.w.view)
	report := peerReporter{node: n, gone: make(map[netip.Addr]overlay.Standing)}
	f.hellos(3)
	report.report(f.b.now)
	if log.Len() != 0 {
		t.Errorf("the log says %s", log)
	}
	f.b.w.leaf.brain.SetHello(0)
	for range 20 { // what it says itself is lost
		f.b.settle()
		f.pass(25 * time.Millisecond)
		report.report(f.b.now)
	}
	if s := log.String(); !strings.Contains(s, "nothing comes from peer") || strings.Count(s, "msg=") != 1 {
		t.Errorf("the log says %s", s)
	}
	if s := n.pathsAt(f.b.now); len(s) != 1 {
		t.Errorf("paths: %+v", s)
	}
	state := f.b.w.leaf.peerState(0, f.b.now)
	if state.Capable || state.State != "silent" {
		t.Errorf("capable: %v, %s", state.Capable, state.State)
	}
	f.hellos(3)
	report.report(f.b.now)
	if s := log.String(); !strings.Contains(s, "peer is back") || strings.Count(s, "msg=") != 2 {
		t.Errorf("the log says %s", s)
	}
}

// A worker that stops forwards what its rings hold: nobody else gets it any more.
func TestDrainReadsTheRings(t *testing.T) {
	f := newTwoLeaves(t, "conga")
	f.a.w.cfg.Drain = time.Second
	const frames = 3 * burstSize
	before := f.a.links[up0].sent + f.a.links[up1].sent
	for range frames {
		if !f.a.links[acc0].put(udp4(hostB, hostA, 0, 1, 100)) {
			t.Fatal("no frame to receive into")
		}
	}
	f.a.w.drain()
	if n := f.a.links[up0].sent + f.a.links[up1].sent - before; n != frames {
		t.Errorf("%d of %d frames were sent", n, frames)
	}
	f.a.balance()
}

// A node that stops has its peers say so before it stops to receive, and its ports are the
// kernel's while it drains.
func TestNodeYields(t *testing.T) {
	s := newSite(t, 1)
	n := s.start(t)
	n.shared.leaf.Paths.Greet(0, 5) // the peer has said HELLO
	for end := time.Now().Add(5 * time.Second); n.shared.leaf.Paths.Round() == 0; {
		if time.Now().After(end) {
			t.Fatal("the node says no HELLO")
		}
		time.Sleep(time.Millisecond)
	}
	start := time.Now()
	n.farewell()
	if d := time.Since(start); d < leaf.FarewellFor {
		t.Errorf("it waits for %v", d)
	}
	if err := n.yield(); err != nil {
		t.Fatal(err)
	}
	st := n.Stats()
	before := st.Sum().Ports
	if out, ok := testenv.Ping(t, s.far, netip.MustParseAddr("172.16.0.1"), 56, 1); ok {
		t.Errorf("the far end is answered, and the kernel has no VXLAN here:\n%s", out)
	}
	st = n.Stats()
	for i, p := range st.Sum().Ports {
		if got := p.Received.Frames - before[i].Received.Frames; got != 0 {
			t.Errorf("%d frames came to the node by port %d after it had left that to the kernel", got, i)
		}
	}
	for _, i := range n.PortInfos() {
		if i.Kind == Uplink && i.Classifier["pass_no_socket"] == 0 {
			t.Errorf("nothing came to the kernel: %v", i.Classifier)
		}
	}
}
