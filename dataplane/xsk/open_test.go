package xsk

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/loomfabric/loom/internal/testenv"
)

func TestConfigErrorsNameTheField(t *testing.T) {
	good := SocketConfig{Ifindex: 1, RX: 64, TX: 64, Fill: 64, Completion: 64}
	if err := good.Validate(); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*SocketConfig){
		"SocketConfig.Ifindex is 0":              func(c *SocketConfig) { c.Ifindex = 0 },
		"SocketConfig.Queue is -1":               func(c *SocketConfig) { c.Queue = -1 },
		"SocketConfig.Queue is 65536":            func(c *SocketConfig) { c.Queue = 1 << 16 },
		"SocketConfig.RX is 0":                   func(c *SocketConfig) { c.RX = 0 },
		"SocketConfig.TX is 100":                 func(c *SocketConfig) { c.TX = 100 },
		"SocketConfig.Fill is -64":               func(c *SocketConfig) { c.Fill = -64 },
		"SocketConfig.Completion is 2097152":     func(c *SocketConfig) { c.Completion = 1 << 21 },
		"SocketConfig.CopyMode is 7":             func(c *SocketConfig) { c.CopyMode = 7 },
		"SocketConfig.CopyMode is zero-copy":     func(c *SocketConfig) { c.CopyMode, c.Generic = ForceZero, true },
		"SocketConfig.RX is 9223372036854775807": func(c *SocketConfig) { c.RX = 1<<63 - 1 },
	} {
		c := good
		change(&c)
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error is %v, want mention of %q", err, want)
		}
		if s, err := Open(&Umem{}, c); err == nil || s != nil {
			t.Errorf("Open accepts what Validate refuses: %q", want)
		}
	}
	for want, c := range map[string]UmemConfig{
		"UmemConfig.Frames is 0":         {0, 2048},
		"UmemConfig.FrameSize is 1024":   {64, 1024},
		"UmemConfig.FrameSize is 8192":   {64, 8192},
		"UmemConfig.Frames is 999999999": {999999999, 2048},
	} {
		if u, err := NewUmem(c); err == nil || u != nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error is %v, want mention of %q", err, want)
		}
	}
}

// TestOpenErrorsNameTheRemedy provokes each failure of Open that can be
// provoked, and wants interface, queue, mode and remedy in its text.
func TestOpenErrorsNameTheRemedy(t *testing.T) {
	testenv.NeedRoot(t)
	ns := testenv.NewNamespace(t, "lmxsk")
	link, peer := testenv.VethPair(t, ns, "lm0", ns, "lm1", testenv.VethOptions{})
	u, _ := newArea(t, 64)
	other, _ := newArea(t, 64)
	base := SocketConfig{Ifindex: link.Attrs().Index, Name: "lm0", RX: 64, TX: 64, Fill: 64, Completion: 64, Retry: -1}
	mustOpen(t, ns, u, base)
	closed, err := NewUmem(UmemConfig{Frames: 64, FrameSize: 2048})
	if err == nil {
		err = closed.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name   string
		u      *Umem
		change func(*SocketConfig)
		is     error
		want   string
	}{
		{"no such interface", other, func(c *SocketConfig) { c.Ifindex, c.Name = 4711, "gone0" }, unix.ENODEV, "gone0 (ifindex 4711) queue 0, auto mode|does not exist"},
		{"no such queue", other, func(c *SocketConfig) { c.Queue = 5 }, unix.EINVAL, "lm0|queue 5|ethtool -l lm0"},
		{"no zero-copy", other, func(c *SocketConfig) { c.CopyMode, c.Ifindex, c.Name = ForceZero, peer.Attrs().Index, "lm1" }, unix.EOPNOTSUPP, "zero-copy mode|use copy mode"},
		{"busy", other, func(c *SocketConfig) { c.CopyMode = ForceCopy }, unix.EBUSY, "lm0|copy mode|owns queue 0 of lm0"},
		{"busy by us", u, func(*SocketConfig) {}, nil, "this UMEM has a socket on that queue"},
		{"closed area", closed, func(*SocketConfig) {}, nil, "UMEM|closed"},
	} {
		t.Run(test.name, func(t *testing.T) {
			cfg := base
			test.change(&cfg)
			s, err := openIn(t, ns, test.u, cfg)
			if err == nil {
				s.Close()
				t.Fatal("opened")
			}
			if test.is != nil && !errors.Is(err, test.is) {
				t.Errorf("error %q is not %v", err, test.is)
			}
			for part := range strings.SplitSeq(test.want, "|") {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("error %q does not mention %q", err, part)
				}
			}
		})
	}
	// Those that root does not get.
	for errno, want := range map[unix.Errno]string{
		unix.EPERM:        "CAP_NET_RAW and CAP_NET_ADMIN",
		unix.ENOBUFS:      "locked memory",
		unix.ENOMEM:       "locked memory",
		unix.EAFNOSUPPORT: "CONFIG_XDP_SOCKETS",
		unix.ENETDOWN:     "up",
		unix.ENOENT:       "use copy mode", // zero-copy on virtio-net whose queues cannot be reset
	} {
		if got := other.remedy(&base, &stepError{"bind", errno}); !strings.Contains(got, want) {
			t.Errorf("remedy for %v is %q, want mention of %q", errno, got, want)
		}
	}
}

// resources counts what a leak would add to: mappings and descriptors.
func resources(t *testing.T) (maps, fds int) {
	t.Helper()
	text, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	// Only AF_XDP sockets' mappings and what is mapped shared: the runtime
	// maps private memory of its own whenever it likes.
	for line := range strings.Lines(string(text)) {
		if perms := strings.Fields(line)[1]; strings.HasSuffix(perms, "s") {
			maps++
		}
	}
	return maps, len(entries)
}

// areaMapped reports whether an area's first address is mapped.
func areaMapped(t *testing.T, start uintptr) bool {
	t.Helper()
	text, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var from, to uintptr
		if _, err := fmt.Sscanf(line, "%x-%x", &from, &to); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if from <= start && start < to {
			return true
		}
	}
	return false
}

// TestNothingLeaks opens fifty times, with success and with every failure, and
// counts mappings and descriptors.
func TestNothingLeaks(t *testing.T) {
	testenv.NeedRoot(t)
	ns := testenv.NewNamespace(t, "lmxsk")
	link, peer := testenv.VethPair(t, ns, "lm0", ns, "lm1", testenv.VethOptions{})
	u, _ := newArea(t, 64)
	base := SocketConfig{Ifindex: link.Attrs().Index, Name: "lm0", RX: 64, TX: 64, Fill: 64, Completion: 64}
	holder, _ := newArea(t, 64)
	keep := base
	keep.Ifindex, keep.Name = peer.Attrs().Index, "lm1"
	mustOpen(t, ns, holder, keep)

	opens := []struct {
		name   string
		change func(*SocketConfig)
		ok     bool
	}{
		{"good", func(*SocketConfig) {}, true},
		{"unknown interface", func(c *SocketConfig) { c.Ifindex = 4711 }, false},
		{"bad queue", func(c *SocketConfig) { c.Queue = 9 }, false},
		{"bad ring size", func(c *SocketConfig) { c.Fill = 65 }, false},
		{"no zero-copy", func(c *SocketConfig) { c.CopyMode = ForceZero }, false},
		{"busy", func(c *SocketConfig) { c.Ifindex, c.Retry = keep.Ifindex, 5*time.Millisecond }, false},
		{"good, copy", func(c *SocketConfig) { c.CopyMode = ForceCopy }, true},
	}
	ns.Do(t, func() { // once, so that all counts are taken inside
		maps, fds := resources(t)
		for i := range 50 {
			test := opens[i%len(opens)]
			cfg := base
			test.change(&cfg)
			s, err := Open(u, cfg)
			if (err == nil) != test.ok {
				t.Fatalf("open %d, %s: %v", i, test.name, err)
			}
			if err == nil {
				if m, f := resources(t); m != maps+4 || f != fds+1 {
					t.Fatalf("open %d: %d rings mapped and %d descriptors, want 4 and 1", i, m-maps, f-fds)
				}
				if err := errors.Join(s.Close(), s.Close()); err != nil {
					t.Fatalf("close %d: %v", i, err)
				}
			}
			if m, f := resources(t); m != maps || f != fds {
				t.Fatalf("open %d, %s, left %d mappings and %d descriptors", i, test.name, m-maps, f-fds)
			}
		}
	})
	if u.Sockets() != 0 {
		t.Errorf("%d sockets are open, want none", u.Sockets())
	}
}

func TestUmemClose(t *testing.T) {
	u, err := NewUmem(UmemConfig{Frames: 64, FrameSize: 4096})
	if err != nil {
		t.Fatal(err)
	}
	if len(u.Area()) != 64*4096 || u.Frames() != 64 || u.FrameSize() != 4096 {
		t.Errorf("area of %d bytes, %d frames of %d", len(u.Area()), u.Frames(), u.FrameSize())
	}
	start := addressOf(u.Area())
	if !areaMapped(t, start) {
		t.Error("the area is not mapped")
	}
	if err := errors.Join(u.Close(), u.Close()); err != nil {
		t.Error(err)
	}
	if areaMapped(t, start) {
		t.Error("the area is still mapped")
	}
}

// TestUmemCloseRefusesWhileInUse also checks that the refusal changes nothing.
func TestUmemCloseRefusesWhileInUse(t *testing.T) {
	testenv.NeedRoot(t)
	ns := testenv.NewNamespace(t, "lmxsk")
	testenv.VethPair(t, ns, "a", ns, "b", testenv.VethOptions{})
	u, p := newArea(t, 512)
	a := openOn(t, ns, "a", u, p, 0, smallConfig(), 0)
	b := openOn(t, ns, "b", u, p, 1, smallConfig(), 128)
	if err := u.Close(); err == nil || !strings.Contains(err.Error(), "2 sockets") {
		t.Fatalf("closing an area in use: %v", err)
	}
	a.send(t, 0, 100)
	b.expect(t, 0, 100)
}

// TestBusyQueueIsRetried reopens a queue at once, for which the kernel needs
// some milliseconds, and one whose owner goes away only later.
func TestBusyQueueIsRetried(t *testing.T) {
	testenv.NeedRoot(t)
	ns := testenv.NewNamespace(t, "lmxsk")
	link, _ := testenv.VethPair(t, ns, "lm0", ns, "lm1", testenv.VethOptions{})
	u, _ := newArea(t, 64)
	other, _ := newArea(t, 64)
	cfg := SocketConfig{Ifindex: link.Attrs().Index, Name: "lm0", RX: 64, TX: 64, Fill: 64, Completion: 64}
	for i := range 5 {
		s, err := openIn(t, ns, u, cfg)
		if err != nil {
			t.Fatalf("open %d: %v", i, err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	owner := mustOpen(t, ns, other, cfg)

	impatient := cfg
	impatient.Retry = 40 * time.Millisecond
	start := time.Now()
	if _, err := openIn(t, ns, u, impatient); !errors.Is(err, unix.EBUSY) {
		t.Errorf("opening an owned queue: %v", err)
	}
	if took := time.Since(start); took < 20*time.Millisecond || took > time.Second {
		t.Errorf("gave up after %v, want about 40ms", took)
	}

	const later = 150 * time.Millisecond
	start = time.Now()
	timer := time.AfterFunc(later, func() { owner.Close() })
	defer timer.Stop()
	s, err := openIn(t, ns, u, cfg)
	if err != nil {
		t.Fatalf("the owner went away, but: %v", err)
	}
	if took := time.Since(start); took < later {
		t.Errorf("opened after %v, but the owner left only after %v", took, later)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// TestInterfaceVanishesAndReturns deletes and recreates interfaces below open
// sockets: first one of two, so that a bound sharer is left, and then all, so
// that the area must be registered anew.
func TestInterfaceVanishesAndReturns(t *testing.T) {
	testenv.NeedRoot(t)
	ns := testenv.NewNamespace(t, "lmxsk")
	pair := func(i int) {
		testenv.VethPair(t, ns, fmt.Sprintf("h%d", i), ns, fmt.Sprintf("p%d", i), testenv.VethOptions{})
	}
	u, p := newArea(t, 4096)
	hosts, hostPool := newArea(t, 4096)
	open := func(i int) (host, port *end) {
		host = openOn(t, ns, fmt.Sprintf("h%d", i), hosts, hostPool, uint16(i), smallConfig(), 256)
		return host, openOn(t, ns, fmt.Sprintf("p%d", i), u, p, uint16(i), smallConfig(), 256)
	}
	reap := func(e *end) {
		t.Helper()
		if r := e.WakeRX(); r != KickIdle && r != KickGone {
			t.Errorf("wake after the interface vanished: %v", r)
		}
		addr, _ := e.p.Get()
		e.p.Give(addr, e.owner)
		e.Transmit([]Desc{{Addr: addr, Len: 60}})
		if r := e.Kick(); r != KickGone || e.counters.KickErrors == 0 {
			t.Errorf("kick after the interface vanished: %v, %+v", r, e.counters)
		}
		if err := e.Close(); err != nil {
			t.Errorf("close after the interface vanished: %v", err)
		}
		if n := e.p.Reclaim(e.owner); n != 257 {
			t.Errorf("reclaimed %d frames, want 257", n)
		}
	}
	pair(0)
	pair(1)
	h0, p0 := open(0)
	h1, p1 := open(1)
	h0.send(t, 0, 100)
	p0.expect(t, 0, 100)

	// The first socket is the one that registered the area.
	ns.DeleteLink(t, "p0")
	h1.send(t, 0, 100)
	p1.expect(t, 0, 100)
	reap(p0)
	reap(h0)
	pair(0)
	h0, p0 = open(0)
	h0.send(t, 0, 100)
	p0.expect(t, 0, 100)
	h1.send(t, 0, 100)
	p1.expect(t, 0, 100)

	// All of them; the sockets stay open while their successors are opened.
	ns.DeleteLink(t, "p0")
	ns.DeleteLink(t, "p1")
	pair(0)
	pair(1)
	oldHost, oldPort := h1, p1
	reap(p0)
	reap(h0)
	h0, p0 = open(0)
	reap(oldPort)
	reap(oldHost)
	h1, p1 = open(1)
	for _, way := range [][2]*end{{h0, p0}, {h1, p1}, {p0, h0}, {p1, h1}} {
		way[0].send(t, 1, 100)
		way[1].expect(t, 1, 100)
	}
	if got := u.Sockets(); got != 2 {
		t.Errorf("%d sockets on the area, want 2", got)
	}
}
