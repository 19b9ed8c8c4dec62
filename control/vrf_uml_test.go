//go:build uml

package control

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/loomfabric/loom/config"
	"github.com/loomfabric/loom/dataplane"
	"github.com/loomfabric/loom/internal/testenv"
)

const vtep1 = "10.255.0.1"

// newVRFRig makes a leaf whose uplinks are in VRF underlay. Another VRF and the main table
// have routes to the same VTEP, which lead elsewhere. role says who asks: a leaf that has
// vtep1, or a spine, which has none.
func newVRFRig(t *testing.T, role dataplane.Role, setup ...string) *rig {
	t.Helper()
	testenv.NeedRoot(t)
	r := &rig{
		leaf: testenv.NewNamespace(t, "vrf-leaf"), spine: testenv.NewNamespace(t, "vrf-spine"),
		unresolved: make(chan dataplane.HopID, 1), peer: vtep2, vrf: "underlay",
	}
	r.leaf.Sysctl(t, "net/ipv4/fib_multipath_hash_policy", "1")
	for i := range 2 {
		r.addUplink(t, i)
	}
	for i, name := range []string{"other", "tenant-up"} {
		testenv.VethPair(t, r.leaf, name, r.spine, name, testenv.VethOptions{})
		r.run(t, "ip addr add "+[]string{"10.1.9.0/31", "10.1.0.0/31"}[i]+" dev "+name) // the tenant's is an uplink's, too
	}
	for _, c := range []string{
		"ip link add underlay up type vrf table 1001", "ip link add tenant up type vrf table 1002",
		"ip link set tenant-up master tenant", "ip link set up0 master underlay", "ip link set up1 master underlay",
		"ip route add 10.255.0.2/32 via 10.1.9.1 dev other",
		"ip route add vrf tenant 10.255.0.2/32 via 10.1.0.1 dev tenant-up",
		"ip route add vrf underlay 10.255.0.2/32 nexthop via 10.1.0.1 dev up0 nexthop via 10.1.1.1 dev up1",
	} {
		r.run(t, c)
	}
	for _, c := range setup {
		r.run(t, c)
	}
	var k *Netlink
	r.leaf.Do(t, func() {
		var err error
		if k, err = OpenNetlink("up0", "up1"); err != nil {
			t.Fatal(err)
		}
	})
	t.Cleanup(k.Close)
	if role == dataplane.Leaf {
		k.Underlay(addr(vtep1))
	}
	o := Options{Role: role, Ports: leafPorts[:2], Kernel: k, Unresolved: r.unresolved}
	if role == dataplane.Leaf {
		o.Overlay = &config.Leaf{Peers: []netip.Addr{addr(vtep2)}, VNIs: []config.VNI{{VNI: 100}}}
	}
	r.mirror, r.tables = startMirror(t, o)
	return r
}

var bothUplinks = []string{"up0 10.1.0.1", "up1 10.1.1.1"}

// The underlay's routes are those of the VRF that the VTEP is in, and lead where the
// kernel says by `ip route get vrf`, whatever other tables have.
func TestUMLUnderlayInVRF(t *testing.T) {
	for _, place := range []struct{ name, setup string }{
		{"the VTEP is the VRF's own", "ip addr add 10.255.0.1/32 dev underlay"},
		{"the VTEP is on a dummy in the VRF", "ip link add vtep up type dummy; ip link set vtep master underlay; ip addr add 10.255.0.1/32 dev vtep"},
		{"the VTEP is on an uplink", "ip addr add 10.255.0.1/32 dev up1"},
		{"nobody has the VTEP yet", "ip link set lo up"},
	} {
		t.Run(place.name, func(t *testing.T) {
			r := newVRFRig(t, dataplane.Leaf, strings.Split(place.setup, "; ")...)
			r.equalsRouteGet(t, "at the start", bothUplinks)
			for _, v := range []struct {
				what, commands string
				want           []string
			}{
				{"weights", "ip route replace vrf underlay 10.255.0.2/32 nexthop via 10.1.0.1 dev up0 weight 1 nexthop via 10.1.1.1 dev up1 weight 4", bothUplinks},
				{"the main table changes", "ip route del 10.255.0.2/32; ip route add unreachable 10.255.0.2/32", bothUplinks},
				{"an object", "ip nexthop add id 1 via 10.1.0.1 dev up0; ip nexthop add id 2 via 10.1.1.1 dev up1; ip nexthop add id 10 group 1/2,3; ip route replace vrf underlay 10.255.0.2/32 nhid 10", bothUplinks},
				{"its group changes", "ip nexthop replace id 10 group 2", []string{"up1 10.1.1.1"}},
				{"unreachable", "ip route replace unreachable 10.255.0.2/32 vrf underlay", nil},
				{"one next hop", "ip route replace vrf underlay 10.255.0.2/32 via 10.1.0.1 dev up0", []string{"up0 10.1.0.1"}},
				{"a wider route", "ip route del vrf underlay 10.255.0.2/32; ip route add vrf underlay 10.255.0.0/24 nexthop via 10.1.0.1 dev up0 nexthop via 10.1.1.1 dev up1", bothUplinks},
			} {
				for c := range strings.SplitSeq(v.commands, "; ") {
					r.run(t, c)
				}
				r.equalsRouteGet(t, v.what, v.want)
			}
		})
	}
}

// An uplink that leaves the VRF takes its routes along, and those that come back with it
// are found again.
func TestUMLUplinkLeavesVRF(t *testing.T) {
	r := newVRFRig(t, dataplane.Leaf, "ip addr add 10.255.0.1/32 dev underlay")
	r.equalsRouteGet(t, "at the start", bothUplinks)
	r.run(t, "ip route replace vrf underlay 10.255.0.2/32 via 10.1.0.1 dev up0")
	r.run(t, "ip route add vrf underlay 10.255.0.0/24 via 10.1.1.1 dev up1")
	r.equalsRouteGet(t, "two routes", []string{"up0 10.1.0.1"})
	r.run(t, "ip link set up0 nomaster")
	r.equalsRouteGet(t, "up0 has left", []string{"up1 10.1.1.1"})
	r.run(t, "ip link set up0 master underlay")
	r.run(t, "ip route add vrf underlay 10.255.0.2/32 via 10.1.0.1 dev up0")
	r.equalsRouteGet(t, "up0 is back", []string{"up0 10.1.0.1"})
}

// The VTEP decides, not the ports: one that moves takes the underlay along, into the VRF
// and out of it.
func TestUMLVTEPMovesBetweenTables(t *testing.T) {
	r := newVRFRig(t, dataplane.Leaf, "ip addr add 10.255.0.1/32 dev lo", "ip route replace 10.255.0.2/32 via 10.1.9.1 dev other")
	for _, c := range []struct{ what, commands, vrf string }{
		{"on lo", "", ""},
		{"in the VRF", "ip addr del 10.255.0.1/32 dev lo; ip addr add 10.255.0.1/32 dev underlay", "underlay"},
		{"on lo again", "ip addr del 10.255.0.1/32 dev underlay; ip addr add 10.255.0.1/32 dev lo", ""},
	} {
		for command := range strings.SplitSeq(c.commands, "; ") {
			if command != "" {
				r.run(t, command)
			}
		}
		want := bothUplinks
		if r.vrf = c.vrf; r.vrf == "" {
			want = []string{"other 10.1.9.1"}
		}
		r.equalsRouteGet(t, c.what, want)
	}
}

// A spine has no VTEP: the first of its ports that is in a VRF says which. It takes all
// routes of that table, the main table's none.
func TestUMLSpineInVRF(t *testing.T) {
	r := newVRFRig(t, dataplane.Spine, "ip route add 10.255.0.3/32 via 10.1.9.1 dev other")
	hops := func(tb *dataplane.Tables) (list []string) {
		for prefix, group := range tb.Routes.All() {
			for _, id := range tb.Groups[group].Hops {
				list = append(list, prefix.String()+" "+leafPorts[tb.Hops[id].Port].Name+" "+tb.Hops[id].Gateway.String())
			}
		}
		slices.Sort(list)
		return slices.DeleteFunc(list, func(s string) bool { return !strings.HasPrefix(s, "10.255.") })
	}
	want := []string{"10.255.0.2/32 up0 10.1.0.1", "10.255.0.2/32 up1 10.1.1.1"}
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(time.Millisecond) {
		tb := r.mirror.Tables()
		if tb != nil && slices.Equal(hops(tb), want) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the tables are %+v, want %q", tb, want)
		}
	}
}
