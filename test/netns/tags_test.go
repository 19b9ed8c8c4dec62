package netns

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/loomfabric/loom/config"
	"github.com/loomfabric/loom/dataplane"
	"github.com/loomfabric/loom/internal/ethtool"
	"github.com/loomfabric/loom/internal/testenv"
	"github.com/loomfabric/loom/overlay"
)

// txvlan returns whether an interface hands VLAN tags over beside frames.
func txvlan(t *testing.T, ns *testenv.Namespace, dev string) (on bool) {
	t.Helper()
	withEthtool(t, ns, func(s *ethtool.Socket) (err error) {
		on, err = s.Get(dev, ethtool.TXVLAN)
		return err
	})
	return on
}

// withEthtool calls fn with a socket of a namespace.
func withEthtool(t *testing.T, ns *testenv.Namespace, fn func(*ethtool.Socket) error) {
	t.Helper()
	ns.Do(t, func() {
		s, err := ethtool.Open()
		if err == nil {
			err = errors.Join(fn(s), s.Close())
		}
		if err != nil {
			t.Fatal(err)
		}
	})
}

// TestTagsBesideFrames: a host with its kernel's own offloads sends frames of VLAN 5,
// whose tag travels beside the frame, by a port where untagged frames belong to another
// network. They arrive in VLAN 5's network, and never in the other one.
func TestTagsBesideFrames(t *testing.T) {
	f := up(t, "twins.yaml")
	h1 := f.host("h1")
	f.reconfigure("L0", func(c *config.Leaf) {
		a := access(c, h1)
		a.VNI, a.VLANs = 10, map[uint16]uint32{5: 20}
	})
	if !txvlan(t, f.ns["h1"], "eth0") {
		t.Fatal("h1's VLAN offload is off: it is not a host as hosts are")
	}
	w := f.wires()
	b := frame(broadcast, overlay.MAC(h1.MAC), 0, "VLAN 5 is VNI 20")
	w["h1"].send(b) // a tc program puts the tag on
	w["h3"].expect(tagged(b, 5), "h3")
	transfer(t, f.ns["h1"], f.ns["h3"], f.addr("h3"), 1<<20)
	transfer(t, f.ns["h3"], f.ns["h1"], f.addr("h1"), 1<<20)
	time.Sleep(quiet)
	for _, h := range []string{"h0", "h2"} {
		for _, got := range w[h].got() {
			if eth := overlay.Ethernet(got); overlay.MAC(got[6:12]) == overlay.MAC(h1.MAC) {
				t.Errorf("%s, of VNI 10, got a frame of h1's VLAN 5 (EtherType %#04x)", h, eth.EtherType())
			}
		}
	}
	untag(t, f.ns["h1"])
	plain := frame(broadcast, overlay.MAC(h1.MAC), 0, "untagged is VNI 10")
	w["h1"].send(plain)
	w["h2"].expect(plain, "h2")
	time.Sleep(quiet)
	if n := w["h3"].count(plain) + w["h3"].count(tagged(plain, 5)); n != 0 {
		t.Errorf("h3, of VNI 20, got an untagged frame of VNI 10 %d times", n)
	}

	// In generic mode nobody tells of the tags.
	d := f.daemons["L0"]
	d.stop()
	f.edit("L0", func(c *config.Leaf) { c.XDPMode = config.XDPMode(dataplane.XDPGeneric) })
	for _, verb := range []string{"check", "run"} {
		out, code := f.command("L0", "leafd", verb, "-c", d.config)
		for _, want := range []string{"access port " + h1.Port + " has VNI 10 for untagged frames", "txvlan", "end in VNI 10"} {
			if code == 0 || !strings.Contains(out, want) {
				t.Errorf("leafd %s with xdp_mode: generic: exit code %d, want an error that says %q:\n%s", verb, code, want, out)
			}
		}
	}
}

// TestTagsHiddenAtRunTime: in generic mode, a host's VLAN offload is turned on under a
// running leafd, which closes the port that could no longer tell VLANs from untagged
// frames, says so, and opens it again when the offload is off.
func TestTagsHiddenAtRunTime(t *testing.T) {
	s := newSite(t, 1)
	testenv.VethPair(t, s.leaf0, "acc1", s.leaf0, "vm1", testenv.VethOptions{})
	offload := func(on bool) {
		t.Helper()
		withEthtool(t, s.leaf0, func(e *ethtool.Socket) error { return e.Set("vm1", ethtool.TXVLAN, on) })
	}
	offload(false)
	d := s.run("leafd", "leaf0", s.leaf0, fmt.Sprintf(`
xdp_mode: generic
vtep: %v
peers: [%v]
uplinks: [{interface: up0}]
access: [{interface: acc0, vni: 100}, {interface: acc1, vni: 100, vlans: {5: 200}}]
vnis: [{vni: 100}, {vni: 200}]
`, vtep0, vtep1))
	d.open("acc1", true)
	offload(true)
	d.open("acc1", false)
	// A while later the leaf is not ready, for the same reason.
	if n := len(lines(d.whole(), `port closed" node=leaf0 error="port acc1: access port acc1 has VNI 100 for untagged frames besides those of its VLANs, and vm1, the peer of acc1, hands VLAN tags over beside the frames (txvlan)`)); n != 1 {
		t.Errorf("the log says %d times why acc1 was closed:\n%s", n, d.tail())
	}
	if n := d.metric("loom_port_open", `port="acc0"`); n != 1 {
		t.Errorf("loom_port_open of acc0 is %d", n)
	}
	offload(false)
	d.open("acc1", true)
}
