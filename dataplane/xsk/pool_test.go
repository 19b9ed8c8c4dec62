package xsk

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

func TestPoolCycle(t *testing.T) {
	p := NewPool(4, 2048)
	port := OwnerPort(3)
	addr, ok := p.Get()
	if !ok || addr%2048 != 0 || p.Owner(addr) != OwnerWorker || p.Free() != 3 {
		t.Fatalf("Get gave %#x, %v; owner %v, %d free", addr, ok, p.Owner(addr), p.Free())
	}
	p.Give(addr, port)
	if got := p.Owner(addr + 256); got != port {
		t.Fatalf("owner of an address inside the frame is %v", got)
	}
	// As received: the address lies inside of the frame.
	p.Take(addr+256, port)
	p.Put(addr + 210)
	if p.Owner(addr) != OwnerFree || p.Free() != 4 {
		t.Fatalf("after Put: owner %v, %d free", p.Owner(addr), p.Free())
	}
	if again, _ := p.Get(); again != addr {
		t.Errorf("Get gave %#x, want the frame just freed, %#x", again, addr)
	}
}

func TestPoolHandsOutEachFrameOnce(t *testing.T) {
	p := NewPool(100, 4096)
	seen := map[uint64]bool{}
	for range 100 {
		addr, ok := p.Get()
		if !ok || seen[addr] || addr%4096 != 0 || addr >= 100*4096 {
			t.Fatalf("Get gave %#x, %v (seen: %v)", addr, ok, seen[addr])
		}
		seen[addr] = true
	}
	if addr, ok := p.Get(); ok {
		t.Errorf("an empty pool gave %#x", addr)
	}
}

// naivePool is the model: a set of frames for each owner.
type naivePool map[uint64]Owner

func (m naivePool) of(o Owner) (frames []uint64) {
	for addr, owner := range m {
		if owner == o {
			frames = append(frames, addr)
		}
	}
	return frames
}

// TestPoolModel performs random legal transitions on a pool and on a map from
// frame to owner, and compares them.
func TestPoolModel(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %#x", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	const frames, size, ports = 37, 2048, 3
	p, m := NewPool(frames, size), naivePool{}
	for i := range uint64(frames) {
		m[i*size] = OwnerFree
	}
	pick := func(o Owner) (uint64, bool) {
		have := m.of(o)
		if len(have) == 0 {
			return 0, false
		}
		return have[rng.IntN(len(have))], true
	}
	for step := range 20_000 {
		port := OwnerPort(uint16(rng.IntN(ports)))
		inside := rng.Uint64N(size)
		switch rng.IntN(9) {
		case 0, 1:
			addr, ok := p.Get()
			if free := len(m.of(OwnerFree)); ok != (free > 0) || ok && m[addr] != OwnerFree {
				t.Fatalf("step %d: Get gave %#x, %v; %d are free, this one is %v", step, addr, ok, free, m[addr])
			}
			if ok {
				m[addr] = OwnerWorker
			}
		case 2:
			if addr, ok := pick(OwnerWorker); ok {
				p.Put(addr + inside)
				m[addr] = OwnerFree
			}
		case 3, 4, 5:
			if addr, ok := pick(OwnerWorker); ok {
				p.Give(addr+inside, port)
				m[addr] = port
			}
		case 6, 7:
			if addr, ok := pick(port); ok {
				p.Take(addr+inside, port)
				m[addr] = OwnerWorker
			}
		case 8:
			if rng.IntN(10) > 0 {
				continue
			}
			held := m.of(port)
			if got := p.Reclaim(port); got != len(held) {
				t.Fatalf("step %d: reclaimed %d frames of %v, want %d", step, got, port, len(held))
			}
			for _, addr := range held {
				m[addr] = OwnerFree
			}
		}
		if p.Free() != len(m.of(OwnerFree)) {
			t.Fatalf("step %d: %d free, want %d", step, p.Free(), len(m.of(OwnerFree)))
		}
		for addr, owner := range m {
			if got := p.Owner(addr); got != owner {
				t.Fatalf("step %d: frame at %#x belongs to %v, want %v", step, addr, got, owner)
			}
		}
	}
	for o := OwnerFree; o < OwnerPort(ports); o++ {
		if got := p.Count(o); got != len(m.of(o)) {
			t.Errorf("%v owns %d frames, want %d", o, got, len(m.of(o)))
		}
	}
	// What Reclaim put on the stack must come out once each.
	for range p.Free() {
		addr, ok := p.Get()
		if !ok || m[addr] != OwnerFree {
			t.Fatalf("Get gave %#x, %v, which belongs to %v", addr, ok, m[addr])
		}
		m[addr] = OwnerWorker
	}
}

func TestPoolReclaimFreeIsNothing(t *testing.T) {
	p := NewPool(8, 2048)
	if n := p.Reclaim(OwnerFree); n != 0 || p.Free() != 8 {
		t.Errorf("reclaimed %d, %d free", n, p.Free())
	}
}

func TestOwnerNames(t *testing.T) {
	for o, want := range map[Owner]string{OwnerFree: "free", OwnerWorker: "worker", OwnerPort(0): "port 0", OwnerPort(255): "port 255"} {
		if o.String() != want {
			t.Errorf("owner %d is called %q, want %q", o, o, want)
		}
	}
	wantPanic(t, "port 65535", func() { OwnerPort(65535) })
}

func TestNewPoolRefusesTheImpossible(t *testing.T) {
	wantPanic(t, "0 frames", func() { NewPool(0, 2048) })
	wantPanic(t, "3000 bytes", func() { NewPool(8, 3000) })
}

// wantPanic checks that fn panics with a message that contains each of parts,
// which are separated by "|".
func wantPanic(t *testing.T, parts string, fn func()) {
	t.Helper()
	defer func() {
		t.Helper()
		msg, _ := recover().(string)
		for part := range strings.SplitSeq(parts, "|") {
			if !strings.Contains(msg, part) {
				t.Errorf("panicked with %q, want mention of %q", msg, part)
			}
		}
	}()
	fn()
}

func TestPoolDoesNotAllocate(t *testing.T) {
	p := NewPool(64, 2048)
	if n := testing.AllocsPerRun(100, func() {
		addr, _ := p.Get()
		p.Give(addr, OwnerPort(1))
		p.Take(addr, OwnerPort(1))
		p.Put(addr)
	}); n != 0 {
		t.Errorf("a frame's life allocates %v times", n)
	}
}

func BenchmarkPool(b *testing.B) {
	b.Run("get-put", func(b *testing.B) {
		p := NewPool(4096, 2048)
		b.ReportAllocs()
		for b.Loop() {
			addr, _ := p.Get()
			p.Put(addr)
		}
	})
	b.Run("get-give-take-put", func(b *testing.B) {
		p := NewPool(4096, 2048)
		port := OwnerPort(1)
		b.ReportAllocs()
		for b.Loop() {
			addr, _ := p.Get()
			p.Give(addr, port)
			p.Take(addr, port)
			p.Put(addr)
		}
	})
	b.Run("burst=64", func(b *testing.B) {
		p := NewPool(4096, 2048)
		var addrs [64]uint64
		b.ReportAllocs()
		for i := 0; i < b.N; i += len(addrs) {
			for j := range addrs {
				addrs[j], _ = p.Get()
			}
			for _, addr := range addrs {
				p.Put(addr)
			}
		}
	})
}

func TestPoolBurstsEqualTheLongWay(t *testing.T) {
	a, b := NewPool(8, 2048), NewPool(8, 2048)
	port := OwnerPort(3)
	same := func(what string) {
		t.Helper()
		for i := range uint64(8) {
			if x, y := a.Owner(i*2048), b.Owner(i*2048); x != y {
				t.Errorf("%s: frame %d belongs to %v, the long way to %v", what, i, x, y)
			}
		}
		if a.Free() != b.Free() || !slices.Equal(a.free[:a.n], b.free[:b.n]) {
			t.Errorf("%s: %v are free, the long way %v", what, a.free[:a.n], b.free[:b.n])
		}
	}
	var all []uint64
	for _, want := range []int{3, 0, 5, 1} { // of 8
		addrs := make([]uint64, want)
		got := addrs[:a.GetFor(port, addrs)]
		all = append(all, got...)
		for i := range want {
			y, ok := b.Get()
			if ok != (i < len(got)) || ok && got[i] != y {
				t.Fatalf("frame %d of %d: %#x, the long way %#x, %v", i, want, got, y, ok)
			}
			if ok {
				b.Give(y, port)
			}
		}
		same(fmt.Sprintf("GetFor %d", want))
	}
	var descs []Desc
	for _, addr := range all {
		descs = append(descs, Desc{Addr: addr + 300, Len: 60})
		b.Take(addr, port)
	}
	a.TakeAll(port, descs)
	same("TakeAll")
	for _, addr := range all[:5] {
		b.Give(addr+7, port)
	}
	a.GiveAll(port, descs[:5])
	same("GiveAll")
	var back []uint64
	for _, d := range descs[:5] {
		back = append(back, d.Addr)
		b.Take(d.Addr, port)
		b.Put(d.Addr)
	}
	a.PutFrom(port, back)
	same("PutFrom")
}
