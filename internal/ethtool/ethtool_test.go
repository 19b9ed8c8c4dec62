package ethtool_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/loomfabric/loom/internal/ethtool"
	"github.com/loomfabric/loom/internal/testenv"
)

// pair makes a veth pair in a namespace and opens a socket there; the test uses
// it from outside.
func pair(t *testing.T, opt testenv.VethOptions) (*testenv.Namespace, *ethtool.Socket) {
	t.Helper()
	testenv.NeedRoot(t)
	n := testenv.NewNamespace(t, "lmet")
	testenv.VethPair(t, n, "lmet0", n, "lmet1", opt)
	var s *ethtool.Socket
	n.Do(t, func() {
		var err error
		if s, err = ethtool.Open(); err != nil {
			t.Fatal(err)
		}
	})
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return n, s
}

func TestCarrier(t *testing.T) {
	n, s := pair(t, testenv.VethOptions{})
	for _, want := range []bool{true, false, true} {
		n.SetUp(t, "lmet1", want)
		if got, err := s.Carrier("lmet0"); err != nil || got != want {
			t.Errorf("carrier with the peer up=%v: %v, %v", want, got, err)
		}
	}
}

func TestChannels(t *testing.T) {
	_, s := pair(t, testenv.VethOptions{Queues: 3})
	if rx, tx, err := s.Channels("lmet0"); err != nil || rx != 3 || tx != 3 {
		t.Errorf("channels %d, %d, %v; want 3, 3", rx, tx, err)
	}
	if _, _, err := s.Channels("lo"); !errors.Is(err, unix.EOPNOTSUPP) {
		t.Errorf("channels of lo, which does not tell: %v", err)
	}
	for name, want := range map[string][2]int{"lmet0": {3, 3}, "lo": {5, 6}} {
		if rx, tx := s.Queues(name, 5, 6); rx != want[0] || tx != want[1] {
			t.Errorf("queues of %s: %d, %d; want %v", name, rx, tx, want)
		}
	}
}

// Each feature is turned off and on by itself; the others stay as they were.
func TestFeatures(t *testing.T) {
	_, s := pair(t, testenv.VethOptions{KeepTXCsum: true})
	all := []ethtool.Feature{ethtool.TXChecksum, ethtool.TSO, ethtool.GSO, ethtool.TXVLAN, ethtool.RXVLAN}
	state := func() (on []bool) {
		for _, f := range all {
			v, err := s.Get("lmet0", f)
			if err != nil {
				t.Fatal(err)
			}
			on = append(on, v)
		}
		return on
	}
	for i, f := range all {
		// Off, off again, and on: a veth begins with all of them on.
		for _, want := range []bool{false, false, true} {
			if err := s.Set("lmet0", f, want); err != nil {
				t.Fatal(err)
			}
			for j, on := range state() {
				// Without checksums there is no TSO (netdev_fix_features).
				implied := f == ethtool.TXChecksum && all[j] == ethtool.TSO
				if wantJ := i != j && !implied || want; on != wantJ {
					t.Errorf("%v set to %v: %v is %v", f, want, all[j], on)
				}
			}
		}
	}
}

// A veth begins without GRO, and takes it.
func TestGRO(t *testing.T) {
	_, s := pair(t, testenv.VethOptions{})
	for _, want := range []bool{false, true, false} {
		if err := s.Set("lmet0", ethtool.GRO, want); err != nil {
			t.Fatal(err)
		}
		if on, err := s.Get("lmet0", ethtool.GRO); err != nil || on != want {
			t.Errorf("set to %v: gro is %v, %v", want, on, err)
		}
	}
}

func TestErrors(t *testing.T) {
	n, s := pair(t, testenv.VethOptions{})
	calls := map[string]func(name string) error{
		"carrier":  func(name string) error { _, err := s.Carrier(name); return err },
		"channels": func(name string) error { _, _, err := s.Channels(name); return err },
		"get":      func(name string) error { _, err := s.Get(name, ethtool.TSO); return err },
		"set":      func(name string) error { return s.Set(name, ethtool.TSO, false) },
		"set flag": func(name string) error { return s.Set(name, ethtool.TXVLAN, false) },
	}
	// Cut short, long is the name of an interface that exists.
	const long = "lmet1-6789abcdef"
	link := n.Link(t, "lmet1")
	n.Do(t, func() {
		err := errors.Join(netlink.LinkSetDown(link), netlink.LinkSetName(link, long[:15]))
		if err != nil {
			t.Fatal(err)
		}
	})
	for _, name := range []string{"", "gone0", long} {
		for what, call := range calls {
			if err := call(name); !errors.Is(err, unix.ENODEV) || !strings.Contains(err.Error(), name) {
				t.Errorf("%s of %q: %v", what, name, err)
			}
		}
	}
	if err := s.Set("lo", ethtool.TXVLAN, true); err == nil || !strings.Contains(err.Error(), "ethtool -K lo txvlan on") {
		t.Errorf("a flag that lo has not: %v", err)
	}
}
