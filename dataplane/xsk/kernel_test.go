package xsk

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/loomfabric/loom/internal/testenv"
)

// The tests below need the kernel: sockets on veth pairs in namespaces.

// redirector is the smallest XDP program that feeds sockets: redirect to the
// socket of the queue, or pass.
type redirector struct {
	sockets *ebpf.Map
	program *ebpf.Program
	link    link.Link
}

// attach loads a redirector, which takes packets of several buffers too, and
// attaches it to an interface of ns.
func attach(t testing.TB, ns *testenv.Namespace, ifindex int, mode link.XDPAttachFlags) *redirector {
	t.Helper()
	r := &redirector{}
	ns.Do(t, func() {
		var err error
		if r.sockets, err = ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.XSKMap, KeySize: 4, ValueSize: 4, MaxEntries: 8}); err != nil {
			t.Fatalf("make XSKMAP: %v", err)
		}
		const rxQueueIndex = 16 // offset in struct xdp_md
		r.program, err = ebpf.NewProgram(&ebpf.ProgramSpec{
			Type:    ebpf.XDP,
			License: "Dual MIT/GPL",
			Flags:   unix.BPF_F_XDP_HAS_FRAGS,
			Instructions: asm.Instructions{
				asm.LoadMem(asm.R2, asm.R1, rxQueueIndex, asm.Word),
				asm.LoadMapPtr(asm.R1, r.sockets.FD()),
				asm.Mov.Imm(asm.R3, 2), // XDP_PASS
				asm.FnRedirectMap.Call(),
				asm.Return(),
			},
		})
		if err != nil {
			t.Fatalf("load XDP program: %v", err)
		}
		if r.link, err = link.AttachXDP(link.XDPOptions{Program: r.program, Interface: ifindex, Flags: mode}); err != nil {
			t.Fatalf("attach XDP program: %v", err)
		}
	})
	t.Cleanup(r.close)
	return r
}

func (r *redirector) close() {
	r.link.Close()
	r.program.Close()
	r.sockets.Close()
}

// end is one side of a test: a socket, its pool and the program that feeds it.
type end struct {
	*Socket
	u     *Umem
	p     *Pool
	owner Owner
	xdp   *redirector
	ns    *testenv.Namespace
}

// smallConfig has rings that hold a test's bursts.
func smallConfig() SocketConfig {
	return SocketConfig{RX: 2048, TX: 2048, Fill: 2048, Completion: 2048}
}

// newArea makes a Umem that is closed after the sockets on it.
func newArea(t testing.TB, frames int) (*Umem, *Pool) {
	t.Helper()
	u, err := NewUmem(UmemConfig{Frames: frames, FrameSize: 2048})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := u.Close(); err != nil {
			t.Error(err)
		}
	})
	return u, NewPool(u.Frames(), u.FrameSize())
}

// openOn opens a socket on queue 0 of an interface, feeds it by XDP and fills
// it with n frames.
func openOn(t testing.TB, ns *testenv.Namespace, name string, u *Umem, p *Pool, port uint16, cfg SocketConfig, n int) *end {
	t.Helper()
	e := &end{u: u, p: p, owner: OwnerPort(port), ns: ns}
	cfg.Name, cfg.Ifindex = name, ns.Link(t, name).Attrs().Index
	e.Socket = mustOpen(t, ns, u, cfg)
	mode := link.XDPDriverMode
	if cfg.Generic {
		mode = link.XDPGenericMode
	}
	e.xdp = attach(t, ns, cfg.Ifindex, mode)
	if err := e.xdp.sockets.Put(uint32(cfg.Queue), uint32(e.FD())); err != nil {
		t.Fatalf("put socket into XSKMAP: %v", err)
	}
	if got := e.fillFrames(n); got != n {
		t.Fatalf("filled %d frames, want %d", got, n)
	}
	return e
}

// openIn opens a socket inside ns.
func openIn(t testing.TB, ns *testenv.Namespace, u *Umem, cfg SocketConfig) (s *Socket, err error) {
	t.Helper()
	ns.Do(t, func() { s, err = Open(u, cfg) })
	return s, err
}

// mustOpen is openIn for sockets that must open; they are closed with the test.
func mustOpen(t testing.TB, ns *testenv.Namespace, u *Umem, cfg SocketConfig) *Socket {
	t.Helper()
	s, err := openIn(t, ns, u, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// fillFrames gives the kernel up to n frames of the pool's.
func (e *end) fillFrames(n int) int {
	given := 0
	for given < n && e.FillFree() > 0 {
		addr, ok := e.p.Get()
		if !ok {
			break
		}
		e.p.Give(addr, e.owner)
		given += e.Fill([]uint64{addr})
	}
	return given
}

// frame builds the frame with number i: it tells its number, its length and
// its bytes from all others.
func frame(i int) []byte {
	b := make([]byte, 60+i*7%1440)
	copy(b, "\x02\x00\x00\x00\x00\x02\x02\x00\x00\x00\x00\x01\x88\xb5") // local experimental EtherType
	binary.BigEndian.PutUint32(b[14:], uint32(i))
	for j := 18; j < len(b); j++ {
		b[j] = byte(i + j*31)
	}
	return b
}

// send transmits frames from..from+n-1 and takes the completions back.
func (e *end) send(t testing.TB, from, n int) {
	t.Helper()
	deadline := time.Now().Add(5 * time.Second)
	for i := from; i < from+n || e.TXPending() > 0; {
		var batch [64]Desc
		k := 0
		for ; k < len(batch) && i+k < from+n; k++ {
			addr, ok := e.p.Get()
			if !ok {
				break
			}
			b := frame(i + k)
			copy(e.u.Area()[addr+Headroom:], b)
			e.p.Give(addr, e.owner)
			batch[k] = Desc{Addr: addr + Headroom, Len: uint32(len(b))}
		}
		sent := e.Transmit(batch[:k])
		for _, d := range batch[sent:k] {
			e.p.Take(d.Addr, e.owner)
			e.p.Put(d.Addr)
		}
		i += sent
		e.flush(t)
		if time.Now().After(deadline) {
			t.Fatalf("sending is stuck: %d of %d sent, %d pending, %+v", i-from, n, e.TXPending(), e.counters)
		}
	}
}

// flush kicks, and frees what is completed.
func (e *end) flush(t testing.TB) {
	t.Helper()
	if r := e.Kick(); r > KickAgain {
		t.Fatalf("kick: %v", r)
	}
	var done [64]uint64
	for n := e.Complete(done[:]); n > 0; n = e.Complete(done[:]) {
		for _, addr := range done[:n] {
			e.p.Take(addr, e.owner)
			e.p.Put(addr)
		}
	}
}

// receiveInto hands received descriptors to fn until n came or none does for
// half a second, and refills. fn owns the frames.
func (e *end) receiveInto(t testing.TB, n int, fn func(Desc)) int {
	t.Helper()
	got := 0
	idle := time.Now()
	for got < n && time.Since(idle) < 500*time.Millisecond {
		var batch [64]Desc
		k := e.Receive(batch[:])
		for _, d := range batch[:k] {
			e.p.Take(d.Addr, e.owner)
			fn(d)
		}
		e.fillFrames(k)
		e.WakeRX()
		got += k
		if k > 0 {
			idle = time.Now()
		} else {
			time.Sleep(100 * time.Microsecond)
		}
	}
	return got
}

// expect receives frames from..from+n-1, each exactly once, in order and whole.
func (e *end) expect(t testing.TB, from, n int) {
	t.Helper()
	i := from
	got := e.receiveInto(t, n, func(d Desc) {
		if err := e.verify(d, i); err != nil {
			t.Errorf("%v", err)
		}
		i++
		e.p.Put(d.Addr)
	})
	if got != n {
		stats, err := e.Stats()
		t.Fatalf("received %d of %d frames; %+v, %v", got, n, stats, err)
	}
}

func (e *end) verify(d Desc, i int) error {
	b := e.u.Area()[d.Addr : d.Addr+uint64(d.Len)]
	if !bytes.Equal(b, frame(i)) {
		return fmt.Errorf("frame %d has %d bytes and begins with % x, want %d bytes that begin with % x", i, len(b), b[:min(len(b), 24)], len(frame(i)), frame(i)[:24])
	}
	return nil
}
