package testenv

import (
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/vishvananda/netlink"
)

// TestVethPairCarriesTraffic sends a UDP datagram through a pair between two
// namespaces, and checks that nothing of it shows outside of them.
func TestVethPairCarriesTraffic(t *testing.T) {
	NeedRoot(t)
	a, b := NewNamespace(t, "lmenv"), NewNamespace(t, "lmenv")
	aLink, bLink := VethPair(t, a, "lmenv-a", b, "lmenv-b", VethOptions{Queues: 2, MTU: 1600})
	for _, link := range []netlink.Link{aLink, bLink} {
		if got := link.Attrs(); got.MTU != 1600 || got.NumRxQueues != 2 || got.NumTxQueues != 2 {
			t.Errorf("%s has MTU %d and %d/%d queues, want 1600 and 2/2", got.Name, got.MTU, got.NumRxQueues, got.NumTxQueues)
		}
	}
	if _, err := netlink.LinkByName("lmenv-a"); err == nil {
		t.Error("lmenv-a is visible outside of its namespace")
	}
	address := func(n *Namespace, link netlink.Link, cidr string) {
		n.Do(t, func() {
			addr, err := netlink.ParseAddr(cidr)
			if err == nil {
				err = netlink.AddrAdd(link, addr)
			}
			if err != nil {
				t.Fatalf("give %s the address %s: %v", link.Attrs().Name, cidr, err)
			}
		})
	}
	address(a, aLink, "192.0.2.1/24")
	address(b, bLink, "192.0.2.2/24")

	var listener net.PacketConn
	b.Do(t, func() {
		var err error
		if listener, err = net.ListenPacket("udp4", "192.0.2.2:7"); err != nil {
			t.Fatal(err)
		}
	})
	defer listener.Close()
	a.Do(t, func() {
		conn, err := net.Dial("udp4", "192.0.2.2:7")
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := conn.Write([]byte("through the pair")); err != nil {
			t.Fatal(err)
		}
	})
	buf := make([]byte, 64)
	n, from, err := listener.ReadFrom(buf)
	if err != nil || string(buf[:n]) != "through the pair" {
		t.Fatalf("received %q from %v, %v", buf[:n], from, err)
	}
}

// TestNamespaceGoesAway checks names, cleanup, and that the test's own thread
// stays where it was.
func TestNamespaceGoesAway(t *testing.T) {
	NeedRoot(t)
	before, err := os.Readlink("/proc/thread-self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	t.Run("use", func(t *testing.T) {
		for range 3 {
			n := NewNamespace(t, "lmenv")
			names = append(names, n.Name)
			n.Do(t, func() {
				inside, err := os.Readlink("/proc/thread-self/ns/net")
				if err != nil || inside == before {
					t.Errorf("Do ran in %s (%v), which is the test's own namespace", inside, err)
				}
			})
			if _, err := os.Stat(filepath.Join("/run/netns", n.Name)); err != nil {
				t.Errorf("namespace has no name: %v", err)
			}
		}
	})
	if names[0] == names[1] || names[1] == names[2] {
		t.Errorf("names are not unique: %v", names)
	}
	for _, name := range names {
		if _, err := os.Stat(filepath.Join("/run/netns", name)); !os.IsNotExist(err) {
			t.Errorf("namespace %s is left over: %v", name, err)
		}
	}
	if after, err := os.Readlink("/proc/thread-self/ns/net"); err != nil || after != before {
		t.Errorf("the test runs in %s now (%v), was in %s", after, err, before)
	}
}
