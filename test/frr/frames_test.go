package frr

import (
	"encoding/binary"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/loomfabric/loom/internal/testenv"
)

// testType is an EtherType for local experiments (IEEE 802, annex): no stack
// answers it.
const testType = 0x88b5

// A wire is a raw socket on an interface. It sends whole frames, and counts the
// frames that come in by the mark that a test has put into them.
type wire struct {
	t     *testing.T
	fd    int
	index int

	mu    sync.Mutex
	marks map[string]int
}

func openWire(t *testing.T, ns *testenv.Namespace, dev string) *wire {
	t.Helper()
	w := &wire{t: t, index: ns.Link(t, dev).Attrs().Index, marks: map[string]int{}}
	all := binary.NativeEndian.Uint16([]byte{unix.ETH_P_ALL >> 8, unix.ETH_P_ALL & 0xff})
	ns.Do(t, func() {
		var err error
		if w.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, int(all)); err != nil {
			t.Fatalf("raw socket in %s: %v", ns.Name, err)
		}
	})
	_ = unix.SetsockoptInt(w.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 16<<20)
	tv := unix.NsecToTimeval(int64(50 * time.Millisecond))
	if err := unix.SetsockoptTimeval(w.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv); err != nil {
		t.Fatal(err)
	}
	if err := unix.Bind(w.fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: w.index}); err != nil {
		t.Fatalf("bind to %s in %s: %v", dev, ns.Name, err)
	}
	stop, done := make(chan struct{}), make(chan struct{})
	go w.read(stop, done)
	t.Cleanup(func() {
		close(stop)
		<-done
		unix.Close(w.fd)
	})
	return w
}

// A mark ends the frame's payload, between these.
const markBegin, markEnd = "<loom ", ">"

func (w *wire) read(stop, done chan struct{}) {
	defer close(done)
	for buf := make([]byte, 4096); ; {
		select {
		case <-stop:
			return
		default:
		}
		n, from, err := unix.Recvfrom(w.fd, buf, 0)
		if a, ok := from.(*unix.SockaddrLinklayer); err != nil || !ok || a.Pkttype == unix.PACKET_OUTGOING {
			continue // or a time-out
		}
		_, rest, _ := strings.Cut(string(buf[:n]), markBegin)
		mark, _, ok := strings.Cut(rest, markEnd)
		if !ok {
			continue
		}
		w.mu.Lock()
		w.marks[mark]++
		w.mu.Unlock()
	}
}

// frame makes a frame whose EtherType or length, and header of what is in it, are
// given, and that ends with a mark. Length and checksum of an IPv4 header are filled in.
func frame(dst, src string, typ uint16, header []byte, mark string) []byte {
	d, err1 := net.ParseMAC(dst)
	s, err2 := net.ParseMAC(src)
	if err1 != nil || err2 != nil {
		panic(fmt.Sprint(err1, err2))
	}
	b := append(append(d, s...), byte(typ>>8), byte(typ))
	b = append(append(b, header...), markBegin+mark+markEnd...)
	if typ == unix.ETH_P_IP { // a bridge with br_netfilter drops what is not right
		binary.BigEndian.PutUint16(b[16:], uint16(len(b)-14))
		sum := uint32(0)
		for i := 14; i < 34; i += 2 {
			sum += uint32(binary.BigEndian.Uint16(b[i:]))
		}
		sum = sum&0xffff + sum>>16
		binary.BigEndian.PutUint16(b[24:], ^uint16(sum+sum>>16))
	}
	for len(b) < 60 {
		b = append(b, 0)
	}
	return b
}

// send puts a frame on the wire as it is.
func (w *wire) send(b []byte) {
	w.t.Helper()
	if err := unix.Sendto(w.fd, b, 0, &unix.SockaddrLinklayer{Ifindex: w.index}); err != nil {
		w.t.Fatalf("send a frame of %d bytes: %v", len(b), err)
	}
}

// count returns how many different marks with a prefix have come in, and how often one
// has come again.
func (w *wire) count(prefix string) (n, again int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for m, times := range w.marks {
		if strings.HasPrefix(m, prefix) {
			n++
			again += times - 1
		}
	}
	return n, again
}
