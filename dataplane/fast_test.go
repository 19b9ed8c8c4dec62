package dataplane

import (
	"io"
	"log/slog"
	"net/netip"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/loomfabric/loom/internal/drop"
	"github.com/loomfabric/loom/internal/testenv"
	"github.com/loomfabric/loom/overlay"
)

// A node whose configuration is not for a fast path refuses to be without one, or says why
// it is.
func TestFastPathObstacles(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Config)
		want   string
	}{
		{"a scheme", func(c *Config) { c.Scheme = "drill" }, "scheme drill"},
		{"generic mode", func(c *Config) { c.XDPMode = XDPGeneric }, "generic"},
		{"RoCE's port", func(c *Config) { c.VXLANPort = 4791 }, "RoCE"},
		{"a leaf with VTEPs of IPv6", func(c *Config) { c.Role, c.Scheme, c.VTEP = Leaf, "conga", netip.MustParseAddr("2001:db8::1") }, "not of IPv4"},
		{"the kernel's overlay", func(c *Config) { c.Role, c.KernelOverlay = Leaf, true }, "the kernel's"},
		{"long frames", func(c *Config) { c.MaxMTU = 9000 }, "MTU 9000"},
	} {
		cfg := spineConfig()
		cfg.VXLANPort, cfg.Workers, cfg.Room = overlay.DefaultPort, 1, len(cfg.Ports)
		c.change(&cfg)
		n := &Node{cfg: cfg, log: slog.New(slog.NewTextHandler(io.Discard, nil))}
		if err := n.openFast(); err != nil || n.fast != nil || n.Fast().Reason != "fast_path is off" {
			t.Errorf("%s, off: %v, %+v", c.name, err, n.Fast())
		}
		n.cfg.FastPath = FastAuto
		if err := n.openFast(); err != nil || n.fast != nil || !strings.Contains(n.Fast().Reason, c.want) {
			t.Errorf("%s, auto: error %v, state %+v; want one with %q", c.name, err, n.Fast(), c.want)
		}
		n.cfg.FastPath = FastOn
		if err := n.openFast(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s, on: error %v, want one with %q", c.name, err, c.want)
		}
	}
}

// What XDP forwards, and what drivers do not take of it, is an account that balances, by the
// names of workers'. What a port of before has counted stays when its place goes to another.
func TestFastPathAccount(t *testing.T) {
	r := newFastRig(t, spineConfig(), spineTables(), 3)
	testenv.NeedRoot(t)
	n := &Node{cfg: *r.w.cfg, shared: r.w.shared, workers: []*worker{r.w}, log: slog.New(slog.NewTextHandler(io.Discard, nil))}
	n.layout.Store(r.ports)
	n.view.Store(r.w.view)
	n.fast = newFastPath(n, r.tables)
	frame := viaSpine(vtep2, 1, &overlay.Fabric{Capable: true})
	run := func(flags uint32) {
		t.Helper()
		// The loopback, which all ports are here, is dn2 to the tables: it was named last.
		opts := ebpf.RunOptions{Data: frame, Repeat: 64, Flags: flags}
		if flags == 0 {
			opts.Repeat, opts.DataOut = 1, make([]byte, 4096)
		}
		if _, err := r.progs[dn2].Run(&opts); err != nil {
			t.Fatal(err)
		}
	}
	run(0)
	s := n.fast.stats()
	if a := s.Account(); !a.Balances() || a.Received != 1 || a.Sent != 1 {
		t.Errorf("one frame by XDP: %v", a)
	}
	in, out, bytes := &s.Ports[dn2], &s.Ports[dn0], uint64(len(frame))
	if in.Received != (Traffic{Frames: 1, Bytes: bytes}) || out.Sent != in.Received || s.HopSent[0] != in.Received {
		t.Errorf("received %+v by dn2, sent %+v by dn0, and %+v to the next hop", in.Received, out.Sent, s.HopSent)
	}
	run(unix.BPF_F_TEST_XDP_LIVE_FRAMES) // the loopback takes none
	s = n.fast.stats()
	a := s.Account()
	if !a.Balances() || a.Dropped < 64 || a.Sent != 1 {
		t.Errorf("with frames that the driver does not take: %v", a)
	}
	if d := s.Ports[dn2].Drops[drop.DriverRefused]; d != a.Dropped {
		t.Errorf("%d drops are dn2's, of %d", d, a.Dropped)
	}
	n.fast.seat(dn2, "other")
	s = n.fast.stats()
	if b := s.Account(); b != a || s.Ports[dn2].Received.Frames != 0 || s.Ports[dn2].Dropped() != 0 || s.Gone.Received.Frames != a.Received {
		t.Errorf("another port in the place: %v, before %v; the port %+v, those that are gone %+v", b, a, s.Ports[dn2].Received, s.Gone)
	}
	run(0)
	if s = n.fast.stats(); s.Ports[dn2].Received.Frames != 1 {
		t.Errorf("the new port has received %d frames, want 1", s.Ports[dn2].Received.Frames)
	}
}
