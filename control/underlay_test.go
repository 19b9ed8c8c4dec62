package control

import (
	"fmt"
	"math"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/loomfabric/loom/dataplane"
	"github.com/loomfabric/loom/internal/testenv"
)

// kernelHops asks the kernel for the ways of many flows to an address, by `ip route get`,
// and returns the share of each: "up0 10.1.0.1". Flows that have none are not in it. vrf
// is empty for the main table.
func kernelHops(t *testing.T, ns *testenv.Namespace, dst, vrf string) map[string]float64 {
	t.Helper()
	const flows = 600
	selector := ""
	if vrf != "" {
		selector = " vrf " + vrf
	}
	var ask strings.Builder
	for i := range flows {
		fmt.Fprintf(&ask, "route get %s%s ipproto udp sport %d dport 4789\n", dst, selector, 10000+i*37)
	}
	shares := make(map[string]float64)
	ns.Do(t, func() {
		c := exec.Command("ip", "-force", "-batch", "-")
		c.Stdin = strings.NewReader(ask.String())
		out, _ := c.Output() // it fails if there is no route, and says so for each
		for line := range strings.Lines(string(out)) {
			f := strings.Fields(line)
			if len(f) == 0 || f[0] != dst {
				continue
			}
			word := func(key string) string {
				if i := slices.Index(f, key); i > 0 && i+1 < len(f) {
					if f[i+1] == "inet6" {
						i++
					}
					return f[i+1]
				}
				return dst // on link
			}
			if len(f) > 0 && f[0] == "unreachable" || slices.Contains(f, "lo") { // IPv6 tells of routes to nowhere, too
				continue
			}
			shares[word("dev")+" "+word("via")] += 1. / flows
		}
	})
	return shares
}

// TestUnderlayEqualsRouteGet holds next hops against what the kernel does itself, for
// every way of writing a route, with next hop objects spelt out in routes and not.
func TestUnderlayEqualsRouteGet(t *testing.T) {
	for _, compat := range []string{"0", "1"} {
		t.Run("nexthop_compat_mode="+compat, func(t *testing.T) {
			r := newRig(t)
			r.hops(t, "start", "up0 10.1.0.1", "up1 10.1.1.1")
			r.leaf.Sysctl(t, "net/ipv6/conf/up0/disable_ipv6", "0")
			r.leaf.Sysctl(t, "net/ipv4/nexthop_compat_mode", compat)
			r.leaf.Sysctl(t, "net/ipv4/fib_multipath_hash_policy", "1")
			r.leaf.Sysctl(t, "net/ipv4/conf/all/ignore_routes_with_linkdown", "1")
			testenv.VethPair(t, r.leaf, "other", r.spine, "other", testenv.VethOptions{})
			r.run(t, "ip addr add 10.1.9.0/31 dev other")
			// The kernel leaves those members of a group out that do not answer.
			for _, n := range []string{"10.1.0.1 dev up0", "10.1.0.7 dev up0", "10.1.1.1 dev up1", "10.1.9.1 dev other"} {
				r.run(t, "ip neigh replace "+n+" lladdr 02:00:00:00:00:09 nud permanent")
			}
			for _, c := range []string{
				"id 1 via 10.1.0.1 dev up0", "id 2 via 10.1.1.1 dev up1", "id 3 via 10.1.9.1 dev other", "id 4 blackhole",
				"id 10 group 1/2", "id 11 group 1,5/2,2", "id 12 group 1/3", "id 13 group 4", "id 14 group 1,1/2,3 type resilient buckets 32",
				"id 20 via 192.0.2.1 fdb",
			} {
				r.run(t, "ip nexthop add "+c)
			}
			for _, v := range []underlayCase{
				{"a route of two", "route replace 10.255.0.2/32 nexthop via 10.1.0.1 dev up0 nexthop via 10.1.1.1 dev up1", []string{"up0 10.1.0.1", "up1 10.1.1.1"}},
				{"weights", "route replace 10.255.0.2/32 nexthop via 10.1.0.1 dev up0 weight 1 nexthop via 10.1.1.1 dev up1 weight 4", []string{"up0 10.1.0.1", "up1 10.1.1.1"}},
				{"an object", "route replace 10.255.0.2/32 nhid 1", []string{"up0 10.1.0.1"}},
				{"a group", "route replace 10.255.0.2/32 nhid 10", []string{"up0 10.1.0.1", "up1 10.1.1.1"}},
				{"a group with weights", "route replace 10.255.0.2/32 nhid 11", []string{"up0 10.1.0.1", "up1 10.1.1.1"}},
				{"a group replaced in place, which is no event of the route", "nexthop replace id 11 group 1,1/2,6", []string{"up0 10.1.0.1", "up1 10.1.1.1"}},
				{"an object of the group replaced", "nexthop replace id 1 via 10.1.0.7 dev up0 onlink", []string{"up0 10.1.0.7", "up1 10.1.1.1"}},
				{"and back", "nexthop replace id 1 via 10.1.0.1 dev up0", []string{"up0 10.1.0.1", "up1 10.1.1.1"}},
				{"a resilient group", "route replace 10.255.0.2/32 nhid 14", []string{"up0 10.1.0.1", "up1 10.1.1.1"}},
				{"a blackhole object", "route replace 10.255.0.2/32 nhid 4", nil},
				{"a group of a blackhole", "route replace 10.255.0.2/32 nhid 13", nil},
				{"a group that leads elsewhere, too", "route replace 10.255.0.2/32 nhid 12", []string{"other 10.1.9.1", "up0 10.1.0.1"}},
				{"elsewhere", "route replace 10.255.0.2/32 via 10.1.9.1 dev other", []string{"other 10.1.9.1"}},
				{"onlink", "route replace 10.255.0.2/32 via 169.254.0.1 dev up1 onlink", []string{"up1 169.254.0.1"}},
				{"on the link", "route replace 10.255.0.2/32 dev up0", []string{"up0 10.255.0.2"}},
				{"BGP unnumbered", "route replace 10.255.0.2/32 via inet6 fe80::1 dev up0", []string{"up0 fe80::1"}},
				{"throw", "route replace throw 10.255.0.2/32", nil},
				{"unreachable", "route replace unreachable 10.255.0.2/32", nil},
				{"encap", "route replace 10.255.0.2/32 encap ip id 7 dst 10.9.9.9 via 10.1.0.1 dev up0", []string{"up0 10.1.0.1"}},
				{"a backup route", "route replace 10.255.0.2/32 via 10.1.0.1 dev up0; route add 10.255.0.2/32 nhid 2 metric 50", []string{"up0 10.1.0.1"}},
				{"the preferred route is down", "down0 down", []string{"up1 10.1.1.1"}},
				{"and up", "down0 up", []string{"up0 10.1.0.1"}},
				{"a wider route, of objects of which the link took one along", "nexthop add id 1 via 10.1.0.1 dev up0; nexthop replace id 11 group 1,5/2,2; route del 10.255.0.2/32 metric 50; route del 10.255.0.2/32; route add 10.255.0.0/24 nhid 11", []string{"up0 10.1.0.1", "up1 10.1.1.1"}},
				{"throw hides a wider route", "route add throw 10.255.0.2/32", nil},
				{"the group without one of its members", "route del throw 10.255.0.2/32; nexthop del id 1", []string{"up1 10.1.1.1"}},
				{"a member is back", "nexthop add id 1 via 10.1.0.1 dev up0; nexthop replace id 11 group 1/2", []string{"up0 10.1.0.1", "up1 10.1.1.1"}},
				{"a member's link is down", "down0 down", []string{"up1 10.1.1.1"}},
			} {
				r.check(t, &v)
			}
		})
	}
}

// TestUnderlay6EqualsRouteGet does the same for IPv6.
func TestUnderlay6EqualsRouteGet(t *testing.T) {
	for _, compat := range []string{"0", "1"} {
		t.Run("nexthop_compat_mode="+compat, func(t *testing.T) {
			r := newRig6(t)
			for key, value := range map[string]string{
				"net/ipv4/nexthop_compat_mode": compat, "net/ipv6/fib_multipath_hash_policy": "1", "net/ipv6/conf/all/ignore_routes_with_linkdown": "1",
				"net/ipv6/conf/default/ignore_routes_with_linkdown": "1", "net/ipv6/conf/up0/ignore_routes_with_linkdown": "1", "net/ipv6/conf/up1/ignore_routes_with_linkdown": "1",
			} {
				r.leaf.Sysctl(t, key, value)
			}
			testenv.VethPair(t, r.leaf, "other", r.spine, "other", testenv.VethOptions{})
			r.leaf.Sysctl(t, "net/ipv6/conf/other/disable_ipv6", "0")
			r.run(t, "ip addr add 2001:db8:9::/127 dev other nodad")
			for _, n := range []string{"2001:db8:10::1 dev up0", "2001:db8:10::7 dev up0", "fe80::1 dev up0", "2001:db8:11::1 dev up1", "2001:db8:9::1 dev other", "fe80::2 dev up1"} {
				r.run(t, "ip neigh replace "+n+" lladdr 02:00:00:00:00:09 nud permanent")
			}
			for _, c := range []string{
				"id 1 via 2001:db8:10::1 dev up0", "id 2 via 2001:db8:11::1 dev up1", "id 3 via 2001:db8:9::1 dev other", "id 4 blackhole",
				"id 10 group 1/2", "id 11 group 1,5/2,2", "id 12 group 1/3",
			} {
				family := "ip -6 "
				if strings.Contains(c, "group") {
					family = "ip "
				}
				r.run(t, family+"nexthop add "+c)
			}
			both := []string{"up0 2001:db8:10::1", "up1 2001:db8:11::1"}
			for _, v := range []underlayCase{
				{"a route of two", "-6 route replace 2001:db8:ff::2/128 nexthop via 2001:db8:10::1 dev up0 nexthop via 2001:db8:11::1 dev up1", both},
				{"weights", "-6 route replace 2001:db8:ff::2/128 nexthop via 2001:db8:10::1 dev up0 weight 1 nexthop via 2001:db8:11::1 dev up1 weight 4", both},
				{"an object", "-6 route replace 2001:db8:ff::2/128 nhid 1", both[:1]},
				{"a group", "-6 route replace 2001:db8:ff::2/128 nhid 10", both},
				{"a group with weights", "-6 route replace 2001:db8:ff::2/128 nhid 11", both},
				{"a group replaced in place", "nexthop replace id 11 group 1,1/2,6", both},
				{"a blackhole object", "-6 route replace 2001:db8:ff::2/128 nhid 4", nil},
				{"a group that leads elsewhere, too", "-6 route replace 2001:db8:ff::2/128 nhid 12", []string{"other 2001:db8:9::1", "up0 2001:db8:10::1"}},
				{"elsewhere", "-6 route replace 2001:db8:ff::2/128 via 2001:db8:9::1 dev other", []string{"other 2001:db8:9::1"}},
				{"by way of link-local addresses, as BGP unnumbered has it", "-6 route replace 2001:db8:ff::2/128 nexthop via fe80::1 dev up0 nexthop via fe80::2 dev up1", []string{"up0 fe80::1", "up1 fe80::2"}},
				{"on the link", "-6 route replace 2001:db8:ff::2/128 dev up0", []string{"up0 2001:db8:ff::2"}},
				{"unreachable", "-6 route del 2001:db8:ff::2/128; -6 route add unreachable 2001:db8:ff::2/128", nil},
				{"a backup route", "-6 route del unreachable 2001:db8:ff::2/128; -6 route add 2001:db8:ff::2/128 via 2001:db8:10::1 dev up0 metric 10; -6 route add 2001:db8:ff::2/128 nhid 2 metric 50", both[:1]},
				{"the preferred route is down", "down0 down", both[1:]},
				{"and up", "down0 up", both[:1]},
				{"a wider route", "-6 route del 2001:db8:ff::2/128 metric 10; -6 route del 2001:db8:ff::2/128 metric 50; -6 route add 2001:db8:ff::/64 via 2001:db8:11::1 dev up1", both[1:]},
				{"unreachable hides a wider route", "-6 route add unreachable 2001:db8:ff::2/128", nil},
				{"a default route", "-6 route del unreachable 2001:db8:ff::2/128; -6 route del 2001:db8:ff::/64; -6 route add default via 2001:db8:10::1 dev up0", both[:1]},
			} {
				r.check(t, &v)
			}
		})
	}
}

// underlayCase is a change of routes, or of a link, and the kernel's next hops after it.
type underlayCase struct {
	what, commands string
	want           []string
}

// check makes a change and holds the tables against the kernel.
func (r *rig) check(t *testing.T, v *underlayCase) {
	t.Helper()
	for c := range strings.SplitSeq(v.commands, "; ") {
		if updown, ok := strings.CutPrefix(c, "down0 "); ok {
			r.spine.SetUp(t, "down0", updown == "up")
			continue
		}
		r.run(t, "ip "+c)
	}
	r.equalsRouteGet(t, v.what, v.want)
	strays := 0
	if slices.ContainsFunc(v.want, func(h string) bool { return strings.HasPrefix(h, "other ") }) {
		strays = 1
	}
	for end := time.Now().Add(time.Second); r.mirror.Stats().Unlisted != strays; time.Sleep(time.Millisecond) {
		if time.Now().After(end) { // they are shown after the tables
			t.Fatalf("%s: %d unlisted ports, want %d", v.what, r.mirror.Stats().Unlisted, strays)
		}
	}
}

// equalsRouteGet waits until the kernel's next hops to the peer are those that are wanted,
// and the tables' are these but for what is no port of ours or encapsulated.
func (r *rig) equalsRouteGet(t *testing.T, what string, want []string) {
	t.Helper()
	var kernel map[string]float64
	end := time.Now().Add(5 * time.Second)
	for {
		kernel = kernelHops(t, r.leaf, r.peer, r.vrf)
		keys := make([]string, 0, len(kernel))
		for k := range kernel {
			keys = append(keys, k)
		}
		if slices.Sort(keys); slices.Equal(keys, want) {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%s: the kernel's next hops are %v, not %q", what, kernel, want)
		}
	}
	total := 0.0
	for k, share := range kernel {
		if strings.HasPrefix(k, "other ") || what == "encap" {
			delete(kernel, k)
			continue
		}
		total += share
	}
	for end = time.Now().Add(5 * time.Second); !sameHops(r.mirror.Tables(), r.peer, kernel, total); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			tb := r.mirror.Tables()
			t.Fatalf("%s: next hops %q, weights %v; the kernel's are %v", what, peerHops(tb, r.peer), tb.Peers[0].Weights, kernel)
		}
	}
}

// sameHops reports whether the first peer's next hops are the kernel's, with about the
// same shares.
func sameHops(tb *dataplane.Tables, peer string, kernel map[string]float64, total float64) bool {
	hops, sum := peerHops(tb, peer), 0.0
	for i := range hops {
		sum += float64(max(at(tb.Peers[0].Weights, i), 1))
	}
	for i, h := range hops {
		if share, ok := kernel[h]; !ok || math.Abs(share/total-float64(max(at(tb.Peers[0].Weights, i), 1))/sum) > 0.08 {
			return false
		}
	}
	return len(hops) == len(kernel)
}
