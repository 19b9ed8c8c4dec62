package bpf

import (
	"errors"
	"os"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/loomfabric/loom/internal/testenv"
)

// closedWire is a wire with a host's frames on it and a socket that sees what the
// kernel gets.
type closedWire struct {
	*wire
	tx, rx int
}

func newClosedWire(t *testing.T) *closedWire {
	w := newWire(t, testenv.VethOptions{})
	return &closedWire{w, packet(t, w.far, "far0"), packet(t, w.near, "near0")}
}

var fromHost = join(eth(0x0800, ip4(17, 0, 0, udp(1, 2, []byte("not for the kernel")))), make([]byte, 20))

// received sends frames and an LLDP frame behind them, waits for that one, and returns
// how many of the others the kernel got.
func (w *closedWire) received(n int) (got int) {
	w.t.Helper()
	lldp := with(eth(0x88cc, make([]byte, 46)), 0, 1, 0x80, 0xc2, 0, 0, 0x0e)
	for range n {
		if _, err := unix.Write(w.tx, fromHost); err != nil {
			w.t.Fatal(err)
		}
	}
	if _, err := unix.Write(w.tx, lldp); err != nil {
		w.t.Fatal(err)
	}
	buf := make([]byte, 2048)
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(time.Millisecond) {
		n, err := unix.Read(w.rx, buf)
		switch {
		case err == nil && slices.Equal(buf[:n], fromHost):
			got++
		case err == nil && slices.Equal(buf[:n], lldp):
			return got
		case time.Now().After(deadline):
			w.t.Fatal("the LLDP frame did not reach the kernel")
		}
	}
}

func closed() Config {
	c := config(Access)
	c.Closed = true
	return c
}

// TestClosedPort: without a socket, after Close, while another program takes its
// place: nothing of a host reaches the kernel. Detach ends that.
func TestClosedPort(t *testing.T) {
	for _, mode := range []Mode{Native, Generic} {
		t.Run(mode.String(), func(t *testing.T) {
			w := newClosedWire(t)
			p := mustLoad(t, closed())
			if _, err := w.attach(p, mode); err != nil {
				t.Fatal(err)
			}
			if n := w.received(10); n != 0 {
				t.Errorf("without a socket the kernel got %d frames", n)
			}
			if c, err := p.Counters(); err != nil || c["drop_no_socket"] != 10 {
				t.Errorf("%v, %v", c, err)
			}
			if err := p.Close(); err != nil {
				t.Fatal(err)
			}
			if n := w.received(10); n != 0 || w.attached() == 0 {
				t.Errorf("after Close the kernel got %d frames; program %d", n, w.attached())
			}
			left := w.attached()
			w.near.Do(t, func() {
				if !LeftBehind(w.index, left) {
					t.Error("the program is not known for one that was left behind")
				}
			})
			for _, next := range []Mode{Auto, Native, Generic, Native} {
				p := mustLoad(t, closed())
				if _, err := w.attach(p, next); err != nil {
					t.Fatalf("%v in place of what was left behind: %v", next, err)
				}
				if w.attached() == left {
					t.Errorf("%v did not take the old program's place", next)
				}
				left = w.attached()
				if n := w.received(10); n != 0 {
					t.Errorf("%v: the kernel got %d frames", next, n)
				}
				if err := p.Close(); err != nil {
					t.Fatal(err)
				}
			}
			p = mustLoad(t, closed())
			if _, err := w.attach(p, Native); err != nil {
				t.Fatal(err)
			}
			w.near.Do(t, func() {
				if err := p.Detach(); err != nil {
					t.Fatal(err)
				}
			})
			if n := w.received(10); n != 10 {
				t.Errorf("after Detach the kernel got %d frames", n)
			}
		})
	}
}

// TestClosedPortHasOneOwner: a port whose owner lives is not taken from it, nor one
// that has another program.
func TestClosedPortHasOneOwner(t *testing.T) {
	open, uplink := config(Access), config(Uplink)
	for name, first := range map[string]Config{"closed": closed(), "open": open, "uplink": uplink} {
		w := newClosedWire(t)
		a := mustLoad(t, first)
		if _, err := w.attach(a, Auto); err != nil {
			t.Fatal(err)
		}
		id := w.attached()
		w.near.Do(t, func() {
			if name == "open" {
				return // attached another way, which Attach finds out
			}
			if LeftBehind(w.index, id) {
				t.Errorf("%s: a program whose owner lives is taken for one left behind", name)
			}
		})
		for _, mode := range []Mode{Auto, Native, Generic} {
			b := mustLoad(t, closed())
			_, err := w.attach(b, mode)
			if !errors.Is(err, unix.EBUSY) && !errors.Is(err, unix.EEXIST) {
				t.Errorf("%v beside %s: error %v, want EBUSY", mode, name, err)
			}
			if err := b.Close(); err != nil {
				t.Error(err)
			}
		}
		if w.attached() != id {
			t.Errorf("%s: program %d took the place of %d", name, w.attached(), id)
		}
	}
}

// TestClosedPortWithoutSysAdmin: a daemon with the capabilities of its unit, which may
// not read programs' names, knows what its predecessor left behind, and nothing else.
func TestClosedPortWithoutSysAdmin(t *testing.T) {
	old := records
	records = t.TempDir()
	defer func() { records = old }()
	w := newClosedWire(t)
	restart := func(cfg Config, want bool) {
		t.Helper()
		p := mustLoad(t, cfg)
		var err error
		w.near.Do(t, func() {
			defer withoutSysAdmin(t)()
			_, err = p.Attach(w.index, "near0", Native)
		})
		if (err == nil) != want {
			t.Errorf("attached: %v, error %v", err == nil, err)
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
	restart(closed(), true)
	restart(closed(), true) // in place of the first
	if left, err := os.ReadDir(records); err != nil || len(left) != 1 {
		t.Errorf("records %v, %v: want the one of the program that is there", left, err)
	}
	if err := os.RemoveAll(records); err != nil {
		t.Fatal(err)
	}
	restart(closed(), false) // for all it knows, somebody else's
}

// withoutSysAdmin takes CAP_SYS_ADMIN from the thread until the function that it returns
// is called.
func withoutSysAdmin(t *testing.T) (again func()) {
	t.Helper()
	h := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData
	if err := unix.Capget(&h, &sets[0]); err != nil {
		t.Fatal(err)
	}
	less := sets
	less[0].Effective &^= 1 << unix.CAP_SYS_ADMIN
	if err := unix.Capset(&h, &less[0]); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := unix.Capset(&h, &sets[0]); err != nil {
			t.Fatal(err)
		}
	}
}
