package control

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/loomfabric/loom/config"
	"github.com/loomfabric/loom/dataplane"
	"github.com/loomfabric/loom/internal/testenv"
)

// rig is a leaf's namespace with two uplinks, the spines' ends of them in
// another, and a mirror that runs in the leaf's.
type rig struct {
	leaf, spine *testenv.Namespace
	mirror      *Mirror
	tables      published
	unresolved  chan dataplane.HopID
	peer        string // its VTEP
	vrf         string // that the uplinks are in; "": none
}

const vtep2 = "10.255.0.2"

func newRig(t *testing.T) *rig {
	testenv.NeedRoot(t)
	r := &rig{
		leaf: testenv.NewNamespace(t, "ctl-leaf"), spine: testenv.NewNamespace(t, "ctl-spine"),
		unresolved: make(chan dataplane.HopID, 1), peer: vtep2,
	}
	for i := range 2 {
		r.addUplink(t, i)
	}
	r.run(t, "ip route add 10.255.0.2/32 nexthop via 10.1.0.1 dev up0 nexthop via 10.1.1.1 dev up1")
	r.start(t, netip.Addr{})
	return r
}

// newRig6 is newRig over IPv6, at first without a route.
func newRig6(t *testing.T) *rig {
	testenv.NeedRoot(t)
	r := &rig{
		leaf: testenv.NewNamespace(t, "ctl-leaf"), spine: testenv.NewNamespace(t, "ctl-spine"),
		unresolved: make(chan dataplane.HopID, 1), peer: "2001:db8:ff::2",
	}
	for i := range 2 {
		testenv.VethPair(t, r.leaf, fmt.Sprintf("up%d", i), r.spine, fmt.Sprintf("down%d", i), testenv.VethOptions{})
		r.leaf.Sysctl(t, fmt.Sprintf("net/ipv6/conf/up%d/disable_ipv6", i), "0")
		r.spine.Sysctl(t, fmt.Sprintf("net/ipv6/conf/down%d/disable_ipv6", i), "0")
		r.run(t, fmt.Sprintf("ip addr add 2001:db8:1%d::/127 dev up%d nodad", i, i))
		run(t, r.spine, fmt.Sprintf("ip addr add 2001:db8:1%d::1/127 dev down%d nodad", i, i))
	}
	r.start(t, addr("2001:db8:ff::1"))
	return r
}

// start runs a mirror for a leaf with that VTEP.
func (r *rig) start(t *testing.T, vtep netip.Addr) {
	var k *Netlink
	r.leaf.Do(t, func() {
		var err error
		if k, err = OpenNetlink("up0", "up1"); err != nil {
			t.Fatal(err)
		}
	})
	t.Cleanup(k.Close)
	k.Underlay(vtep)
	o := &config.Leaf{Peers: []netip.Addr{addr(r.peer)}, VNIs: []config.VNI{{VNI: 100}}}
	r.mirror, r.tables = startMirror(t, Options{
		Role: dataplane.Leaf, Ports: leafPorts[:2], Kernel: k, Overlay: o, Unresolved: r.unresolved,
	})
}

func (r *rig) addUplink(t *testing.T, i int) {
	t.Helper()
	testenv.VethPair(t, r.leaf, fmt.Sprintf("up%d", i), r.spine, fmt.Sprintf("down%d", i), testenv.VethOptions{})
	r.run(t, fmt.Sprintf("ip addr add 10.1.%d.0/31 dev up%d", i, i))
	run(t, r.spine, fmt.Sprintf("ip addr add 10.1.%d.1/31 dev down%d", i, i))
}

func (r *rig) run(t *testing.T, command string) { t.Helper(); run(t, r.leaf, command) }

func run(t *testing.T, ns *testenv.Namespace, command string) {
	t.Helper()
	ns.Do(t, func() {
		f := strings.Fields(command)
		if out, err := exec.Command(f[0], f[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", command, err, out)
		}
	})
}

// hops waits until the peer's next hops are these, and checks the time.
func (r *rig) hops(t *testing.T, what string, want ...string) {
	t.Helper()
	_, took := r.tables.until(t, what, func(tb *dataplane.Tables) bool {
		return slices.Equal(peerHops(tb, vtep2), want)
	})
	t.Logf("%s: %v", what, took)
	if took > 500*time.Millisecond {
		t.Errorf("%s took %v", what, took)
	}
}

func resolved(gateway string, want bool) func(*dataplane.Tables) bool {
	return func(tb *dataplane.Tables) bool {
		return slices.ContainsFunc(tb.Hops, func(h dataplane.Hop) bool { return h.Gateway == addr(gateway) && h.Resolved == want })
	}
}

func TestKernelLinkDownAndUp(t *testing.T) {
	r := newRig(t)
	r.hops(t, "start", "up0 10.1.0.1", "up1 10.1.1.1")
	r.leaf.SetUp(t, "up0", false)
	r.hops(t, "admin down", "up1 10.1.1.1")
	r.leaf.SetUp(t, "up0", true)
	// The kernel drops routes by way of a link that is set down; a routing
	// daemon puts them back.
	r.run(t, "ip route replace 10.255.0.2/32 nexthop via 10.1.0.1 dev up0 nexthop via 10.1.1.1 dev up1")
	r.hops(t, "admin up", "up0 10.1.0.1", "up1 10.1.1.1")
	r.spine.SetUp(t, "down1", false)
	r.hops(t, "carrier lost", "up0 10.1.0.1")
	r.spine.SetUp(t, "down1", true)
	r.hops(t, "carrier back", "up0 10.1.0.1", "up1 10.1.1.1")
}

func TestKernelRouteReplaced(t *testing.T) {
	r := newRig(t)
	r.hops(t, "start", "up0 10.1.0.1", "up1 10.1.1.1")
	r.run(t, "ip route replace 10.255.0.2/32 via 10.1.1.1 dev up1")
	r.hops(t, "one next hop", "up1 10.1.1.1")
	r.run(t, "ip route add 10.255.0.2/32 via 10.1.0.1 dev up0 metric 50")
	r.run(t, "ip route del 10.255.0.2/32 metric 0")
	r.hops(t, "the route with the larger metric is left", "up0 10.1.0.1")
	r.run(t, "ip route add unreachable 10.255.0.2/32 metric 10")
	r.hops(t, "unreachable")
	r.run(t, "ip route del unreachable 10.255.0.2/32 metric 10")
	r.hops(t, "reachable again", "up0 10.1.0.1")
	r.run(t, "ip route del 10.255.0.2/32")
	r.leaf.Sysctl(t, "net/ipv6/conf/up1/disable_ipv6", "0")
	r.run(t, "ip route add 10.255.0.0/16 via inet6 fe80::1 dev up1")
	r.hops(t, "a wider route by way of an IPv6 neighbour", "up1 fe80::1")
	r.run(t, "ip nexthop add id 7 via 10.1.0.1 dev up0")
	r.run(t, "ip route add 10.255.0.2/32 nhid 7")
	r.hops(t, "next hop object", "up0 10.1.0.1")
	r.run(t, "ip nexthop replace id 7 via 10.1.1.1 dev up1")
	r.hops(t, "next hop object replaced", "up1 10.1.1.1")
}

// The kernel tells weights with the route, and of a group of next hop objects as if they
// were the route's.
func TestKernelWeights(t *testing.T) {
	r := newRig(t)
	weights := func(what string, want ...uint16) {
		t.Helper()
		r.tables.until(t, what, func(tb *dataplane.Tables) bool { return slices.Equal(tb.Peers[0].Weights, want) })
	}
	r.hops(t, "start", "up0 10.1.0.1", "up1 10.1.1.1")
	weights("start")
	r.run(t, "ip route replace 10.255.0.2/32 nexthop via 10.1.1.1 dev up1 weight 256 nexthop via 10.1.0.1 dev up0 weight 3")
	weights("weights of the route", 3, 256)
	r.run(t, "ip nexthop add id 7 via 10.1.0.1 dev up0")
	r.run(t, "ip nexthop add id 8 via 10.1.1.1 dev up1")
	r.run(t, "ip nexthop add id 9 group 7,5/8,2")
	r.run(t, "ip route replace 10.255.0.2/32 nhid 9")
	weights("weights of a group", 5, 2)
	r.run(t, "ip nexthop replace id 9 group 7,1/8,1")
	weights("equal weights")
}

// The kernel keeps routes by way of a link that lost its carrier, and calls them dead.
func TestKernelBackupRoute(t *testing.T) {
	r := newRig(t)
	r.run(t, "ip route replace 10.255.0.2/32 via 10.1.0.1 dev up0")
	r.run(t, "ip route add 10.255.0.2/32 via 10.1.1.1 dev up1 metric 100")
	r.hops(t, "start", "up0 10.1.0.1")
	r.spine.SetUp(t, "down0", false)
	r.hops(t, "carrier lost", "up1 10.1.1.1")
	r.spine.SetUp(t, "down0", true)
	r.hops(t, "carrier back", "up0 10.1.0.1")
}

func TestKernelResolvesNextHops(t *testing.T) {
	r := newRig(t)
	r.tables.until(t, "both next hops resolved without traffic", func(tb *dataplane.Tables) bool {
		return resolved("10.1.0.1", true)(tb) && resolved("10.1.1.1", true)(tb)
	})
	// A neighbour that nobody answers for fails, and one that appears is found.
	run(t, r.spine, "ip addr del 10.1.0.1/31 dev down0")
	r.run(t, "ip neigh replace 10.1.0.1 dev up0 nud failed")
	r.tables.until(t, "failed", resolved("10.1.0.1", false))
	run(t, r.spine, "ip addr add 10.1.0.1/31 dev down0")
	id := slices.IndexFunc(r.mirror.Tables().Hops, func(h dataplane.Hop) bool { return h.Gateway == addr("10.1.0.1") })
	r.unresolved <- dataplane.HopID(id)
	r.tables.until(t, "resolved again", resolved("10.1.0.1", true))
	got := r.mirror.Stats() // written after the tables were published
	for end := time.Now().Add(time.Second); got.Unresolved != 0 && time.Now().Before(end); got = r.mirror.Stats() {
		time.Sleep(time.Millisecond)
	}
	if got.Unresolved != 0 || got.Resolves == 0 {
		t.Errorf("stats %+v", got)
	}
}

func TestKernelConfirmsStaleNeighbours(t *testing.T) {
	r := newRig(t)
	r.tables.until(t, "resolved", resolved("10.1.0.1", true))
	r.leaf.Sysctl(t, "net/ipv4/neigh/up0/delay_first_probe_time", "0")
	r.run(t, "ip neigh replace 10.1.0.1 dev up0 lladdr "+r.spine.Link(t, "down0").Attrs().HardwareAddr.String()+" nud stale")
	deadline := time.Now().Add(10 * time.Second)
	for time.Now().Before(deadline) {
		var state int
		r.leaf.Do(t, func() {
			list, err := netlink.NeighList(r.leaf.Link(t, "up0").Attrs().Index, netlink.FAMILY_V4)
			if err != nil {
				t.Fatal(err)
			}
			for _, n := range list {
				if n.IP.Equal(net.IPv4(10, 1, 0, 1)) {
					state = n.State
				}
			}
		})
		if state&unix.NUD_REACHABLE != 0 {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Error("a stale neighbour was not confirmed within 10s")
}

func TestKernelInterfaceVanishesAndReturns(t *testing.T) {
	r := newRig(t)
	before, _ := r.tables.until(t, "start", func(tb *dataplane.Tables) bool { return len(peerHops(tb, vtep2)) == 2 })
	r.leaf.DeleteLink(t, "up0")
	// The kernel takes the whole route away, a moment after the next hop of the
	// interface: whether tables are made in between is chance.
	r.tables.until(t, "vanished", func(tb *dataplane.Tables) bool {
		return tb.Ports[0] == dataplane.PortState{} && !slices.ContainsFunc(peerHops(tb, vtep2), func(h string) bool { return h != "up1 10.1.1.1" })
	})
	r.addUplink(t, 0)
	r.run(t, "ip route replace 10.255.0.2/32 nexthop via 10.1.0.1 dev up0 nexthop via 10.1.1.1 dev up1")
	after, _ := r.tables.until(t, "returned", func(tb *dataplane.Tables) bool { return len(peerHops(tb, vtep2)) == 2 })
	if i := after.Ports[0].Ifindex; i == 0 || i == before.Ports[0].Ifindex || !after.Ports[0].Up {
		t.Errorf("port %+v, was %+v", after.Ports[0], before.Ports[0])
	}
	if !slices.Equal(before.Peers[0].Hops, after.Peers[0].Hops) {
		t.Errorf("hop IDs changed from %v to %v", before.Peers[0].Hops, after.Peers[0].Hops)
	}
}

func TestKernelEventStorm(t *testing.T) {
	r := newRig(t)
	r.hops(t, "start", "up0 10.1.0.1", "up1 10.1.1.1")
	want := net.HardwareAddr{2, 0, 0, 0, 0x03, 0xe7}
	r.leaf.Do(t, func() {
		up0 := r.leaf.Link(t, "up0").Attrs().Index
		for i := range 1000 {
			n := netlink.Neigh{
				LinkIndex: up0, State: unix.NUD_PERMANENT, IP: net.IPv4(10, 1, 0, 1),
				HardwareAddr: net.HardwareAddr{2, 0, 0, 0, byte(i >> 8), byte(i)},
			}
			if err := netlink.NeighSet(&n); err != nil {
				t.Fatal(err)
			}
		}
	})
	r.tables.until(t, "the last of 1000 changes", func(tb *dataplane.Tables) bool {
		return slices.ContainsFunc(tb.Hops, func(h dataplane.Hop) bool {
			return h.Resolved && h.Gateway == addr("10.1.0.1") && net.HardwareAddr(h.MAC[:]).String() == want.String()
		})
	})
	if s := r.mirror.Stats(); s.Lists[Neighbours] > 500 {
		t.Errorf("%d lists for 1000 changes", s.Lists[Neighbours])
	}
}

func TestKernelTellsSpeedOfPorts(t *testing.T) {
	testenv.NeedRoot(t)
	a, b := testenv.NewNamespace(t, "ctlspeed"), testenv.NewNamespace(t, "ctlspeed")
	testenv.VethPair(t, a, "up0", b, "dn0", testenv.VethOptions{})
	var s State
	a.Do(t, func() {
		k, err := OpenNetlink("up0")
		if err != nil {
			t.Fatal(err)
		}
		defer k.Close()
		if err := k.List(Links, &s); err != nil {
			t.Fatal(err)
		}
	})
	for _, l := range s.Links {
		want := uint64(0) // not a port: not asked
		if l.Name == "up0" {
			want = 10_000_000_000 // what veth says
		}
		if l.Speed != want {
			t.Errorf("%s: speed %d, want %d", l.Name, l.Speed, want)
		}
	}
}

// A next hop of a new IPv6 link is resolved as soon as the kernel may ask for it, when it has
// checked its own address. A request before that would be lost, and the kernel would ask
// again only after a time that is made long here.
func TestKernelResolvesWhenTheAddressIsChecked(t *testing.T) {
	testenv.NeedRoot(t)
	r := &rig{
		leaf: testenv.NewNamespace(t, "ctl-leaf"), spine: testenv.NewNamespace(t, "ctl-spine"),
		unresolved: make(chan dataplane.HopID, 1), peer: "2001:db8:ff::2",
	}
	testenv.VethPair(t, r.leaf, "up0", r.spine, "down0", testenv.VethOptions{})
	r.spine.Sysctl(t, "net/ipv6/conf/down0/accept_dad", "0")
	r.spine.Sysctl(t, "net/ipv6/conf/down0/disable_ipv6", "0")
	run(t, r.spine, "ip addr add 2001:db8:10::1/127 dev down0 nodad")
	r.leaf.Sysctl(t, "net/ipv6/conf/up0/router_solicitation_delay", "0")
	r.leaf.Sysctl(t, "net/ipv6/conf/up0/disable_ipv6", "0")
	r.run(t, "ip addr add 2001:db8:10::/127 dev up0 nodad")
	r.run(t, "ip route add 2001:db8:ff::2/128 via 2001:db8:10::1 dev up0")
	r.leaf.Do(t, func() {
		for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(time.Millisecond) {
			b, err := os.ReadFile("/proc/thread-self/net/snmp6")
			if err != nil {
				t.Fatal(err)
			}
			if i := slices.Index(strings.Fields(string(b)), "Icmp6OutNeighborSolicits"); strings.Fields(string(b))[i+1] != "0" {
				return // it asks whether anybody has its address, and has set the time for which it waits
			}
			if time.Now().After(deadline) {
				t.Fatal("the kernel does not check its address")
			}
		}
	})
	r.leaf.Sysctl(t, "net/ipv6/neigh/up0/retrans_time_ms", "60000")
	r.start(t, addr("2001:db8:ff::1"))
	r.tables.until(t, "resolved", resolved("2001:db8:10::1", true))
}
