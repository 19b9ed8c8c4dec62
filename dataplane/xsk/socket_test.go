package xsk

import (
	"errors"
	"fmt"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/loomfabric/loom/internal/testenv"
)

// TestBursts sends bursts of more than the 32 frames that one system call moves
// by default, in both directions, and compares every byte.
func TestBursts(t *testing.T) {
	testenv.NeedRoot(t)
	for name, generic := range map[string]bool{"native": false, "generic": true} {
		t.Run(name, func(t *testing.T) {
			ns := testenv.NewNamespace(t, "lmxsk")
			testenv.VethPair(t, ns, "a", ns, "b", testenv.VethOptions{})
			cfg := smallConfig()
			cfg.Generic = generic
			ua, pa := newArea(t, 4096)
			ub, pb := newArea(t, 4096)
			a := openOn(t, ns, "a", ua, pa, 0, cfg, 1500)
			b := openOn(t, ns, "b", ub, pb, 0, cfg, 1500)
			if a.ZeroCopy() || !a.needWakeup {
				t.Errorf("veth: zero-copy %v, need_wakeup %v", a.ZeroCopy(), a.needWakeup)
			}
			// Generic XDP always copies; the veth's driver was asked, and could not.
			if refused := errors.Is(a.Refusal(), unix.EOPNOTSUPP); refused == generic {
				t.Errorf("zero-copy was refused: %v", a.Refusal())
			}
			for round := range 3 {
				a.send(t, round*1000, 1000)
				b.expect(t, round*1000, 1000)
				b.send(t, 500_000+round*333, 333)
				a.expect(t, 500_000+round*333, 333)
			}
			for _, e := range []*end{a, b} {
				stats, err := e.Stats()
				if err != nil {
					t.Fatal(err)
				}
				if stats.RXDropped+stats.RXInvalid+stats.TXInvalid+stats.RXRingFull+stats.FillEmpty+stats.KickErrors != 0 {
					t.Errorf("%s: something was counted as lost: %+v", e.cfg.Name, stats)
				}
				if stats.Kicks == 0 {
					t.Errorf("%s: no kick was counted", e.cfg.Name)
				}
				if e.p.Count(OwnerWorker) != 0 || e.p.Count(e.owner) != 1500 {
					t.Errorf("%s: the worker has %d frames, the socket %d; want 0 and 1500", e.cfg.Name, e.p.Count(OwnerWorker), e.p.Count(e.owner))
				}
			}
		})
	}
}

// TestKickMovesAFullRing checks that one Kick is enough for a ring of many
// times what one system call sends, with the budget raised and without.
func TestKickMovesAFullRing(t *testing.T) {
	testenv.NeedRoot(t)
	ns := testenv.NewNamespace(t, "lmxsk")
	testenv.VethPair(t, ns, "a", ns, "b", testenv.VethOptions{})
	u, p := newArea(t, 4096)
	ub, pb := newArea(t, 4096)
	a := openOn(t, ns, "a", u, p, 0, smallConfig(), 0)
	b := openOn(t, ns, "b", ub, pb, 0, smallConfig(), 2048)
	for _, budget := range []int{min(wantBudget, a.cfg.TX), kernelBudget} {
		if err := a.setBudget(budget); err != nil {
			t.Fatalf("budget %d: %v", budget, err)
		}
		before := a.counters
		for i := range 1000 {
			addr, _ := p.Get()
			p.Give(addr, a.owner)
			if a.Transmit([]Desc{{Addr: addr, Len: uint32(copy(u.Area()[addr:], frame(i)))}}) != 1 {
				t.Fatalf("TX ring full after %d frames", i)
			}
		}
		if got := a.TXQueued(); got != 1000 {
			t.Fatalf("%d frames queued before the kick, want 1000", got)
		}
		if r := a.Kick(); r != KickDone {
			t.Errorf("budget %d: kick says %v", budget, r)
		}
		if got := a.TXQueued(); got != 0 {
			t.Errorf("budget %d: %d frames are left after the kick", budget, got)
		}
		after := a.counters
		calls, again := after.Kicks-before.Kicks, after.KickAgain-before.KickAgain
		// A call that spends its budget says EAGAIN, even if nothing is left.
		least := uint64(1000 / budget)
		if calls < least || calls > least+2 || again < least || again >= calls && again > 0 {
			t.Errorf("budget %d: %d system calls, %d of them told to come again; want about %d", budget, calls, again, least)
		}
		t.Logf("budget %d: %d system calls for 1000 frames", budget, calls)
		if r := a.Kick(); r != KickIdle {
			t.Errorf("kick of an empty ring: %v", r)
		}
		a.flush(t)
		if a.TXPending() != 0 {
			t.Errorf("%d frames never completed", a.TXPending())
		}
		b.expect(t, 0, 1000)
	}
}

// TestForwardByAddress forwards frames between two interfaces by address alone:
// what comes in on one is transmitted on the other from the very same frame,
// since both share the area.
func TestForwardByAddress(t *testing.T) {
	testenv.NeedRoot(t)
	const n, bursts = 500, 4
	h1, fw, h2 := testenv.NewNamespace(t, "lmxsk"), testenv.NewNamespace(t, "lmxsk"), testenv.NewNamespace(t, "lmxsk")
	testenv.VethPair(t, h1, "h1", fw, "p1", testenv.VethOptions{})
	testenv.VethPair(t, h2, "h2", fw, "p2", testenv.VethOptions{})
	hosts, hostPool := newArea(t, 8192) // shared across network namespaces
	src := openOn(t, h1, "h1", hosts, hostPool, 1, smallConfig(), 1024)
	dst := openOn(t, h2, "h2", hosts, hostPool, 2, smallConfig(), 1024)
	u, p := newArea(t, 4096)
	in := openOn(t, fw, "p1", u, p, 1, smallConfig(), 1024)
	out := openOn(t, fw, "p2", u, p, 2, smallConfig(), 1024)
	if u.Sockets() != 2 {
		t.Fatalf("%d sockets on the shared area, want 2", u.Sockets())
	}
	forward := func(from, to *end) {
		got := from.receiveInto(t, n, func(d Desc) {
			p.Give(d.Addr, to.owner)
			if to.Transmit([]Desc{d}) != 1 {
				t.Fatal("TX ring is full")
			}
		})
		if got != n {
			t.Fatalf("%s received %d of %d", from.cfg.Name, got, n)
		}
		to.flush(t)
	}
	for burst := range bursts {
		src.send(t, burst*n, n)
		forward(in, out)
		dst.expect(t, burst*n, n)
		dst.send(t, burst*n+7, n)
		forward(out, in)
		src.expect(t, burst*n+7, n)
	}
	if held := p.Count(in.owner) + p.Count(out.owner); held != 2048 || p.Free() != 4096-2048 {
		t.Errorf("the sockets own %d frames and %d are free, want 2048 each", held, p.Free())
	}
	// The sharer inherits what the first socket asked for.
	if !out.needWakeup || out.ZeroCopy() {
		t.Errorf("second socket: need_wakeup %v, zero-copy %v", out.needWakeup, out.ZeroCopy())
	}
	for _, o := range []*end{in, out} {
		held := p.Count(o.owner)
		if err := o.Close(); err != nil {
			t.Error(err)
		}
		if got := p.Reclaim(o.owner); got != held || held == 0 {
			t.Errorf("reclaimed %d frames of %s, want %d", got, o.cfg.Name, held)
		}
	}
	if p.Free() != 4096 {
		t.Errorf("%d frames are free after all sockets are closed, want 4096", p.Free())
	}
}

// TestTwoRegistrations forwards between sockets of different kernel UMEM objects
// over the same area, which is what a zero-copy and a copying interface get.
// The first stands in for the zero-copy one, which needs a driver that can.
func TestTwoRegistrations(t *testing.T) {
	testenv.NeedRoot(t)
	ns := testenv.NewNamespace(t, "lmxsk")
	u, p := newArea(t, 4096)
	hosts, hostPool := newArea(t, 4096)
	var host, port [3]*end
	cfg := smallConfig()
	cfg.CopyMode = ForceCopy
	for i := range host {
		h, name := fmt.Sprintf("h%d", i), fmt.Sprintf("p%d", i)
		testenv.VethPair(t, ns, h, ns, name, testenv.VethOptions{})
		host[i] = openOn(t, ns, h, hosts, hostPool, uint16(i), smallConfig(), 256)
		port[i] = openOn(t, ns, name, u, p, uint16(i), cfg, 256)
		if i == 0 { // alone in the other group
			u.copy, u.zero = u.zero, u.copy
		}
	}
	if len(u.zero.sockets) != 1 || len(u.copy.sockets) != 2 {
		t.Fatalf("groups of %d and %d sockets, want 1 and 2", len(u.zero.sockets), len(u.copy.sockets))
	}
	for from := range host {
		to := (from + 1) % len(host)
		host[from].send(t, from*100, 100)
		port[from].receiveInto(t, 100, func(d Desc) {
			p.Give(d.Addr, port[to].owner)
			port[to].Transmit([]Desc{d})
		})
		port[to].flush(t)
		host[to].expect(t, from*100, 100)
	}
	// Each group outlives the other.
	if err := port[0].Close(); err != nil {
		t.Fatal(err)
	}
	if u.Sockets() != 2 || len(u.zero.sockets) != 0 {
		t.Errorf("%d sockets are open, %d of them in the first group", u.Sockets(), len(u.zero.sockets))
	}
	host[1].send(t, 0, 100)
	port[1].expect(t, 0, 100)
}

// TestStatisticsCountLosses overruns an RX ring, and then a fill ring.
func TestStatisticsCountLosses(t *testing.T) {
	testenv.NeedRoot(t)
	for name, test := range map[string]struct {
		rx, fill int
		lost     func(Stats) uint64
	}{
		"RX ring full":     {rx: 64, fill: 256, lost: func(s Stats) uint64 { return s.RXRingFull }},
		"fill ring empty":  {rx: 256, fill: 64, lost: func(s Stats) uint64 { return s.FillEmpty }},
		"fill ring filled": {rx: 256, fill: 256, lost: func(s Stats) uint64 { return s.RXRingFull + s.FillEmpty + 136 }},
	} {
		t.Run(name, func(t *testing.T) {
			ns := testenv.NewNamespace(t, "lmxsk")
			testenv.VethPair(t, ns, "a", ns, "b", testenv.VethOptions{})
			ua, pa := newArea(t, 512)
			ub, pb := newArea(t, 512)
			a := openOn(t, ns, "a", ua, pa, 0, smallConfig(), 0)
			cfg := smallConfig()
			cfg.RX = test.rx
			b := openOn(t, ns, "b", ub, pb, 0, cfg, test.fill)
			a.send(t, 0, 200)
			stats, err := b.Stats()
			if err != nil {
				t.Fatal(err)
			}
			if lost := test.lost(stats); lost != 136 {
				t.Errorf("%d counted as lost, want 200 - 64 = 136: %+v", lost, stats)
			}
			want := min(200, test.rx, test.fill)
			b.expect(t, 0, want)
			if got := b.receiveInto(t, 1, func(Desc) {}); got != 0 {
				t.Error("received more frames than there was room for")
			}
		})
	}
}

// TestStatisticsCountInvalid puts nonsense on the TX and the fill ring.
func TestStatisticsCountInvalid(t *testing.T) {
	testenv.NeedRoot(t)
	ns := testenv.NewNamespace(t, "lmxsk")
	testenv.VethPair(t, ns, "a", ns, "b", testenv.VethOptions{})
	u, p := newArea(t, 64)
	a := openOn(t, ns, "a", u, p, 0, smallConfig(), 0)
	b := openOn(t, ns, "b", u, p, 1, smallConfig(), 0)
	beyond := uint64(len(u.Area()))
	good, _ := p.Get()
	copy(u.Area()[good:], frame(0))
	if a.Transmit([]Desc{
		{Addr: beyond, Len: 60},
		{Addr: 2000, Len: 100}, // runs into the next frame
		{Addr: good, Len: 60},
	}) != 3 {
		t.Fatal("TX ring is full")
	}
	if b.Fill([]uint64{beyond}) != 1 {
		t.Fatal("fill ring is full")
	}
	// The kernel ends a system call at an invalid descriptor.
	if r := a.Kick(); r != KickDone || a.TXQueued() != 0 {
		t.Errorf("kick past invalid descriptors: %v, %d left on the ring", r, a.TXQueued())
	}
	if stats, err := a.Stats(); err != nil || stats.TXInvalid != 2 {
		t.Errorf("2 invalid descriptors sent: %+v, %v", stats, err)
	}
	// Linux skips the address and finds the ring empty; see Stats.RXInvalid.
	if stats, err := b.Stats(); err != nil || stats.RXDropped != 1 || stats.FillEmpty != 1 {
		t.Errorf("1 invalid address filled: %+v, %v", stats, err)
	}
}

// TestTransmitWhenFull checks the arithmetic of a full TX ring, and that a link
// that is down is counted and survived.
func TestTransmitWhenFull(t *testing.T) {
	testenv.NeedRoot(t)
	ns := testenv.NewNamespace(t, "lmxsk")
	testenv.VethPair(t, ns, "a", ns, "b", testenv.VethOptions{})
	u, p := newArea(t, 512)
	cfg := smallConfig()
	cfg.TX = 64
	a := openOn(t, ns, "a", u, p, 0, cfg, 0)
	b := openOn(t, ns, "b", u, p, 1, smallConfig(), 128)
	ns.SetUp(t, "a", false)
	descs := make([]Desc, 100)
	for i := range descs {
		addr, _ := p.Get()
		p.Give(addr, a.owner)
		descs[i] = Desc{Addr: addr, Len: uint32(copy(u.Area()[addr:], frame(i)))}
	}
	if got := a.Transmit(descs); got != 64 || a.TXFree() != 0 || a.TXPending() != 64 || a.TXQueued() != 64 {
		t.Errorf("took %d of 100, %d free, %d pending, %d queued; want 64, 0, 64, 64", got, a.TXFree(), a.TXPending(), a.TXQueued())
	}
	if r := a.Kick(); r != KickDown {
		t.Errorf("kick with the link down: %v", r)
	}
	if c := a.counters; c.KickErrors != 1 {
		t.Errorf("counters: %+v", c)
	}
	ns.SetUp(t, "a", true)
	if r := a.Kick(); r != KickDone && r != KickAgain {
		t.Errorf("kick with the link up again: %v", r)
	}
	b.expect(t, 0, 64)
	a.flush(t)
	if a.TXPending() != 0 || a.TXFree() != 64 {
		t.Errorf("%d pending, %d free after all was sent", a.TXPending(), a.TXFree())
	}
}

// TestSendBufferHoldsARing checks that the kernel accounts for as many frames in
// flight as the TX ring has.
func TestSendBufferHoldsARing(t *testing.T) {
	testenv.NeedRoot(t)
	ns := testenv.NewNamespace(t, "lmxsk")
	testenv.VethPair(t, ns, "a", ns, "b", testenv.VethOptions{})
	u, p := newArea(t, 64)
	a := openOn(t, ns, "a", u, p, 0, smallConfig(), 0)
	got, err := unix.GetsockoptInt(a.FD(), unix.SOL_SOCKET, unix.SO_SNDBUF)
	if err != nil || got < 2048*2048 {
		t.Errorf("send buffer of %d bytes, %v; want at least 2048 frames of 2048 bytes", got, err)
	}
}

// TestPacketPathDoesNotAllocate measures a burst through a real socket.
func TestPacketPathDoesNotAllocate(t *testing.T) {
	testenv.NeedRoot(t)
	ns := testenv.NewNamespace(t, "lmxsk")
	testenv.VethPair(t, ns, "a", ns, "b", testenv.VethOptions{})
	u, p := newArea(t, 512)
	a := openOn(t, ns, "a", u, p, 0, smallConfig(), 0)
	b := openOn(t, ns, "b", u, p, 1, smallConfig(), 128)
	descs := make([]Desc, 32)
	for i := range descs {
		addr, _ := p.Get()
		descs[i] = Desc{Addr: addr, Len: uint32(copy(u.Area()[addr:], frame(i)))}
	}
	received, completed, filled := make([]Desc, 64), make([]uint64, 64), make([]uint64, 64)
	var total int
	allocs := testing.AllocsPerRun(200, func() {
		a.Transmit(descs)
		a.Kick()
		a.Complete(completed)
		n := b.Receive(received)
		for i, d := range received[:n] {
			filled[i] = d.Addr
		}
		b.Fill(filled[:n])
		b.WakeRX()
		total += n
	})
	if allocs != 0 {
		t.Errorf("a burst allocates %v times", allocs)
	}
	if total == 0 {
		t.Error("nothing was received, so nothing was measured")
	}
}
