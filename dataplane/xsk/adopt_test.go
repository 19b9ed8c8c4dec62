package xsk

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/loomfabric/loom/internal/testenv"
)

// dup returns another descriptor of the same thing, as SCM_RIGHTS gives one to another
// process.
func dup(t testing.TB, fd int) int {
	t.Helper()
	n, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// A pool comes out of its owners as it was, whatever the ports are called, but for
// frames of the worker's that nobody has a handle of: these are free.
func TestRestorePool(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	for range 50 {
		const frames, size = 64, 2048
		p := NewPool(frames, size)
		var kept []uint64
		want, lost := make(map[uint64]Owner), 0
		for range rng.IntN(frames) {
			addr, _ := p.Get()
			want[addr] = OwnerWorker
			switch rng.IntN(4) {
			case 0:
				lost++
				want[addr] = OwnerFree
			case 1:
				kept = append(kept, addr+rng.Uint64N(size))
			default:
				port := uint16(rng.IntN(3))
				p.Give(addr, OwnerPort(port))
				want[addr] = OwnerPort(7 - port)
			}
		}
		q, orphans, err := RestorePool(slices.Clone(p.Owners()), size, []uint16{7, 6, 5}, kept)
		if err != nil {
			t.Fatal(err)
		}
		free := 0
		for i := range uint64(frames) {
			if have := q.Owner(i * size); have != want[i*size] {
				t.Errorf("frame %d belongs to %v, want %v", i, have, want[i*size])
			}
			if want[i*size] == OwnerFree {
				free++
			}
		}
		if orphans != lost || q.Free() != free {
			t.Errorf("%d orphans, %d free; want %d and %d", orphans, q.Free(), lost, free)
		}
		for range free {
			addr, ok := q.Get()
			if !ok || want[addr] != OwnerFree {
				t.Fatalf("Get gives frame %#x, %v", addr, ok)
			}
			want[addr] = OwnerWorker // not twice
		}
	}
}

func TestRestorePoolRefuses(t *testing.T) {
	owners := []Owner{OwnerFree, OwnerWorker, OwnerPort(0), OwnerPort(1)}
	if n := Ports(owners); n != 2 {
		t.Errorf("%d ports, want 2", n)
	}
	for want, c := range map[string]struct {
		port []uint16
		kept []uint64
	}{
		"frame 2 (address 0x1001) has a handle, and belongs to port 0": {[]uint16{0, 1}, []uint64{4097}},
		"frame 0 (address 0x0) has a handle, and belongs to free":      {[]uint16{0, 1}, []uint64{0}},
		"frame 1 (address 0xfff) has two handles":                      {[]uint16{0, 1}, []uint64{2048, 4095}},
		"at 0x2000 is outside":                                         {[]uint16{0, 1}, []uint64{4 * 2048}},
		"frame 3 belongs to port 1, and there are 1 ports":             {[]uint16{0}, nil},
	} {
		if p, _, err := RestorePool(owners, 2048, c.port, c.kept); p != nil || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

func TestAdoptUmemRefuses(t *testing.T) {
	cfg := UmemConfig{Frames: 64, FrameSize: 2048}
	u, _ := newArea(t, 64)
	loose, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(loose)
	if err := unix.Ftruncate(loose, int64(cfg.size())); err != nil {
		t.Fatal(err)
	}
	for want, c := range map[string]struct {
		cfg UmemConfig
		fd  int
	}{
		"131072 bytes, and 65 frames": {UmemConfig{Frames: 65, FrameSize: 2048}, u.Memory()},
		"not sealed":                  {cfg, loose},
		"FrameSize is 3":              {UmemConfig{Frames: 65, FrameSize: 3}, u.Memory()},
	} {
		before := openFiles(t)
		if a, err := AdoptUmem(c.cfg, dup(t, c.fd)); a != nil || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
		if after := openFiles(t); after != before {
			t.Errorf("%q: %d descriptors before, %d after", want, before, after)
		}
	}
	if err := unix.Ftruncate(u.Memory(), 4096); err == nil {
		t.Error("a packet area could be cut short")
	}
	a, err := AdoptUmem(cfg, dup(t, u.Memory()))
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	u.Area()[5000] = 77
	if a.Area()[5000] != 77 {
		t.Error("the two areas are not the same memory")
	}
	if s, err := Adopt(a, dup(t, u.Memory()), SocketState{Config: SocketConfig{Ifindex: 1, RX: 64, TX: 64, Fill: 64, Completion: 64}}); s != nil || err == nil {
		t.Errorf("a memory file was taken for a socket: %v", err)
	}
}

func openFiles(t testing.TB) int {
	t.Helper()
	d, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(d)
}

// successor maps the area of e a second time and adopts its socket, as another process
// would, with the ledger of e's pool. What e held must not be used any more.
func (e *end) successor(t testing.TB) *end {
	t.Helper()
	u, err := AdoptUmem(e.u.Config(), dup(t, e.u.Memory()))
	if err != nil {
		t.Fatal(err)
	}
	s, err := Adopt(u, dup(t, e.FD()), e.State())
	if err != nil {
		t.Fatal(err)
	}
	return e.resume(t, u, s)
}

func (e *end) resume(t testing.TB, u *Umem, s *Socket) *end {
	t.Helper()
	state := e.State()
	s.Resume(&state)
	ports := make([]uint16, Ports(e.p.Owners()))
	for i := range ports {
		ports[i] = uint16(i)
	}
	p, orphans, err := RestorePool(e.p.Owners(), e.u.FrameSize(), ports, nil)
	if err != nil || orphans != 0 {
		t.Fatalf("%d orphans, error %v", orphans, err)
	}
	return &end{Socket: s, u: u, p: p, owner: e.owner, xdp: e.xdp, ns: e.ns}
}

// A socket goes from owner to owner while frames come and go: with frames on each of
// its rings. None is lost, none comes twice, each is whole, and every frame has an owner.
func TestAdopt(t *testing.T) {
	testenv.NeedRoot(t)
	ns := testenv.NewNamespace(t, "lmxsk")
	testenv.VethPair(t, ns, "a", ns, "b", testenv.VethOptions{})
	ua, pa := newArea(t, 4096)
	ub, pb := newArea(t, 4096)
	a := openOn(t, ns, "a", ua, pa, 0, smallConfig(), 1500)
	b := openOn(t, ns, "b", ub, pb, 0, smallConfig(), 1500)
	next := 0
	for round := range 4 {
		// Frames of a's that the kernel has not taken yet, and completions not looked at.
		a.send(t, next, 300)
		for i := next + 300; i < next+350; i++ {
			addr, _ := a.p.Get()
			a.p.Give(addr, a.owner)
			a.Transmit([]Desc{{Addr: addr + Headroom, Len: uint32(copy(a.u.Area()[addr+Headroom:], frame(i)))}})
		}
		if round%2 == 1 {
			a.Kick()
		}
		a2 := a.successor(t)
		if got, want := a2.TXPending(), a.TXPending(); got != want || want == 0 {
			t.Errorf("round %d: %d frames are on their way out, want %d", round, got, want)
		}
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
		a = a2
		// b has 350 frames on its RX ring, and takes them over as well.
		deadline := time.Now().Add(5 * time.Second)
		for a.TXPending() > 0 && time.Now().Before(deadline) {
			a.flush(t)
		}
		b.expect(t, next, 128) // two bursts
		b2 := b.successor(t)
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		b = b2
		b.expect(t, next+128, 350-128)
		next += 350
		if free, port := b.p.Count(OwnerFree), b.p.Count(b.owner); free+port != 4096 || port != 1500 {
			t.Errorf("round %d: %d frames are free and %d the port's", round, free, port)
		}
		if free := a.p.Count(OwnerFree); free != 4096-1500 {
			t.Errorf("round %d: %d frames of the sender's are free, want %d", round, free, 4096-1500)
		}
	}
	// The registration lives with the sockets: others can share it.
	testenv.VethPair(t, ns, "c", ns, "d", testenv.VethOptions{})
	c := openOn(t, ns, "c", a.u, a.p, 2, smallConfig(), 100)
	_, pd := newArea(t, 1024)
	d := openOn(t, ns, "d", mustArea(t, 1024), pd, 3, smallConfig(), 500)
	c.send(t, 0, 200)
	d.expect(t, 0, 200)
	for _, e := range []*end{a, b} {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}
}

func mustArea(t testing.TB, frames int) *Umem { u, _ := newArea(t, frames); return u }

// adoptVar tells the test binary to be the process that TestAdoptInAnotherProcess hands
// a socket to; its value is the socket's state and the pool's owners.
const adoptVar = "LOOM_XSK_TEST_ADOPT"

type adopted struct {
	State  SocketState
	Umem   UmemConfig
	Owners []Owner
	From   int // the first frame that it is to expect, and to send back
}

// A socket and its area go to another process, and the first one's end. What was on the
// rings is received there, and the other process sends.
func TestAdoptInAnotherProcess(t *testing.T) {
	if text := os.Getenv(adoptVar); text != "" {
		adoptHere(t, text)
		return
	}
	testenv.NeedRoot(t)
	ns := testenv.NewNamespace(t, "lmxsk")
	testenv.VethPair(t, ns, "a", ns, "b", testenv.VethOptions{})
	ua, pa := newArea(t, 4096)
	ub, pb := newArea(t, 4096)
	a := openOn(t, ns, "a", ua, pa, 0, smallConfig(), 1500)
	b := openOn(t, ns, "b", ub, pb, 0, smallConfig(), 1500)
	a.send(t, 0, 100)
	b.expect(t, 0, 64)
	text, err := json.Marshal(adopted{b.State(), ub.Config(), b.p.Owners(), 64})
	if err != nil {
		t.Fatal(err)
	}
	child := exec.Command(os.Args[0], "-test.run=^TestAdoptInAnotherProcess$", "-test.v")
	child.Env = append(os.Environ(), adoptVar+"="+string(text))
	child.ExtraFiles = []*os.File{os.NewFile(uintptr(dup(t, ub.Memory())), "area"), os.NewFile(uintptr(dup(t, b.FD())), "socket")}
	var said strings.Builder
	child.Stdout, child.Stderr = &said, &said
	in, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	ns.Do(t, func() { err = child.Start() })
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range child.ExtraFiles {
		f.Close()
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	a.send(t, 100, 400) // while the socket changes hands
	if _, err := io.WriteString(in, "go"); err != nil {
		t.Fatal(err)
	}
	in.Close()
	a.expect(t, 1000, 333)
	if err := child.Wait(); err != nil {
		t.Fatalf("%v: %s", err, &said)
	}
}

// adoptHere is the other process: the area is descriptor 3, the socket 4.
func adoptHere(t *testing.T, text string) {
	var x adopted
	if err := json.Unmarshal([]byte(text), &x); err != nil {
		t.Fatal(err)
	}
	u, err := AdoptUmem(x.Umem, 3)
	if err != nil {
		t.Fatal(err)
	}
	s, err := Adopt(u, 4, x.State)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(os.Stdin); err != nil {
		t.Fatal(err)
	}
	p, orphans, err := RestorePool(x.Owners, x.Umem.FrameSize, []uint16{0}, nil)
	if err != nil || orphans != 0 {
		t.Fatalf("%d orphans, %v", orphans, err)
	}
	s.Resume(&x.State)
	e := &end{Socket: s, u: u, p: p, owner: OwnerPort(0)}
	e.expect(t, x.From, 500-x.From)
	e.send(t, 1000, 333)
	if got := fmt.Sprint(p.Count(OwnerWorker), p.Count(e.owner)); got != "0 1500" {
		t.Errorf("the worker and the port have %s frames, want 0 and 1500", got)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := u.Close(); err != nil {
		t.Error(err)
	}
}
