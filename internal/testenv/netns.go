package testenv

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"github.com/loomfabric/loom/internal/ethtool"
	"github.com/loomfabric/loom/internal/namespace"
)

// Namespace is a network namespace. It has a name, so that `ip netns exec` and
// daemons under test can enter it.
type Namespace struct{ Name string }

var namespaces atomic.Uint32

// NewNamespace makes a namespace named prefix-pid-number with its loopback up, and
// removes it when the test ends. New interfaces get no IPv6 until a test asks for it
// with [Namespace.Sysctl], so that router solicitations and the like do not mix with
// a test's frames. The caller must be root: call [NeedRoot] first.
func NewNamespace(t testing.TB, prefix string) *Namespace {
	t.Helper()
	n := &Namespace{Name: fmt.Sprintf("%s-%d-%d", prefix, os.Getpid(), namespaces.Add(1))}
	if err := namespace.Create(n.Name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := namespace.Delete(n.Name); err != nil {
			t.Error(err)
		}
	})
	n.Sysctl(t, "net/ipv6/conf/default/disable_ipv6", "1")
	return n
}

// OpenNamespace returns a namespace that exists already. It does not remove it.
func OpenNamespace(t testing.TB, name string) *Namespace {
	t.Helper()
	n := &Namespace{Name: name}
	n.Do(t, func() {}) // fails if it does not exist
	return n
}

// Do runs fn on an OS thread of its own inside the namespace and waits for it.
// Sockets that fn opens stay in the namespace. fn may call t.Fatal, which stops the
// test.
func (n *Namespace) Do(t testing.TB, fn func()) {
	t.Helper()
	finished := false
	err := namespace.Do(n.Name, func() error {
		fn()
		finished = true
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if !finished {
		t.FailNow() // fn ended by runtime.Goexit: t.Fatal or t.Skip
	}
}

// Sysctl sets a kernel parameter inside the namespace. key is the path below
// /proc/sys with slashes, because interface names may contain dots.
func (n *Namespace) Sysctl(t testing.TB, key, value string) {
	t.Helper()
	path := filepath.Join("/proc/sys", key)
	n.Do(t, func() {
		err := os.WriteFile(path, []byte(value), 0o644)
		if errors.Is(err, os.ErrNotExist) && strings.HasPrefix(key, "net/ipv6/") {
			return // a kernel without IPv6 sends none
		}
		if err != nil {
			t.Fatalf("set %s to %q in %s: %v", path, value, n.Name, err)
		}
	})
}

// Link returns an interface of the namespace.
func (n *Namespace) Link(t testing.TB, name string) netlink.Link {
	t.Helper()
	var link netlink.Link
	n.Do(t, func() {
		var err error
		if link, err = netlink.LinkByName(name); err != nil {
			t.Fatalf("interface %s in %s: %v", name, n.Name, err)
		}
	})
	return link
}

// SetUp sets an interface of the namespace administratively up or down.
func (n *Namespace) SetUp(t testing.TB, name string, up bool) {
	t.Helper()
	link := n.Link(t, name)
	n.Do(t, func() {
		set := netlink.LinkSetDown
		if up {
			set = netlink.LinkSetUp
		}
		if err := set(link); err != nil {
			t.Fatalf("set %s in %s up=%v: %v", name, n.Name, up, err)
		}
	})
}

// DeleteLink deletes an interface of the namespace; a veth takes its peer along.
func (n *Namespace) DeleteLink(t testing.TB, name string) {
	t.Helper()
	link := n.Link(t, name)
	n.Do(t, func() {
		if err := netlink.LinkDel(link); err != nil {
			t.Fatalf("delete %s in %s: %v", name, n.Name, err)
		}
	})
}

// VethOptions are the properties of both ends of a veth pair. The zero value
// is one queue and the kernel's MTU of 1500 bytes.
type VethOptions struct {
	Queues     int  // RX and TX queues of each end
	MTU        int  // bytes
	KeepTXCsum bool // leave checksums to the (absent) hardware
}

// VethPair makes a veth pair with one end in each of two namespaces (which may
// be the same) and sets both up. Transmit checksum offload is off: frames that
// an XDP program takes off a veth otherwise carry unfinished checksums.
func VethPair(t testing.TB, a *Namespace, aName string, b *Namespace, bName string, opt VethOptions) (aLink, bLink netlink.Link) {
	t.Helper()
	attrs := netlink.NewLinkAttrs()
	attrs.Name = aName
	attrs.MTU = opt.MTU
	attrs.NumTxQueues, attrs.NumRxQueues = max(opt.Queues, 1), max(opt.Queues, 1)
	veth := netlink.NewVeth(attrs)
	veth.PeerName = bName
	peer, err := netns.GetFromName(b.Name)
	if err != nil {
		t.Fatalf("open network namespace %s: %v", b.Name, err)
	}
	defer peer.Close()
	veth.PeerNamespace = netlink.NsFd(peer)
	a.Do(t, func() {
		if err := netlink.LinkAdd(veth); err != nil {
			t.Fatalf("make veth pair %s in %s, %s in %s: %v", aName, a.Name, bName, b.Name, err)
		}
	})
	for _, end := range []struct {
		n    *Namespace
		name string
	}{{a, aName}, {b, bName}} {
		if !opt.KeepTXCsum {
			end.n.disableTXCsum(t, end.name)
		}
		end.n.SetUp(t, end.name, true)
	}
	return a.Link(t, aName), b.Link(t, bName)
}

// disableTXCsum turns transmit checksum offload off.
func (n *Namespace) disableTXCsum(t testing.TB, name string) {
	t.Helper()
	n.Do(t, func() {
		s, err := ethtool.Open()
		if err == nil {
			err = errors.Join(s.Set(name, ethtool.TXChecksum, false), s.Close())
		}
		if err != nil {
			t.Fatalf("in %s: %v", n.Name, err)
		}
	})
}
