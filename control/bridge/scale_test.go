package bridge

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"net/netip"
	"os/exec"
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/loomfabric/loom/internal/testenv"
	"github.com/loomfabric/loom/overlay"
)

// scaleSink keeps what it is told, and when.
type scaleSink struct {
	has   map[key]Place // the mirror's goroutine alone touches it while the mirror runs
	count atomic.Int64
	last  atomic.Int64 // when something changed, Unix nanoseconds
}

func (s *scaleSink) SetModel(*Model) {}

func (s *scaleSink) ChangeAddresses(changes []Change) {
	for _, c := range changes {
		if c.To == (Place{}) {
			delete(s.has, key{uint32(c.VNI), c.MAC})
		} else {
			s.has[key{uint32(c.VNI), c.MAC}] = c.To
		}
	}
	s.count.Store(int64(len(s.has)))
	s.last.Store(time.Now().UnixNano())
}

// scale is a leaf of a large fabric.
type scale struct {
	networks, addresses, vteps int
	first                      int // index of the first VXLAN device; the bridges' are two apart
}

func (s *scale) mac(i int) overlay.MAC {
	return overlay.MAC{2, 1, byte(i >> 24), byte(i >> 16), byte(i >> 8), byte(i)}
}

func (s *scale) vtep(i int) netip.Addr {
	n := i % s.vteps
	return netip.AddrFrom4([4]byte{10, 1, byte(n >> 8), byte(n)})
}

// setup makes bridges and VXLAN devices.
func (s *scale) setup(t testing.TB, ns *testenv.Namespace) {
	t.Helper()
	var b bytes.Buffer
	for i := range s.networks {
		fmt.Fprintf(&b, "link add name b%d index %d type bridge\n", i, 10+2*i)
		fmt.Fprintf(&b, "link add name v%d index %d master b%d up type vxlan id %d local 10.0.0.1 dstport 4789 nolearning\n", i, 11+2*i, i, 1+i)
		fmt.Fprintf(&b, "link set b%d up\n", i)
	}
	s.first = 11
	c := exec.Command("ip", "-n", ns.Name, "-batch", "-")
	c.Stdin = &b
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// write adds or deletes addresses, as a routing daemon does: two entries each.
func (s *scale) write(t testing.TB, ns *testenv.Namespace, from, to int, kind uint16) {
	t.Helper()
	ns.Do(t, func() {
		sock, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(sock)
		var buf []byte
		n := 0
		for i := from; i < to; i++ {
			last := i == to-1
			for half := range 2 {
				flags := uint16(unix.NLM_F_REQUEST | unix.NLM_F_CREATE | unix.NLM_F_REPLACE)
				if kind == unix.RTM_DELNEIGH {
					flags = unix.NLM_F_REQUEST
				}
				if n++; n%128 == 0 || last && half == 1 {
					flags |= unix.NLM_F_ACK
				}
				buf = append(buf, s.message(i, half, kind, flags)...)
				if flags&unix.NLM_F_ACK != 0 {
					transact(t, sock, buf)
					buf = buf[:0]
				}
			}
		}
	})
}

func (s *scale) message(i, half int, kind, flags uint16) []byte {
	m := make([]byte, unix.SizeofNlMsghdr+ndmsgSize, 64)
	binary.NativeEndian.PutUint16(m[4:], kind)
	binary.NativeEndian.PutUint16(m[6:], flags)
	m[16] = unix.AF_BRIDGE
	binary.NativeEndian.PutUint32(m[20:], uint32(s.first+2*(i%s.networks)))
	binary.NativeEndian.PutUint16(m[24:], unix.NUD_REACHABLE)
	mac := s.mac(i)
	m = append(m, nested(unix.NDA_LLADDR, mac[:])...)
	if half == 0 {
		m[26] = unix.NTF_SELF | unix.NTF_EXT_LEARNED
		m = append(m, nested(unix.NDA_DST, s.vtep(i).AsSlice())...)
	} else {
		m[26] = unix.NTF_MASTER | unix.NTF_EXT_LEARNED
	}
	binary.NativeEndian.PutUint32(m, uint32(len(m)))
	return m
}

// transact sends messages of which the last asks for an answer.
func transact(t testing.TB, sock int, b []byte) {
	t.Helper()
	if err := unix.Sendto(sock, b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		t.Fatal(err)
	}
	answer := make([]byte, 64<<10)
	n, _, err := unix.Recvfrom(sock, answer, 0)
	if err != nil || n < 20 {
		t.Fatalf("%d bytes of answer: %v", n, err)
	}
	if code := int32(binary.NativeEndian.Uint32(answer[16:])); code != 0 {
		t.Fatal(syscall.Errno(-code))
	}
}

// run starts a mirror, has it follow while work writes, and returns the time from the end
// of work until it has what is wanted. A mirror that has it before and then loses it
// again would be found by the check at the end.
func (s *scale) run(t testing.TB, ns *testenv.Namespace, buffer int, want int, work func()) (behind time.Duration, stats Stats, heap uint64) {
	t.Helper()
	sink := &scaleSink{has: make(map[key]Place)}
	var m *Mirror
	ns.Do(t, func() {
		var err error
		if m, err = Open(Options{Sink: sink, Buffer: buffer}); err != nil {
			t.Fatal(err)
		}
	})
	ctx, cancel := context.WithCancel(context.Background())
	end := make(chan error, 1)
	go func() { end <- m.Run(ctx) }()
	for m.Stats().Networks < s.networks {
		time.Sleep(time.Millisecond)
	}
	work()
	written := time.Now()
	limit := written.Add(time.Minute)
	for int(sink.count.Load()) != want || m.Stats().Synced == 0 {
		if time.Now().After(limit) {
			t.Fatalf("the mirror has %d of %d addresses: %+v", sink.count.Load(), want, m.Stats())
		}
		time.Sleep(time.Millisecond)
	}
	behind = max(time.Unix(0, sink.last.Load()).Sub(written), 0)
	stats = m.Stats()
	runtime.GC()
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	cancel()
	if err := <-end; err != nil {
		t.Fatal(err)
	}
	for i := range want {
		k := key{uint32(1 + i%s.networks), s.mac(i)}
		if got := sink.has[k]; got != (Place{VTEP: s.vtep(i)}) {
			t.Fatalf("address %v is at %v, want %v", k, got, s.vtep(i))
		}
	}
	runtime.KeepAlive(m)
	return behind, stats, mem.HeapAlloc
}

// BenchmarkMirror follows a leaf of a large fabric as its routing daemon starts, once with
// all events and once with a buffer that is far too small, and says how long after the
// last entry the mirror equals the kernel. Needs root.
func BenchmarkMirror(b *testing.B) {
	testenv.NeedRoot(b)
	for _, c := range []struct {
		scale
		name string
	}{
		{scale{networks: 4000, addresses: 100_000, vteps: 1000}, "networks=4000"},
		{scale{networks: 1, addresses: 100_000, vteps: 1000}, "networks=1"},
	} {
		s := c.scale
		ns := testenv.NewNamespace(b, "scale")
		s.setup(b, ns)
		for _, buffer := range []int{watchBuffer, 64 << 10} {
			b.Run(fmt.Sprintf("%s/addresses=%d/buffer=%d", c.name, s.addresses, buffer), func(b *testing.B) {
				for b.Loop() {
					var wrote time.Duration
					behind, stats, heap := s.run(b, ns, buffer, s.addresses, func() {
						start := time.Now()
						s.write(b, ns, 0, s.addresses, unix.RTM_NEWNEIGH)
						wrote = time.Since(start)
					})
					b.ReportMetric(wrote.Seconds(), "s-writing")
					b.ReportMetric(behind.Seconds(), "s-behind")
					b.ReportMetric(float64(stats.Lost), "losses")
					b.ReportMetric(float64(stats.Dumps), "dumps")
					b.ReportMetric(stats.DumpTime, "s-dump")
					b.ReportMetric(float64(heap)/(1<<20), "MiB")
					s.write(b, ns, 0, s.addresses, unix.RTM_DELNEIGH)
				}
			})
		}
	}
}

// A buffer that is far too small costs a list, and nothing else.
func TestLostEventsAreMadeUpFor(t *testing.T) {
	testenv.NeedRoot(t)
	s := scale{networks: 20, addresses: 4000, vteps: 10}
	ns := testenv.NewNamespace(t, "lost")
	s.setup(t, ns)
	_, stats, _ := s.run(t, ns, 4096, s.addresses/2, func() {
		s.write(t, ns, 0, s.addresses, unix.RTM_NEWNEIGH)
		s.write(t, ns, s.addresses/2, s.addresses, unix.RTM_DELNEIGH)
	})
	if stats.Lost == 0 || stats.Dumps < 2 {
		t.Errorf("events were lost %d times and %d lists made: the buffer was not too small", stats.Lost, stats.Dumps)
	}
}
