package netns

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/loomfabric/loom/internal/testenv"
	"github.com/loomfabric/loom/overlay"
)

// A site is what package lab does not build: one leaf and one spine with
// interfaces of several queues, and beyond the spine a second node, which a
// test makes a leaf or something else that speaks VXLAN.
//
//	host0 – acc0 leaf0 up0 – dn0 spine dn1 – up0 far
type site struct {
	t                        *testing.T
	queues                   int
	host0, leaf0, spine, far *testenv.Namespace
	dir                      string
	ring, frames             int // of every daemon; 0 frames: its default
}

var (
	vtep0, vtep1 = netip.MustParseAddr("10.2.0.1"), netip.MustParseAddr("10.2.0.2")
	addr0, addr1 = netip.MustParseAddr("172.16.0.1"), netip.MustParseAddr("172.16.0.2")
)

func newSite(t *testing.T, queues int) *site {
	t.Helper()
	testenv.NeedRoot(t)
	s := &site{
		t: t, queues: queues, dir: t.TempDir(), ring: 1024,
		host0: testenv.NewNamespace(t, "lnhost"), leaf0: testenv.NewNamespace(t, "lnleaf"),
		spine: testenv.NewNamespace(t, "lnspine"), far: testenv.NewNamespace(t, "lnfar"),
	}
	s.access(s.leaf0, s.host0, addr0)
	addAddr(t, s.leaf0, "lo", vtep0.String()+"/32")
	addAddr(t, s.far, "lo", vtep1.String()+"/32")
	s.uplink0()
	testenv.VethPair(t, s.far, "up0", s.spine, "dn1", testenv.VethOptions{Queues: queues, MTU: 1600})
	addAddr(t, s.far, "up0", "10.1.0.2/31")
	addAddr(t, s.spine, "dn1", "10.1.0.3/31")
	s.routeTo(s.far, vtep0, "10.1.0.3")
	s.routeTo(s.spine, vtep1, "10.1.0.2")
	return s
}

// uplink0 connects leaf0 to the spine.
func (s *site) uplink0() {
	s.t.Helper()
	testenv.VethPair(s.t, s.leaf0, "up0", s.spine, "dn0", testenv.VethOptions{Queues: s.queues, MTU: 1600})
	addAddr(s.t, s.leaf0, "up0", "10.1.0.0/31")
	addAddr(s.t, s.spine, "dn0", "10.1.0.1/31")
	s.routeTo(s.leaf0, vtep1, "10.1.0.1")
	s.routeTo(s.spine, vtep0, "10.1.0.0")
}

// access connects a host to a leaf.
func (s *site) access(leaf, host *testenv.Namespace, addr netip.Addr) {
	s.t.Helper()
	testenv.VethPair(s.t, leaf, "acc0", host, "eth0", testenv.VethOptions{Queues: s.queues})
	addAddr(s.t, host, "eth0", addr.String()+"/24")
}

func (s *site) routeTo(ns *testenv.Namespace, dst netip.Addr, gateway string) {
	s.t.Helper()
	ns.Do(s.t, func() {
		err := netlink.RouteReplace(&netlink.Route{Dst: &net.IPNet{IP: dst.AsSlice(), Mask: net.CIDRMask(32, 32)}, Gw: net.ParseIP(gateway)})
		if err != nil {
			s.t.Fatalf("route to %v in %s: %v", dst, ns.Name, err)
		}
	})
}

// run starts a daemon with a configuration as its operator would write it. It
// is verified and ended when the test ends.
func (s *site) run(program, name string, ns *testenv.Namespace, config string) *daemon {
	s.t.Helper()
	d := s.daemon(program, name, ns, config)
	d.start()
	d.ready()
	return d
}

// daemon makes a daemon that is not started, and ends when the test does.
func (s *site) daemon(program, name string, ns *testenv.Namespace, config string) *daemon {
	s.t.Helper()
	path := func(ext string) string { return filepath.Join(s.dir, name+ext) }
	d := &daemon{t: s.t, program: program, name: name, ns: ns, config: path(".yaml"), socket: path(".sock"), log: path(".log")}
	config = fmt.Sprintf("name: %s\npolling: interrupt\nring_size: %d\nframes: %d\nworkers: %d\ntelemetry: {listen: \"unix:%s\"}\nadmin: {listen: \"unix:%s\"}\n%s",
		name, s.ring, s.frames, s.queues, d.socket, path(".admin"), config)
	if err := os.WriteFile(d.config, []byte(config), 0o644); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		d.verify()
		if d.pid == 0 {
			return
		}
		if err := d.signal(unix.SIGTERM); err != nil {
			s.t.Errorf("%s: after SIGTERM: %v\n%s", name, err, d.tail())
		}
	})
	return d
}

func (s *site) runSpine() *daemon {
	s.t.Helper()
	return s.run("spined", "spine", s.spine, `
vteps: any
ports: [{interface: dn0}, {interface: dn1}]
`)
}

func (s *site) runLeaf(name string, ns *testenv.Namespace, own, peer netip.Addr) *daemon {
	s.t.Helper()
	return s.run("leafd", name, ns, fmt.Sprintf(`
vtep: %v
peers: [%v]
uplinks: [{interface: up0}]
access: [{interface: acc0, vni: 100}]
vnis: [{vni: 100}]
`, own, peer))
}

// TestKernelVXLAN: the remote VTEP is a standard vxlan device behind a bridge,
// as on any Linux machine; Loom's leaf and it understand each other through a
// spine, in both directions.
func TestKernelVXLAN(t *testing.T) {
	s := newSite(t, 1)
	host1 := testenv.NewNamespace(t, "lnhost")
	s.access(s.far, host1, addr1)
	s.far.Do(t, func() {
		bridge := &netlink.Bridge{LinkAttrs: netlink.NewLinkAttrs()}
		bridge.Name = "br0"
		vx := &netlink.Vxlan{LinkAttrs: netlink.NewLinkAttrs(), VxlanId: 100, Port: 4789, SrcAddr: vtep1.AsSlice(), Learning: true}
		vx.Name, vx.MTU = "vx0", 1500
		for _, l := range []netlink.Link{bridge, vx} {
			if err := netlink.LinkAdd(l); err != nil {
				t.Fatalf("add %s: %v", l.Attrs().Name, err)
			}
		}
		for _, name := range []string{"br0", "vx0", "acc0"} {
			l, err := netlink.LinkByName(name)
			if err == nil && name != "br0" {
				err = netlink.LinkSetMaster(l, bridge)
			}
			if err == nil {
				err = netlink.LinkSetUp(l)
			}
			if err != nil {
				t.Fatalf("set %s up: %v", name, err)
			}
		}
		if err := netlink.NeighAppend(&netlink.Neigh{
			LinkIndex: vx.Attrs().Index, Family: unix.AF_BRIDGE, Flags: netlink.NTF_SELF, State: netlink.NUD_PERMANENT,
			IP: vtep0.AsSlice(), HardwareAddr: make(net.HardwareAddr, 6), // flood to Loom's leaf
		}); err != nil {
			t.Fatalf("flood list of vx0: %v", err)
		}
	})
	spine := s.runSpine()
	leaf := s.runLeaf("leaf0", s.leaf0, vtep0, vtep1)

	if out, ok := testenv.Ping(t, s.host0, addr1, 1472, 3); !ok {
		t.Errorf("full-size frames to the host behind the kernel's VTEP:\n%s", out)
	}
	if out, ok := testenv.Ping(t, host1, addr0, 1472, 3); !ok {
		t.Errorf("full-size frames to the host behind Loom's leaf:\n%s", out)
	}
	transfer(t, s.host0, host1, addr1, 4<<20)
	transfer(t, host1, s.host0, addr0, 4<<20)
	// 8 MiB in each direction, at most 1448 bytes a frame, and it all went
	// through leafd and spined.
	const least = 8 << 20 / 1448
	for port, n := range map[string]uint64{"up0": leaf.sent("up0"), "acc0": leaf.sent("acc0")} {
		if n < least {
			t.Errorf("leaf0 sent %d frames by %s, want %d", n, port, least)
		}
	}
	for _, port := range []string{"dn0", "dn1"} {
		if n := spine.sent(port); n < least {
			t.Errorf("spine sent %d frames by %s, want %d", n, port, least)
		}
	}
}

// TestTwoWorkers: interfaces of two queues, two workers in every daemon, and
// flows that are spread over them, whose two directions need not meet in one
// worker.
func TestTwoWorkers(t *testing.T) {
	s := newSite(t, 2)
	host1 := testenv.NewNamespace(t, "lnhost")
	s.access(s.far, host1, addr1)
	all := []*daemon{
		s.runSpine(), s.runLeaf("leaf0", s.leaf0, vtep0, vtep1), s.runLeaf("leaf1", s.far, vtep1, vtep0),
	}
	transfer(t, s.host0, host1, addr1, 4<<20)
	transfer(t, host1, s.host0, addr0, 4<<20)
	deadline := time.Now().Add(20 * time.Second)
	for flows := 0; ; flows++ { // ports differ, and with them the queues
		idle := ""
		for _, d := range all {
			for _, b := range d.stats().Balance {
				if b.Received < 200 || b.Sent < 200 {
					idle = fmt.Sprintf("worker %d of %s: %+v", b.Worker, d.name, b)
				}
			}
		}
		if idle == "" {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("after %d flows: %s", flows, idle)
		}
		transfer(t, s.host0, host1, addr1, 128<<10)
	}
	// An address that one frame was seen of, by one worker, is known to both.
	w, far := openWire(t, s.host0, "eth0"), openWire(t, host1, "eth0")
	const hosts = 30
	for i := range hosts {
		b := frame(broadcast, overlay.MAC{2, 0x99, 0, 0, 0, byte(i)}, 0, fmt.Sprint("once ", i))
		w.send(b)
		far.expect(b, "host1")
	}
	for _, d := range all[1:] {
		for q := range 2 {
			eventually(t, 3*time.Second, func() string {
				if n := d.metric("loom_fdb_entries", fmt.Sprintf(`worker="%d"`, q)); n < hosts+2 {
					return fmt.Sprintf("worker %d of %s knows %d addresses, want %d", q, d.name, n, hosts+2)
				}
				return ""
			})
		}
		if n := d.metric("loom_fdb_gossip_lost_total"); n > 0 {
			t.Errorf("%s: %d learned addresses did not reach the other worker", d.name, n)
		}
	}
}

func setMTU(t *testing.T, ns *testenv.Namespace, l netlink.Link, mtu int) {
	t.Helper()
	ns.Do(t, func() {
		if err := netlink.LinkSetMTU(l, mtu); err != nil {
			t.Fatalf("MTU %d of %s in %s: %v", mtu, l.Attrs().Name, ns.Name, err)
		}
	})
}
