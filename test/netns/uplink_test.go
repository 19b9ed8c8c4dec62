package netns

import (
	"fmt"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/loomfabric/loom/internal/testenv"
)

// outOfUse is how long a failed uplink may still be used: ten times the 50 ms
// that the project promises, since the machine that tests is a busy one.
const outOfUse = 500 * time.Millisecond

// failover watches an uplink of L0 going down and up again under traffic.
// down and up change the link's state; they and nothing else happen to it.
// prepare comes right before down, when traffic flows.
func failover(t *testing.T, f *fab, failed, other string, prepare, down, up func()) {
	t.Helper()
	d, s := f.daemons["L0"], startStream(t, f.ns["h0"], f.ns["h3"], f.addr("h3"), 1<<20)
	p := startProbe(t, f.ns["h0"], f.ns["h3"], f.addr("h3"), 32, 2*time.Millisecond)
	uses(t, d, failed, 50)
	uses(t, d, other, 50)

	prepare()
	start := time.Now()
	last, frames := start, d.sent(failed)
	watched := make(chan struct{})
	go func() { // down takes its time, too
		defer close(watched)
		for time.Since(start) < outOfUse {
			if n := d.sent(failed); n != frames {
				frames, last = n, time.Now()
			}
			time.Sleep(2 * time.Millisecond)
		}
	}()
	down()
	<-watched
	t.Logf("the uplink was used until %v after it failed", last.Sub(start).Round(time.Millisecond))
	time.Sleep(outOfUse)
	if n := d.sent(failed); n != frames {
		t.Errorf("%d frames went to the failed uplink %v and more after it failed", n-frames, outOfUse)
	}
	if n := d.metric("loom_port_up", `port="`+failed+`"`); n != 0 {
		t.Errorf("loom_port_up of %s is %d", failed, n)
	}
	uses(t, d, other, 50)
	s.flows(256<<10, 10*time.Second)
	end := time.Now()
	time.Sleep(quiet)
	if sent, lost := p.lost(start.Add(outOfUse), end); lost > 0 || sent < 50 {
		t.Errorf("%d of %d datagrams were lost that were sent %v and more after the failure", lost, sent, outOfUse)
	}

	up()
	eventually(t, 5*time.Second, func() string {
		if d.metric("loom_port_up", `port="`+failed+`"`) != 1 {
			return failed + " has not come back"
		}
		return ""
	})
	uses(t, d, failed, 50)
	uses(t, d, other, 50)
	s.flows(256<<10, 10*time.Second)
}

// uses waits until a port has sent some more frames.
func uses(t *testing.T, d *daemon, port string, frames uint64) {
	t.Helper()
	before := d.sent(port)
	eventually(t, 5*time.Second, func() string {
		if n := d.sent(port) - before; n < frames {
			return fmt.Sprintf("%s sends %d frames by %s, want %d", d.name, n, port, frames)
		}
		return ""
	})
}

// TestUplinkDown: the leaf's end of an uplink is taken down. The rest of the
// fabric hears of it as from a routing protocol.
func TestUplinkDown(t *testing.T) {
	f := up(t, "pair.yaml")
	failover(t, f, "up-s1-0", "up-s0-0", func() {}, func() {
		if err := f.lab.Fail("L0-S1.0"); err != nil {
			t.Fatal(err)
		}
	}, func() {
		if err := f.lab.Restore("L0-S1.0"); err != nil {
			t.Fatal(err)
		}
	})
}

// TestUplinkCarrier: only the spine's end is taken down, and the leaf's loses
// its carrier. L0's routes stay as they are: leafd has to see it by itself.
//
// The kernel tells of a lost carrier at most once a second, and at once only if
// an interface's index differs from its peer's (linkwatch_urgent_event). That of
// the first link is the same at both ends, and another carrier has just changed:
// the kernel's word comes late.
func TestUplinkCarrier(t *testing.T) {
	f := up(t, "pair.yaml")
	k := f.link("L0-S0.0")
	if a, b := f.ns["L0"].Link(t, k.LeafPort), f.ns["S0"].Link(t, k.SpinePort); a.Attrs().Index != b.Attrs().Index {
		t.Fatalf("the ends of %s have indices %d and %d: the kernel will not be late", k.Name, a.Attrs().Index, b.Attrs().Index)
	}
	failover(t, f, k.LeafPort, "up-s1-0", func() {
		time.Sleep(1100 * time.Millisecond) // since the last change
		f.ns["h1"].SetUp(t, "eth0", false)
		f.ns["h1"].SetUp(t, "eth0", true)
		time.Sleep(100 * time.Millisecond) // leafd has listed its links, and does not by chance do so later
	}, func() {
		f.ns["S0"].SetUp(t, k.SpinePort, false)
		f.routesWithout("L1", "up-s0-0") // what it sends to S0 would not get to L0
	}, func() {
		f.ns["S0"].SetUp(t, k.SpinePort, true)
		eventually(t, 3*time.Second, func() string {
			if err := f.lab.Restore(k.Name); err != nil { // the routes
				return err.Error()
			}
			return ""
		})
	})
}

// A veth is a pair that a test deletes and makes anew under the same names.
type veth struct {
	a, b         *testenv.Namespace
	aName, bName string
	mtu          int
}

func (v *veth) restore(t *testing.T) {
	t.Helper()
	testenv.VethPair(t, v.a, v.aName, v.b, v.bName, testenv.VethOptions{MTU: v.mtu})
}

func addAddr(t *testing.T, ns *testenv.Namespace, dev, cidr string) {
	t.Helper()
	l := ns.Link(t, dev)
	ns.Do(t, func() {
		a, err := netlink.ParseAddr(cidr)
		if err == nil {
			err = netlink.AddrAdd(l, a)
		}
		if err != nil {
			t.Fatalf("address %s on %s in %s: %v", cidr, dev, ns.Name, err)
		}
	})
}

// open waits until a port is as wanted: bound to sockets, or not.
func (d *daemon) open(port string, want bool) {
	d.t.Helper()
	n := uint64(0)
	if want {
		n = 1
	}
	eventually(d.t, 5*time.Second, func() string {
		if got := d.metric("loom_port_open", `port="`+port+`"`); got != n {
			return fmt.Sprintf("%s: loom_port_open of %s is %d, want %d\n%s", d.name, port, got, n, d.tail())
		}
		return ""
	})
}

// TestUplinkReturns: the interface of an uplink vanishes under a running leafd,
// and the one at the other end under a running spined. Traffic takes the other
// uplink, and comes back when the interfaces do, without a restart.
func TestUplinkReturns(t *testing.T) {
	f := up(t, "pair.yaml")
	k := f.link("L0-S1.0")
	s := startStream(t, f.ns["h0"], f.ns["h3"], f.addr("h3"), 1<<20)
	startProbe(t, f.ns["h0"], f.ns["h3"], f.addr("h3"), 32, 2*time.Millisecond)
	leaf, spine := f.daemons["L0"], f.daemons["S1"]
	uses(t, leaf, k.LeafPort, 50)
	for round := range 3 {
		f.ns["L0"].DeleteLink(t, k.LeafPort)
		// With an interface the kernel deletes every route that has a next hop
		// there, its other next hops included; a routing protocol adds it again.
		f.route("L0", f.topo.Leaves[1].VTEP, f.link("L0-S0.0").SpineAddr)
		f.routesWithout("L1", "up-s1-0")
		leaf.open(k.LeafPort, false)
		spine.open(k.SpinePort, false)
		s.flows(256<<10, 10*time.Second)

		v := veth{f.ns["L0"], f.ns["S1"], k.LeafPort, k.SpinePort, 1600}
		v.restore(t)
		addAddr(t, f.ns["L0"], k.LeafPort, k.LeafAddr.String()+"/31")
		addAddr(t, f.ns["S1"], k.SpinePort, k.SpineAddr.String()+"/31")
		if err := f.lab.Restore("L0-S1.0"); err != nil {
			t.Fatal(err)
		}
		leaf.open(k.LeafPort, true)
		spine.open(k.SpinePort, true)
		uses(t, leaf, k.LeafPort, 50)
		uses(t, spine, "dn-l1-0", 50)
		s.flows(256<<10, 10*time.Second)
		if n := len(lines(leaf.whole(), "interface is gone")); n != round+1 {
			t.Errorf("L0's log tells %d times of %d that an interface was gone", n, round+1)
		}
	}
}

// TestAccessReturns: a host's interface vanishes and returns, as that of a
// virtual machine that is started again. What is sent there meanwhile is
// dropped under a name.
func TestAccessReturns(t *testing.T) {
	f := up(t, "pair.yaml")
	h1, d := f.host("h1"), f.daemons["L0"]
	transfer(t, f.ns["h3"], f.ns["h1"], h1.Addr.Addr(), 256<<10)
	f.ns["L0"].DeleteLink(t, h1.Port)
	d.open(h1.Port, false)
	w := openWire(t, f.ns["h3"], "eth0")
	before := d.drops("port_down")
	for i := range 20 {
		w.send(frame(h1.MAC, f.host("h3").MAC, 0, fmt.Sprint("to nobody ", i)))
	}
	eventually(t, 3*time.Second, func() string {
		if n := d.drops("port_down") - before; n < 20 {
			return fmt.Sprintf("%d frames dropped under port_down, want 20", n)
		}
		return ""
	})
	transfer(t, f.ns["h3"], f.ns["h0"], f.addr("h0"), 256<<10) // others do not mind

	v := veth{f.ns["L0"], f.ns["h1"], h1.Port, "eth0", 1500}
	v.restore(t)
	setIdentity(t, f.ns["h1"], h1.MAC, h1.Addr.String())
	d.open(h1.Port, true)
	transfer(t, f.ns["h3"], f.ns["h1"], h1.Addr.Addr(), 1<<20)
	transfer(t, f.ns["h1"], f.ns["h0"], f.addr("h0"), 1<<20)
}
