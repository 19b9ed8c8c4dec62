package netns

import (
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// weigh gives a node a route to a VTEP by two gateways with weights.
func (f *fab) weigh(node string, vtep netip.Addr, by [2]netip.Addr, weights [2]int) {
	f.t.Helper()
	var hops []*netlink.NexthopInfo
	for i := range by {
		hops = append(hops, &netlink.NexthopInfo{Gw: by[i].AsSlice(), Hops: weights[i] - 1})
	}
	f.ns[node].Do(f.t, func() {
		dst := &net.IPNet{IP: vtep.AsSlice(), Mask: net.CIDRMask(32, 32)}
		if err := netlink.RouteReplace(&netlink.Route{Dst: dst, MultiPath: hops, Protocol: unix.RTPROT_BGP}); err != nil {
			f.t.Fatalf("route to %v by %v in %s: %v", vtep, by, node, err)
		}
	})
}

// splits waits until what a node sends by two ports is split as their weights say. Of
// 500 flows the bound is four standard deviations.
func (f *fab) splits(node string, ports [2]string, weights [2]int) {
	f.t.Helper()
	d := f.daemons[node]
	sent := func() [2]float64 { return [2]float64{float64(d.sent(ports[0])), float64(d.sent(ports[1]))} }
	want := float64(weights[0]) / float64(weights[0]+weights[1])
	eventually(f.t, 10*time.Second, func() string {
		before := sent()
		time.Sleep(time.Second)
		after := sent()
		a, b := after[0]-before[0], after[1]-before[1]
		if a+b < 300 || a/(a+b) < want-0.08 || a/(a+b) > want+0.08 {
			return fmt.Sprintf("%s sent %.0f and %.0f frames by %v, want %.0f %% by the first", node, a, b, ports, 100*want)
		}
		return ""
	})
}

// TestWeightedRoutes: of many flows as many take a next hop as its weight says, at a
// leaf and at a spine. The weights change while frames flow.
func TestWeightedRoutes(t *testing.T) {
	t.Parallel() // it counts a thousand frames a second
	f := up(t, "bundle.yaml")
	startProbe(t, f.ns["h0"], f.ns["h1"], f.addr("h1"), 500, time.Millisecond)
	far := f.topo.Leaves[1].VTEP
	leafPorts, spinePorts := [2]string{"up-s0-0", "up-s0-1"}, [2]string{"dn-l1-0", "dn-l1-1"}
	var leafHops, spineHops [2]netip.Addr
	for i := range 2 {
		leafHops[i] = f.link(fmt.Sprintf("L0-S0.%d", i)).SpineAddr
		spineHops[i] = f.link(fmt.Sprintf("L1-S0.%d", i)).LeafAddr
	}
	f.splits("L0", leafPorts, [2]int{1, 1})
	f.splits("S0", spinePorts, [2]int{1, 1})
	for _, weights := range [][2]int{{3, 1}, {1, 7}, {1, 1}} {
		f.weigh("L0", far, leafHops, weights)
		f.weigh("S0", far, spineHops, [2]int{weights[1], weights[0]})
		f.splits("L0", leafPorts, weights)
		f.splits("S0", spinePorts, [2]int{weights[1], weights[0]})
	}
}
