package bpf

import (
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/loomfabric/loom/internal/testenv"
)

// openFast returns tables for one port with one queue.
func openFast(t testing.TB) *Fast {
	t.Helper()
	testenv.NeedRoot(t)
	f, err := OpenFast(FastSize{Ports: 2, Queues: 1, Hops: 4, Groups: 4})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

// With tables that are not in force, and with stale ones, the program does what the one
// without a fast path does, but for the number in front of the metadata.
func TestFastProgramWithoutTablesLeavesAllToUserSpace(t *testing.T) {
	cfg := config(Spine)
	cfg.Fast = openFast(t)
	fast, plain := newRunner(t, cfg), newRunner(t, config(Spine))
	number := uint64(0)
	for _, frame := range corpus() {
		want, wantAction, m, meta := plain.verdict(frame)
		fast.numbered = true
		name, action, got, gotMeta := fast.verdict(frame)
		if name != want || action != wantAction || got != m || gotMeta != meta {
			t.Fatalf("verdict %s, action %d, metadata %v %+v; without a fast path %s, %d, %v %+v\nframe %x", name, action, gotMeta, got, want, wantAction, meta, m, frame)
		}
		if !meta {
			continue
		}
		number++
		if n := cfg.Fast.Number(fast.number); n != number {
			t.Fatalf("frame %d has number %d (%x)", number, n, fast.number)
		}
	}
	if number == 0 {
		t.Fatal("no frame went to user space")
	}
	if n := cfg.Fast.Slow(0, 0); n != number {
		t.Errorf("%d frames are counted as slow because the tables are off, want %d", n, number)
	}
}

// A veth takes frames from XDP once the other end has an XDP program, and what it does not
// take is counted by the ports that the frames came by and were to leave by.
func TestFastPathCountsWhatDriversRefuse(t *testing.T) {
	f := openFast(t)
	ns := testenv.NewNamespace(t, "fast")
	in, _ := testenv.VethPair(t, ns, "in0", ns, "in1", testenv.VethOptions{})
	out, far := testenv.VethPair(t, ns, "out0", ns, "out1", testenv.VethOptions{})
	cfg := config(Spine)
	cfg.Fast = f
	r := newRunner(t, cfg)
	ports, hops, groups := f.Copy(0)
	mac := [6]byte{2, 0, 0, 0, 0, 1} // of frames' destinations
	ports[0] = FastPort{Mac: mac, On: 1}
	hops[0] = FastHop{Dst: mac, Src: mac, MaxFrame: 1600, Port: 1, On: 1}
	groups[0] = FastGroup{Places: 1, From: [4]uint64{1}}
	if err := f.SetRoutes(0, map[netip.Prefix]uint32{netip.MustParsePrefix("0.0.0.0/0"): FastRoute(0, true)}); err != nil {
		t.Fatal(err)
	}
	frame := encap(eth(0x0800, ip4(6, 0, 0, tcp(1000, 80))))
	const frames = 64
	send := func() (lost uint64) {
		t.Helper()
		before, _ := f.Moved(0, 0)
		lost = f.Lost(0, 1)
		opts := ebpf.RunOptions{
			Data: frame, Repeat: frames, Flags: unix.BPF_F_TEST_XDP_LIVE_FRAMES,
			Context: xdpMD{DataEnd: uint32(len(frame)), Ifindex: uint32(in.Attrs().Index)},
		}
		if _, err := r.prog.Run(&opts); err != nil {
			t.Fatal(err)
		}
		if n, _ := f.Moved(0, 0); n-before < frames {
			t.Fatalf("%d frames were forwarded, want %d", n-before, frames)
		}
		return f.Lost(0, 1) - lost
	}
	ns.Do(t, func() {
		ns.SetUp(t, "in0", true)
		ns.SetUp(t, "in1", true)
		ns.SetUp(t, "out0", true)
		ns.SetUp(t, "out1", true)
		own, err := OpenFast(FastSize{Ports: 2, Queues: 1, Hops: 4, Groups: 4}) // of this namespace
		if err != nil {
			t.Fatal(err)
		}
		f.netns = own.netns
		own.Close()
		for port, ifindex := range []int{in.Attrs().Index, out.Attrs().Index} {
			if err := f.SetDevice(port, ifindex); err != nil {
				t.Fatal(err)
			}
		}
		f.SetDead(1 << 62)
		f.Use(0)
		takes := func(want bool) {
			t.Helper()
			if is, err := TakesRedirects(out.Attrs().Index); err != nil || is != want {
				t.Fatalf("the driver takes frames from XDP: %v, %v; want %v", is, err, want)
			}
		}
		takes(false)
		if lost := send(); lost < frames {
			t.Errorf("%d of %d frames are counted as lost where nobody takes them", lost, frames)
		}
		other, err := Load(config(Spine))
		if err != nil {
			t.Fatal(err)
		}
		defer other.Close()
		if _, err := other.Attach(far.Attrs().Index, "out1", Native); err != nil {
			t.Fatal(err)
		}
		takes(true)
		if lost := send(); lost != 0 {
			t.Errorf("%d frames are counted as lost where the other end takes them", lost)
		}
		seen := uint64(0)
		counts, err := other.Counters()
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range counts {
			seen += n
		}
		if seen < frames {
			t.Errorf("%d frames came to the other end, want %d", seen, frames)
		}
	})
}

// A node that has not said for a second that it lives hangs, and its sockets are as good as
// none: its frames are the kernel's, or dropped where the port is closed. Before, they wait
// in its sockets.
func TestFastPathOfANodeThatHangs(t *testing.T) {
	const dead = 200_000_000
	now := func() uint64 {
		var ts unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
			t.Fatal(err)
		}
		return uint64(ts.Nano())
	}
	for _, c := range []struct {
		kind   Kind
		closed bool
		hung   string
	}{
		{Access, false, "pass_no_socket"}, {Access, true, "drop_no_socket"}, {Uplink, false, "pass_no_socket"}, {Spine, false, "pass_no_socket"},
	} {
		cfg := config(c.kind)
		cfg.Closed = c.closed
		if cfg.Fast = openFastLeaf(t); c.kind == Spine {
			cfg.Fast = openFast(t)
		}
		ports, _, _ := cfg.Fast.Copy(0)
		ports[0].On = 1
		cfg.Fast.SetDead(dead)
		cfg.Fast.Use(0)
		r := newRunner(t, cfg)
		frame := encap(eth(0x0800, ip4(6, 0, 0, tcp(1000, 80))))
		for _, step := range []struct {
			age  uint64
			want string
		}{{0, "redirect"}, {2 * dead, "redirect"}, {4 * dead, "redirect"}, {7 * dead, c.hung}} {
			cfg.Fast.Beat(now() - step.age)
			r.numbered = true
			if got, _, _, _ := r.verdict(frame); got != step.want {
				t.Errorf("%v port, closed %v, a beat %d ms ago: %s, want %s", c.kind, c.closed, step.age/1e6, got, step.want)
			}
		}
	}
}
