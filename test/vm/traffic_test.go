//go:build vm

package vm

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/loomfabric/loom/internal/testenv"
	"github.com/loomfabric/loom/overlay"
)

// transfer sends bytes over TCP from one host to another, which sends them back.
func (s *site) transfer(from, to string, size int) {
	s.t.Helper()
	start := time.Now()
	if err := s.tryTransfer(from, to, size, stepTime/2); err != nil {
		s.t.Errorf("TCP from %s to %s: %v", from, to, err)
		return
	}
	s.t.Logf("TCP from %s to %s and back: %d KiB in %v", from, to, size>>10, time.Since(start).Round(10*time.Millisecond))
}

func (s *site) tryTransfer(from, to string, size int, within time.Duration) error {
	var l net.Listener
	var err error
	s.ns[to].Do(s.t, func() { l, err = net.Listen("tcp4", netip.AddrPortFrom(hostAddr[to], 0).String()) })
	if err != nil {
		return err
	}
	defer l.Close()
	go func() {
		if c, err := l.Accept(); err == nil {
			_, _ = io.Copy(c, c) // what is missing the other end misses
			c.Close()
		}
	}()
	var c net.Conn
	s.ns[from].Do(s.t, func() { c, err = net.DialTimeout("tcp4", l.Addr().String(), within) })
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(within)); err != nil {
		return err
	}
	sent := bytes.Repeat([]byte("0123456789abcde"), size/15+1)[:size]
	go func() {
		_, _ = c.Write(sent)
		_ = c.(*net.TCPConn).CloseWrite()
	}()
	got, err := io.ReadAll(c)
	if err != nil || !bytes.Equal(got, sent) {
		return fmt.Errorf("%d of %d bytes came back, %w", len(got), size, err)
	}
	return nil
}

// testType is an EtherType for local experiments (IEEE 802): no stack answers it.
const testType = 0x88b5

// wire is a raw socket on a host's interface.
type wire struct {
	t  *testing.T
	fd int
	to unix.SockaddrLinklayer
}

// openWire opens a raw socket that receives frames of an EtherType.
func (s *site) openWire(host string, etherType uint16) *wire {
	s.t.Helper()
	ns := s.ns[host]
	w := &wire{t: s.t}
	protocol := binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, etherType))
	w.to = unix.SockaddrLinklayer{Ifindex: index(s.t, ns), Protocol: protocol}
	ns.Do(s.t, func() {
		var err error
		if w.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, int(protocol)); err != nil {
			s.t.Fatal(err)
		}
	})
	s.t.Cleanup(func() { unix.Close(w.fd) })
	if err := unix.Bind(w.fd, &w.to); err != nil {
		s.t.Fatal(err)
	}
	return w
}

func index(t *testing.T, ns *testenv.Namespace) int { return ns.Link(t, "eth0").Attrs().Index }

// mac is the address of a host's interface.
func (s *site) mac(host string) overlay.MAC {
	s.t.Helper()
	return overlay.MAC(s.ns[host].Link(s.t, "eth0").Attrs().HardwareAddr)
}

func (w *wire) send(frame []byte) {
	w.t.Helper()
	if err := unix.Sendto(w.fd, frame, 0, &w.to); err != nil {
		w.t.Fatalf("send a frame of %d bytes: %v", len(frame), err)
	}
}

// received returns the frames that came in until none came for a while.
func (w *wire) received() (frames [][]byte) {
	w.t.Helper()
	buf := make([]byte, 2048)
	for quiet := time.Now(); time.Since(quiet) < time.Second; {
		n, from, err := unix.Recvfrom(w.fd, buf, 0)
		if a, ok := from.(*unix.SockaddrLinklayer); err != nil || !ok || a.Pkttype == unix.PACKET_OUTGOING {
			time.Sleep(time.Millisecond)
			continue
		}
		frames, quiet = append(frames, bytes.Clone(buf[:n])), time.Now()
	}
	return frames
}

// frame makes an Ethernet frame.
func frame(dst, src overlay.MAC, etherType uint16, payload []byte) []byte {
	b := append(append(bytes.Clone(dst[:]), src[:]...), byte(etherType>>8), byte(etherType))
	return append(b, payload...)
}
