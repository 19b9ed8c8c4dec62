package netns

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/loomfabric/loom/internal/testenv"
)

// transfer sends size random bytes over TCP from one namespace to an address of
// another and back, and compares them.
func transfer(t *testing.T, from, to *testenv.Namespace, addr netip.Addr, size int) {
	t.Helper()
	if err := tryTransfer(t, from, to, addr, size, 30*time.Second); err != nil {
		t.Fatalf("TCP from %s to %s (%v): %v", from.Name, to.Name, addr, err)
	}
}

func tryTransfer(t *testing.T, from, to *testenv.Namespace, addr netip.Addr, size int, within time.Duration) error {
	t.Helper()
	l := listen(t, to, netip.AddrPortFrom(addr, 0))
	defer l.Close()
	served := make(chan error, 1)
	go func() {
		c, err := l.Accept()
		if err == nil {
			defer c.Close()
			_, err = io.Copy(c, c)
		}
		served <- err
	}()
	deadline := time.Now().Add(within)
	c, err := dial(t, from, l.Addr().String(), within)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetDeadline(deadline); err != nil {
		return err
	}
	sent := make([]byte, size)
	seed := uint64(time.Now().UnixNano())
	random := rand.New(rand.NewPCG(seed, seed))
	for i := range sent {
		sent[i] = byte(random.Uint32())
	}
	wrote := make(chan error, 1)
	go func() {
		_, err := c.Write(sent)
		wrote <- errors.Join(err, c.(*net.TCPConn).CloseWrite())
	}()
	got, err := io.ReadAll(c)
	if err := errors.Join(err, <-wrote); err != nil {
		return fmt.Errorf("after %d of %d bytes came back: %w", len(got), size, err)
	}
	if !bytes.Equal(got, sent) {
		return fmt.Errorf("%d bytes came back that are not the %d sent", len(got), size)
	}
	return <-served
}

func listen(t *testing.T, ns *testenv.Namespace, at netip.AddrPort) net.Listener {
	t.Helper()
	var l net.Listener
	ns.Do(t, func() {
		var err error
		if l, err = net.Listen("tcp", at.String()); err != nil {
			t.Fatalf("listen at %v in %s: %v", at, ns.Name, err)
		}
	})
	return l
}

func dial(t *testing.T, ns *testenv.Namespace, addr string, within time.Duration) (net.Conn, error) {
	t.Helper()
	var c net.Conn
	var err error
	ns.Do(t, func() { c, err = net.DialTimeout("tcp", addr, within) })
	return c, err
}

// A stream is one TCP connection that a sender keeps full.
type stream struct {
	t        *testing.T
	received atomic.Int64
	failed   atomic.Pointer[error]
}

// startStream opens a connection and sends at up to a rate in bytes per second
// until the test ends.
func startStream(t *testing.T, from, to *testenv.Namespace, addr netip.Addr, rate int) *stream {
	t.Helper()
	s := &stream{t: t}
	l := listen(t, to, netip.AddrPortFrom(addr, 0))
	t.Cleanup(func() { l.Close() })
	c, err := dial(t, from, l.Addr().String(), 5*time.Second)
	if err != nil {
		t.Fatalf("TCP from %s to %v: %v", from.Name, l.Addr(), err)
	}
	peer, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(); peer.Close() })
	fail := func(err error) { s.failed.CompareAndSwap(nil, &err) }
	const period = 5 * time.Millisecond
	chunk := make([]byte, rate/int(time.Second/period))
	go func() {
		for tick := time.NewTicker(period); ; <-tick.C {
			if _, err := c.Write(chunk); err != nil {
				fail(err)
				return
			}
		}
	}()
	go func() {
		for buf := make([]byte, 64<<10); ; {
			n, err := peer.Read(buf)
			s.received.Add(int64(n))
			if err != nil {
				fail(err)
				return
			}
		}
	}()
	return s
}

// flows waits until so many more bytes have arrived.
func (s *stream) flows(bytes int64, within time.Duration) {
	s.t.Helper()
	start := s.received.Load()
	eventually(s.t, within, func() string {
		if err := s.failed.Load(); err != nil {
			s.t.Fatalf("the connection broke: %v", *err)
		}
		if got := s.received.Load() - start; got < bytes {
			return fmt.Sprintf("%d of %d bytes arrived", got, bytes)
		}
		return ""
	})
}

// listenUDP listens in a namespace until the test ends. The socket has room for all that comes
// while a busy machine does not let its reader run.
func listenUDP(t *testing.T, ns *testenv.Namespace, addr netip.Addr) (c *net.UDPConn) {
	t.Helper()
	ns.Do(t, func() {
		var err error
		if c, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(addr, 0))); err != nil {
			t.Fatal(err)
		}
		raw, err := c.SyscallConn()
		if err == nil {
			err = raw.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20) })
		}
		if err != nil {
			t.Fatal(err)
		}
	})
	t.Cleanup(func() { c.Close() })
	return c
}

// A probe is UDP of many flows at a steady rate with numbered datagrams, so
// that each one's fate is known.
type probe struct {
	sent    atomic.Int64
	arrived []atomic.Bool // by number
	at      []atomic.Int64
	copies  atomic.Int64
	stop    chan struct{}
	done    chan struct{}
}

// startProbe sends a small datagram every period, each from the next of so many
// source ports.
func startProbe(t *testing.T, from, to *testenv.Namespace, addr netip.Addr, flows int, period time.Duration) *probe {
	t.Helper()
	return startBursts(t, from, to, addr, flows, period, 1)
}

// startBursts is startProbe with so many datagrams each time.
func startBursts(t *testing.T, from, to *testenv.Namespace, addr netip.Addr, flows int, period time.Duration, burst int) *probe {
	t.Helper()
	const most = 1 << 18
	p := &probe{arrived: make([]atomic.Bool, most), at: make([]atomic.Int64, most), stop: make(chan struct{}), done: make(chan struct{})}
	in := listenUDP(t, to, addr)
	go func() {
		for buf := make([]byte, 2048); ; {
			n, _, err := in.ReadFrom(buf)
			if err != nil {
				return
			}
			if i, err := strconv.Atoi(string(buf[:n])); err == nil && i < most {
				if p.arrived[i].Swap(true) {
					p.copies.Add(1)
				}
			}
		}
	}()
	out := make([]net.Conn, flows)
	for i := range out {
		from.Do(t, func() {
			var err error
			if out[i], err = net.Dial("udp", in.LocalAddr().String()); err != nil {
				t.Fatal(err)
			}
		})
		t.Cleanup(func() { out[i].Close() })
	}
	go func() {
		defer close(p.done)
		tick := time.NewTicker(period)
		defer tick.Stop()
		for i := 0; i < most; i++ {
			if i%burst == 0 {
				select {
				case <-p.stop:
					return
				case <-tick.C:
				}
			}
			p.at[i].Store(time.Now().UnixNano())
			// An error is the answer to an earlier datagram; this one counts as
			// lost then.
			_, _ = out[i%flows].Write([]byte(strconv.Itoa(i)))
			p.sent.Store(int64(i + 1))
		}
	}()
	t.Cleanup(p.end)
	return p
}

// end stops sending and gives the last datagrams time to arrive.
func (p *probe) end() {
	select {
	case <-p.done:
		return
	default:
	}
	close(p.stop)
	<-p.done
	time.Sleep(200 * time.Millisecond)
}

// arrivesSince reports whether one of the datagrams around number i has arrived.
func (p *probe) arrivesSince(i int64) bool {
	for k := max(0, i-16); k <= i; k++ {
		if p.arrived[k].Load() {
			return true
		}
	}
	return false
}

// lost counts the datagrams sent in [from, to) and those of them that never
// arrived.
func (p *probe) lost(from, to time.Time) (sent, lost int) {
	for i := range p.sent.Load() {
		if at := p.at[i].Load(); at < from.UnixNano() || at >= to.UnixNano() {
			continue
		}
		sent++
		if !p.arrived[i].Load() {
			lost++
		}
	}
	return sent, lost
}
