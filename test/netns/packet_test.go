package netns

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"sync"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/loomfabric/loom/internal/testenv"
	"github.com/loomfabric/loom/overlay"
)

// testType is an EtherType for local experiments (IEEE 802, annex): no stack
// answers it.
const testType = 0x88b5

var broadcast = overlay.MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

// A wire is a raw socket on an interface: it sends whole frames, and collects
// the frames of the test EtherType that come in, with their tags.
type wire struct {
	t     *testing.T
	fd    int
	index int

	mu     sync.Mutex
	frames [][]byte
}

func openWire(t *testing.T, ns *testenv.Namespace, dev string) *wire {
	t.Helper()
	w := &wire{t: t, index: ns.Link(t, dev).Attrs().Index}
	ns.Do(t, func() {
		var err error
		if w.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, int(htons(unix.ETH_P_ALL))); err != nil {
			t.Fatalf("raw socket in %s: %v", ns.Name, err)
		}
	})
	// The kernel takes the tag out of the frame and tells it beside.
	if err := unix.SetsockoptInt(w.fd, unix.SOL_PACKET, unix.PACKET_AUXDATA, 1); err != nil {
		t.Fatal(err)
	}
	// Nothing is lost because the reader is late.
	_ = unix.SetsockoptInt(w.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 16<<20)
	tv := unix.NsecToTimeval(int64(50 * time.Millisecond))
	if err := unix.SetsockoptTimeval(w.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv); err != nil {
		t.Fatal(err)
	}
	if err := unix.Bind(w.fd, &unix.SockaddrLinklayer{Protocol: htons(unix.ETH_P_ALL), Ifindex: w.index}); err != nil {
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

func htons(v uint16) uint16 { return binary.NativeEndian.Uint16([]byte{byte(v >> 8), byte(v)}) }

func (w *wire) read(stop, done chan struct{}) {
	defer close(done)
	buf, oob := make([]byte, 4096), make([]byte, 256)
	for {
		select {
		case <-stop:
			return
		default:
		}
		n, oobn, _, from, err := unix.Recvmsg(w.fd, buf, oob, 0)
		if err != nil {
			continue // a time-out
		}
		if a, ok := from.(*unix.SockaddrLinklayer); !ok || a.Pkttype == unix.PACKET_OUTGOING {
			continue
		}
		frame := restoreTag(bytes.Clone(buf[:n]), oob[:oobn])
		if !bytes.Contains(frame[:min(len(frame), 20)], []byte{testType >> 8, testType & 0xff}) {
			continue
		}
		w.mu.Lock()
		w.frames = append(w.frames, frame)
		w.mu.Unlock()
	}
}

// restoreTag puts the tag that the kernel took out back where it was.
func restoreTag(frame, oob []byte) []byte {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil || len(frame) < overlay.EthernetLen {
		return frame
	}
	for _, m := range messages {
		if m.Header.Level != unix.SOL_PACKET || m.Header.Type != unix.PACKET_AUXDATA || len(m.Data) < int(unsafe.Sizeof(unix.TpacketAuxdata{})) {
			continue
		}
		aux := (*unix.TpacketAuxdata)(unsafe.Pointer(&m.Data[0]))
		if aux.Status&unix.TP_STATUS_VLAN_VALID == 0 {
			continue
		}
		tagged := append(bytes.Clone(frame[:12]), byte(aux.Vlan_tpid>>8), byte(aux.Vlan_tpid), byte(aux.Vlan_tci>>8), byte(aux.Vlan_tci))
		return append(tagged, frame[12:]...)
	}
	return frame
}

// send puts a frame on the wire as it is.
func (w *wire) send(frame []byte) {
	w.t.Helper()
	if err := w.trySend(frame); err != nil {
		w.t.Fatalf("send a frame of %d bytes: %v", len(frame), err)
	}
}

func (w *wire) trySend(frame []byte) error {
	return unix.Sendto(w.fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: w.index})
}

// got returns the frames so far.
func (w *wire) got() [][]byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([][]byte(nil), w.frames...)
}

// forget empties the collection.
func (w *wire) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.frames = nil
}

// count returns how many of the frames equal want, byte by byte.
func (w *wire) count(want []byte) (n int) {
	for _, f := range w.got() {
		if bytes.Equal(f, want) {
			n++
		}
	}
	return n
}

// expect waits for a frame that equals want.
func (w *wire) expect(want []byte, what string) {
	w.t.Helper()
	eventually(w.t, 5*time.Second, func() string {
		if w.count(want) == 0 {
			return fmt.Sprintf("%s: frame %x... has not arrived; %d others have: %.60x", what, want[:20], len(w.got()), w.got())
		}
		return ""
	})
}

// frame makes a frame of the test EtherType with a payload that tells it from
// others; vlan 0: untagged.
func frame(dst, src overlay.MAC, vlan uint16, payload string) []byte {
	b := append(append([]byte{}, dst[:]...), src[:]...)
	if vlan != 0 {
		b = append(b, 0x81, 0x00, byte(vlan>>8), byte(vlan))
	}
	b = append(b, testType>>8, testType&0xff)
	b = append(b, payload...)
	for len(b) < 60 {
		b = append(b, 0)
	}
	return b
}
