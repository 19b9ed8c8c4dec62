package bpf

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/loomfabric/loom/internal/testenv"
)

// wire is a veth pair: near carries the program, frames are sent into far.
type wire struct {
	t         testing.TB
	near, far *testenv.Namespace
	index     int // of near0
}

func newWire(t testing.TB, opt testenv.VethOptions) *wire {
	t.Helper()
	testenv.NeedRoot(t)
	w := &wire{t: t, near: testenv.NewNamespace(t, "loombpf"), far: testenv.NewNamespace(t, "loombpf")}
	near, _ := testenv.VethPair(t, w.near, "near0", w.far, "far0", opt)
	w.index = near.Attrs().Index
	return w
}

// attach attaches p to near0.
func (w *wire) attach(p *Program, mode Mode) (got Mode, err error) {
	w.t.Helper()
	w.near.Do(w.t, func() { got, err = p.Attach(w.index, "near0", mode) })
	return got, err
}

// load loads a program where near0 is.
func (w *wire) load(cfg Config) (p *Program, err error) {
	w.t.Helper()
	w.near.Do(w.t, func() { p, err = Load(cfg) })
	return p, err
}

// attached returns the id of the program on near0, 0 if there is none.
func (w *wire) attached() uint32 {
	w.t.Helper()
	xdp := w.near.Link(w.t, "near0").Attrs().Xdp
	if xdp == nil || !xdp.Attached {
		return 0
	}
	return xdp.ProgId
}

// packet opens an AF_PACKET socket on an interface for every EtherType.
func packet(t testing.TB, n *testenv.Namespace, name string) int {
	t.Helper()
	index := n.Link(t, name).Attrs().Index
	fd := -1
	n.Do(t, func() {
		const all = unix.ETH_P_ALL<<8&0xff00 | unix.ETH_P_ALL>>8 // htons
		var err error
		if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, all); err != nil {
			t.Fatal(err)
		}
		if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: index}); err != nil {
			t.Fatal(err)
		}
	})
	t.Cleanup(func() { _ = unix.Close(fd) })
	return fd
}

func mustLoad(t testing.TB, cfg Config) *Program {
	t.Helper()
	p, err := Load(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// eventually waits for something that the kernel does in its own time.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within 5 s: %s", what)
		}
	}
}

// Attached in either mode without a socket, the program passes all frames to the
// kernel and counts them: it fails open.
func TestAttachedPassesToKernel(t *testing.T) {
	for _, c := range []struct{ ask, got Mode }{{Auto, Native}, {Native, Native}, {Generic, Generic}} {
		t.Run(c.ask.String(), func(t *testing.T) {
			w := newWire(t, testenv.VethOptions{})
			p := mustLoad(t, config(Access))
			got, err := w.attach(p, c.ask)
			if err != nil || got != c.got {
				t.Fatalf("Attach: mode %v, error %v; want %v", got, err, c.got)
			}
			tx, rx := packet(t, w.far, "far0"), packet(t, w.near, "near0")
			data := join(eth(0x0800, ip4(17, 0, 0, udp(1, 2, []byte("for the kernel")))), make([]byte, 20))
			lldp := with(eth(0x88cc, make([]byte, 46)), 0, 1, 0x80, 0xc2, 0, 0, 0x0e)
			const frames = 10
			for range frames {
				for _, f := range [][]byte{data, lldp} {
					if _, err := unix.Write(tx, f); err != nil {
						t.Fatal(err)
					}
				}
			}
			eventually(t, "all frames counted", func() bool {
				n, err := p.Counters()
				if err != nil {
					t.Fatal(err)
				}
				return n["pass_no_socket"] == frames && n["pass_link_local"] == frames && n["redirect"]+n["no_meta"] == 0
			})
			received := 0
			eventually(t, "all frames received by the kernel", func() bool {
				buf := make([]byte, 2048)
				for {
					n, err := unix.Read(rx, buf)
					if err != nil {
						break
					}
					if slices.Equal(buf[:n], data) || slices.Equal(buf[:n], lldp) {
						received++
					}
				}
				return received == 2*frames
			})
		})
	}
}

// The second program gets an error that names the first and the remedy; the first is
// not disturbed, whatever the modes.
func TestSecondAttachRefused(t *testing.T) {
	for _, first := range []Mode{Native, Generic} {
		for _, second := range []Mode{Auto, Native, Generic} {
			t.Run(fmt.Sprintf("%v after %v", second, first), func(t *testing.T) {
				w := newWire(t, testenv.VethOptions{})
				a, b := mustLoad(t, config(Access)), mustLoad(t, config(Uplink))
				if _, err := w.attach(a, first); err != nil {
					t.Fatal(err)
				}
				id := w.attached()
				if id == 0 {
					t.Fatal("nothing attached")
				}
				fds := descriptors(t)
				_, err := w.attach(b, second)
				if err == nil {
					t.Fatal("second program attached")
				}
				for _, want := range []string{"near0", fmt.Sprintf("program %d (loom_access)", id), "another leafd", "ip link set dev near0 xdp"} {
					if !strings.Contains(err.Error(), want) {
						t.Errorf("error %q does not say %q", err, want)
					}
				}
				if !errors.Is(err, unix.EBUSY) && !errors.Is(err, unix.EEXIST) {
					t.Errorf("error %q wraps neither EBUSY nor EEXIST", err)
				}
				if w.attached() != id {
					t.Error("the first program was disturbed")
				}
				if after := descriptors(t); !slices.Equal(after, fds) {
					t.Errorf("descriptors before the refusal %v, after %v", fds, after)
				}
				if err := a.Close(); err != nil {
					t.Fatal(err)
				}
				if _, err := w.attach(b, second); err != nil {
					t.Errorf("after the first was closed: %v", err)
				}
			})
		}
	}
}

// The remedy that the refusal names must work on what it is named for: a
// program that iproute2 or another tool attached without a link.
func TestRemedyForForeignProgram(t *testing.T) {
	w := newWire(t, testenv.VethOptions{})
	foreign, p := mustLoad(t, config(Access)), mustLoad(t, config(Access))
	set := func(fd int) {
		t.Helper()
		w.near.Do(t, func() {
			link, err := netlink.LinkByName("near0")
			if err == nil {
				err = netlink.LinkSetXdpFd(link, fd)
			}
			if err != nil {
				t.Fatal(err)
			}
		})
	}
	set(foreign.prog.FD())
	if _, err := w.attach(p, Auto); err == nil || !strings.Contains(err.Error(), "xdp off") {
		t.Fatalf("error %v, want the remedy", err)
	}
	set(-1) // ip link set dev near0 xdp off
	if _, err := w.attach(p, Auto); err != nil {
		t.Fatal(err)
	}
}

func TestDetach(t *testing.T) {
	w := newWire(t, testenv.VethOptions{})
	before := descriptors(t)
	p, err := Load(config(Uplink))
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := w.attach(p, Auto); err != nil {
			t.Fatal(err)
		}
		if w.attached() == 0 {
			t.Fatal("nothing attached")
		}
		if _, err := w.attach(p, Auto); err == nil || !strings.Contains(err.Error(), "detach it first") {
			t.Fatalf("attached twice: error %v", err)
		}
		for range 2 {
			if err := p.Detach(); err != nil {
				t.Fatal(err)
			}
		}
		if id := w.attached(); id != 0 {
			t.Fatalf("program %d is still there", id)
		}
	}
	if _, err := w.attach(p, Generic); err != nil {
		t.Fatal(err)
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if id := w.attached(); id != 0 {
		t.Errorf("program %d outlived Close", id)
	}
	if _, err := w.attach(p, Auto); !errors.Is(err, os.ErrClosed) {
		t.Errorf("Attach after Close: error %v, want %v", err, os.ErrClosed)
	}
	if after := descriptors(t); !slices.Equal(after, before) {
		t.Errorf("descriptors before %v, after %v", before, after)
	}
}

// The interface goes and comes back under another index: the same program
// serves again.
func TestInterfaceVanishes(t *testing.T) {
	w := newWire(t, testenv.VethOptions{})
	p := mustLoad(t, config(Uplink))
	if _, err := w.attach(p, Auto); err != nil {
		t.Fatal(err)
	}
	w.near.DeleteLink(t, "near0")
	if err := p.Detach(); err != nil {
		t.Errorf("Detach from a vanished interface: %v", err)
	}
	if _, err := w.attach(p, Auto); !errors.Is(err, unix.ENODEV) || !strings.Contains(err.Error(), "near0") {
		t.Errorf("Attach to a vanished interface: error %v, want ENODEV that names it", err)
	}
	near, _ := testenv.VethPair(t, w.near, "near0", w.far, "far0", testenv.VethOptions{})
	w.index = near.Attrs().Index
	if _, err := w.attach(p, Auto); err != nil {
		t.Error(err)
	}
}

func TestModeFallback(t *testing.T) {
	testenv.NeedRoot(t)
	n := testenv.NewNamespace(t, "loombpf")
	lo := n.Link(t, "lo").Attrs().Index // has no native XDP
	p := mustLoad(t, config(Access))
	n.Do(t, func() {
		if _, err := p.Attach(lo, "lo", Native); !errors.Is(err, unix.EOPNOTSUPP) || !strings.Contains(err.Error(), "generic") {
			t.Errorf("Native: error %v, want EOPNOTSUPP and the way out", err)
		}
		if got, err := p.Attach(lo, "lo", Auto); got != Generic || err != nil {
			t.Errorf("Auto: mode %v, error %v; want generic", got, err)
		}
		if _, err := p.Attach(lo, "lo", Mode(9)); err == nil {
			t.Error("took Mode(9)")
		}
	})
}

// veth takes no native program when its peer's frames do not fit a page.
func TestMTUTooLarge(t *testing.T) {
	w := newWire(t, testenv.VethOptions{MTU: 9000})
	p := mustLoad(t, config(Access))
	if _, err := w.attach(p, Auto); err == nil || !strings.Contains(err.Error(), "MTU") {
		t.Errorf("error %v, want one that speaks of the MTU", err)
	}
	if got, err := w.attach(p, Generic); got != Generic || err != nil {
		t.Errorf("Generic: mode %v, error %v", got, err)
	}
}

// A queue beyond those that the program was loaded for belongs to the kernel.
func TestQueueWithoutSocket(t *testing.T) {
	w := newWire(t, testenv.VethOptions{Queues: 2})
	r := newRunner(t, config(Access))
	if _, err := w.attach(r.Program, Native); err != nil {
		t.Fatal(err)
	}
	frame := eth(0x0800, ip4(6, 0, 0, tcp(1, 2)))
	for queue, want := range []uint32{xdpRedirect, xdpPass} {
		w.near.Do(t, func() {
			action, err := r.prog.Run(&ebpf.RunOptions{
				Data:    frame,
				Context: xdpMD{DataEnd: uint32(len(frame)), Ifindex: uint32(w.index), Queue: uint32(queue)},
			})
			if err != nil || action != want {
				t.Errorf("queue %d: action %d, error %v; want %d", queue, action, err, want)
			}
		})
	}
	if n := r.read(); n["redirect"] != 1 || n["pass_no_socket"] != 1 {
		t.Errorf("counters %v, want one redirect and one pass_no_socket", n)
	}
}

// childVar tells the test binary to be the daemon that TestKilled kills; its
// value is the interface's index.
const childVar = "LOOM_BPF_TEST_ATTACH"

// A daemon that is killed leaves the interface to the kernel.
func TestKilled(t *testing.T) {
	if index, err := strconv.Atoi(os.Getenv(childVar)); err == nil {
		p := mustLoad(t, config(Uplink))
		if _, err := p.Attach(index, "near0", Auto); err != nil {
			t.Fatal(err)
		}
		fmt.Println("attached")
		time.Sleep(time.Minute)
		t.Fatal("this process was not killed")
	}
	w := newWire(t, testenv.VethOptions{})
	child := exec.Command(os.Args[0], "-test.run=^TestKilled$", "-test.v")
	child.Env = append(os.Environ(), childVar+"="+strconv.Itoa(w.index))
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	// The child inherits the namespace of the thread that starts it.
	w.near.Do(t, func() {
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
	})
	defer func() { _, _ = child.Process.Kill(), child.Wait() }()
	lines := bufio.NewScanner(out)
	var said []string
	for lines.Scan() && lines.Text() != "attached" {
		said = append(said, lines.Text())
	}
	if w.attached() == 0 {
		t.Fatalf("the child did not attach; it said %q", said)
	}
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "program detached", func() bool { return w.attached() == 0 })
}

// Without privilege the error says what is missing.
func TestUnprivileged(t *testing.T) {
	if os.Getenv(childVar) == "load" {
		if err := syscall.Setuid(65534); err != nil {
			t.Fatal(err)
		}
		_, err := Load(config(Access))
		fmt.Printf("error: %v\n", err)
		return
	}
	testenv.NeedRoot(t)
	child := exec.Command(os.Args[0], "-test.run=^TestUnprivileged$", "-test.v")
	child.Env = append(os.Environ(), childVar+"=load")
	out, err := child.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, want := range []string{"error: ", "loom_access", "CAP_BPF", "root"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("an ordinary user gets %q, without %q", out, want)
		}
	}
}
