package frr

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/loomfabric/loom/internal/admin"
)

// routeGet asks the kernel by which ports, and next to whom, it sends to an address:
// many times, as for flows of many source ports, because a route has several next hops.
// Each hop is "port gateway".
func (b *bed) routeGet(node string, to netip.Addr) (hops []string) {
	b.t.Helper()
	var batch strings.Builder
	for port := range 64 {
		fmt.Fprintf(&batch, "route get %v ipproto udp sport %d dport 4789\n", to, 50000+port)
	}
	cmd := exec.Command("ip", "-n", b.ns[node].Name, "-j", "-force", "-batch", "-")
	cmd.Stdin = strings.NewReader(batch.String())
	out, _ := cmd.Output() // "unreachable" is an answer
	for line := range strings.Lines(string(out)) {
		var routes []struct {
			Dev     string `json:"dev"`
			Gateway string `json:"gateway"`
			Via     struct {
				Host string `json:"host"`
			} `json:"via"`
		}
		if json.Unmarshal([]byte(line), &routes) != nil {
			continue
		}
		for _, r := range routes {
			hop := r.Dev + " " + r.Gateway + r.Via.Host
			if !slices.Contains(hops, hop) {
				hops = append(hops, hop)
			}
		}
	}
	slices.Sort(hops)
	return hops
}

// nextHops asks a leafd by which ports it sends to a peer, and next to whom. Each hop is
// "port gateway".
func (b *bed) nextHops(node string, to netip.Addr) (hops []string) {
	b.t.Helper()
	body, err := b.get(node, ".admin.sock", "/v1/peers")
	if err != nil {
		b.t.Fatal(err)
	}
	var p admin.Peers
	if err := json.Unmarshal(body, &p); err != nil {
		b.t.Fatal(err)
	}
	for _, peer := range p.Peers {
		for _, h := range peer.NextHops {
			if peer.VTEP == to {
				hops = append(hops, h.Port+" "+h.Gateway.String())
			}
		}
	}
	slices.Sort(hops)
	return hops
}

// TestNextHops: whatever protocol finds the routes, and whether or not the kernel says
// with them what is in their groups (net.ipv4.nexthop_compat_mode), leafd's next hops
// are those that `ip route get` chooses from; before a fault, after it, and after the
// link's return.
func TestNextHops(t *testing.T) {
	t.Parallel()
	variants := []string{"bgp-unnumbered"}
	if *all {
		variants = append(variants, "bgp", "ospf", "isis")
	}
	for _, routing := range variants {
		t.Run(routing, func(t *testing.T) {
			t.Parallel()
			b := up(t, strings.Replace(underlay, "control: frr", "control: frr\nfrr: {routing: "+routing+"}", 1))
			b.sameHops("as built", 2)
			for _, compat := range []int{1, 0} {
				b.ns["L0"].Sysctl(t, "net/ipv4/nexthop_compat_mode", strconv.Itoa(compat))
				for _, c := range []struct {
					state string
					hops  int
				}{{"down", 1}, {"up", 2}} {
					b.ip("L0", "link", "set", "up-s1-0", c.state)
					b.sameHops(fmt.Sprintf("compat mode %d, uplink %s", compat, c.state), c.hops)
					time.Sleep(1500 * time.Millisecond) // after which FRR forgets a group of next hops
				}
			}
		})
	}
}

// sameHops waits until L0's leafd and its kernel agree about L1, by so many next hops.
func (b *bed) sameHops(when string, n int) {
	b.t.Helper()
	took := eventually(b.t, 30*time.Second, func() string {
		want, got := b.routeGet("L0", b.vtep(1)), b.nextHops("L0", b.vtep(1))
		if len(want) != n || !slices.Equal(got, want) {
			return fmt.Sprintf("%s: leafd sends by %q, the kernel by %q, want %d next hops", when, got, want, n)
		}
		return ""
	})
	b.t.Logf("%s: %d next hops after %v", when, n, took.Round(time.Millisecond))
}
