package netns

import (
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/loomfabric/loom/config"
	"github.com/loomfabric/loom/internal/testenv"
	"github.com/loomfabric/loom/overlay"
)

// tagged is an untagged frame with a tag put in.
func tagged(b []byte, tci uint16) []byte {
	out := append(append([]byte{}, b[:12]...), 0x81, 0x00, byte(tci>>8), byte(tci))
	return append(out, b[12:]...)
}

// wires opens one on every host.
func (f *fab) wires() map[string]*wire {
	f.t.Helper()
	w := make(map[string]*wire)
	for _, h := range f.topo.Hosts {
		w[h.Name] = openWire(f.t, f.ns[h.Name], "eth0")
	}
	return w
}

// quiet is how long a frame that must not arrive is waited for, after another
// one that went the same way has arrived.
const quiet = 100 * time.Millisecond

// TestVLANToVNI: a tag on an access port selects the VNI and stays on the port.
func TestVLANToVNI(t *testing.T) {
	f := up(t, "pair.yaml")
	f.reconfigure("L0", func(c *config.Leaf) {
		access(c, f.host("h2")).VLANs = map[uint16]uint32{5: 10} // untagged remains VNI 20
	})
	w := f.wires()
	trunk := overlay.MAC(f.host("h2").MAC)

	b := frame(broadcast, trunk, 0, "tag 5 is VNI 10")
	w["h2"].send(tagged(b, 5))
	for _, h := range []string{"h0", "h1", "h3", "h4"} {
		w[h].expect(b, h)
	}
	answer := frame(trunk, overlay.MAC(f.host("h3").MAC), 0, "the answer has the tag")
	w["h3"].send(answer)
	w["h2"].expect(tagged(answer, 5), "h2")
	local := frame(trunk, overlay.MAC(f.host("h0").MAC), 0, "also behind one leaf")
	w["h0"].send(local)
	w["h2"].expect(tagged(local, 5), "h2")

	prio := frame(broadcast, trunk, 0, "priority bits are no part of the VLAN")
	w["h2"].send(tagged(prio, 5<<13|5))
	w["h3"].expect(prio, "h3")

	plain := frame(broadcast, trunk, 0, "untagged is VNI 20")
	w["h2"].send(plain)
	w["h5"].expect(plain, "h5")

	unbound := frame(broadcast, trunk, 0, "tag 6 is nobody's")
	before := f.daemons["L0"].drops("vlan_unknown")
	w["h2"].send(tagged(unbound, 6))
	w["h0"].send(tagged(unbound, 5)) // a port without VLANs
	eventually(t, 3*time.Second, func() string {
		if n := f.daemons["L0"].drops("vlan_unknown") - before; n != 2 {
			return fmt.Sprintf("%d frames dropped as vlan_unknown, want 2", n)
		}
		return ""
	})
	time.Sleep(quiet)
	for name, seen := range w {
		if seen.count(unbound)+seen.count(tagged(unbound, 5)) > 0 {
			t.Errorf("%s got a frame of a VLAN that is not bound", name)
		}
		if name != "h5" && seen.count(plain) > 0 {
			t.Errorf("%s got a frame of VNI 20", name)
		}
	}
	for _, b := range [][]byte{b, answer, local, prio} {
		if w["h5"].count(b) > 0 {
			t.Errorf("h5 got %q of VNI 10", b[14:50])
		}
	}
}

// TestTaggedTCP: a host that speaks tagged frames and one behind another leaf
// that does not are in one VNI.
func TestTaggedTCP(t *testing.T) {
	f := up(t, "twins.yaml")
	untag(t, f.ns["h3"])
	f.reconfigure("L1", func(c *config.Leaf) {
		a := access(c, f.host("h3"))
		a.VNI, a.VLANs = 20, nil
	})
	for _, pair := range [][2]string{{"h1", "h3"}, {"h3", "h1"}} {
		from, to := pair[0], pair[1]
		if out, ok := testenv.Ping(t, f.ns[from], f.addr(to), 1472, 3); !ok {
			t.Errorf("full-size frames from %s to %s:\n%s", from, to, out)
		}
		transfer(t, f.ns[from], f.ns[to], f.addr(to), 2<<20)
	}
}

// untag takes the tc programs away with which package lab tags a host's frames.
func untag(t *testing.T, ns *testenv.Namespace) {
	t.Helper()
	index := ns.Link(t, "eth0").Attrs().Index
	ns.Do(t, func() {
		err := netlink.QdiscDel(&netlink.GenericQdisc{
			QdiscAttrs: netlink.QdiscAttrs{LinkIndex: index, Parent: netlink.HANDLE_CLSACT, Handle: netlink.MakeHandle(0xffff, 0)},
			QdiscType:  "clsact",
		})
		if err != nil {
			t.Fatalf("remove clsact in %s: %v", ns.Name, err)
		}
	})
}

// setIdentity gives a host another MAC and IPv4 address.
func setIdentity(t *testing.T, ns *testenv.Namespace, mac overlay.MAC, cidr string) {
	t.Helper()
	eth0 := ns.Link(t, "eth0")
	ns.Do(t, func() {
		if err := netlink.LinkSetHardwareAddr(eth0, net.HardwareAddr(mac[:])); err != nil {
			t.Fatalf("MAC of %s: %v", ns.Name, err)
		}
		old, err := netlink.AddrList(eth0, netlink.FAMILY_V4)
		if err != nil {
			t.Fatal(err)
		}
		for i := range old {
			if err := netlink.AddrDel(eth0, &old[i]); err != nil {
				t.Fatal(err)
			}
		}
		if cidr == "" {
			return
		}
		a, err := netlink.ParseAddr(cidr)
		if err == nil {
			err = netlink.AddrAdd(eth0, a)
		}
		if err != nil {
			t.Fatalf("address %s in %s: %v", cidr, ns.Name, err)
		}
	})
}

// TestIsolation: two tenants with the very same addresses on the same leaves
// never see one another's frames.
func TestIsolation(t *testing.T) {
	f := up(t, "twins.yaml")
	h0, h2 := f.host("h0"), f.host("h2")
	setIdentity(t, f.ns["h1"], overlay.MAC(h0.MAC), h0.Addr.String())
	setIdentity(t, f.ns["h3"], overlay.MAC(h2.MAC), h2.Addr.String())

	errs := make(chan error, 2)
	for _, pair := range [][2]string{{"h0", "h2"}, {"h1", "h3"}} {
		go func() {
			errs <- tryTransfer(t, f.ns[pair[0]], f.ns[pair[1]], h2.Addr.Addr(), 4<<20, 30*time.Second)
		}()
	}
	for range 2 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}

	w := f.wires()
	m0, m2 := overlay.MAC(h0.MAC), overlay.MAC(h2.MAC)
	for _, c := range []struct {
		from, to string
		vlan     uint16
		dst, src overlay.MAC
		what     string
	}{
		{"h0", "h2", 0, broadcast, m0, "broadcast"},
		{"h0", "h2", 0, overlay.MAC{0x33, 0x33, 0, 0, 0, 9}, m0, "multicast"},
		{"h0", "h2", 0, overlay.MAC{2, 0, 0, 0, 0, 9}, m0, "unknown unicast"},
		{"h0", "h2", 0, m2, m0, "unicast to an address that both tenants have"},
		{"h2", "h0", 0, m0, m2, "the way back"},
		{"h1", "h3", 5, broadcast, m0, "broadcast"},
		{"h1", "h3", 5, overlay.MAC{2, 0, 0, 0, 0, 9}, m0, "unknown unicast"},
		{"h3", "h1", 5, m0, m2, "unicast to an address that both tenants have"},
	} {
		b := frame(c.dst, c.src, 0, c.from+": "+c.what)
		seen := b
		if c.vlan != 0 {
			seen = tagged(b, c.vlan) // a wire sees what is on the wire
		}
		w[c.from].send(b)
		w[c.to].expect(seen, c.to)
		time.Sleep(quiet)
		for name, other := range w {
			want := 0
			if name == c.to {
				want = 1
			}
			if n := other.count(b) + other.count(tagged(b, 5)); n != want {
				t.Errorf("%s from %s reached %s %d times, want %d", c.what, c.from, name, n, want)
			}
		}
	}
}
