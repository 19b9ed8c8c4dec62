package frr

import (
	"fmt"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// underlay is a fabric of leafd and spined over the routes of BGP unnumbered.
const underlay = `control: frr
leaves: 2
spines: 2
hosts: {per_leaf: 1}
vnis: [{vni: 100}]
`

// slack is how much longer Loom may take than the kernel. The project promises 50 ms on
// an idle machine, and the test's log says what it was; one that is busy gets twenty times
// as much.
const slack = time.Second

// An event is something that happens to the underlay, and is undone.
type event struct {
	name     string
	do, undo func(*bed)
	// longest bounds what the kernel's own loss says nothing about: 0 if it does.
	longest time.Duration
	all     bool // not in every run of the tests
}

func nothing(*bed) {}

// events are those of which it was measured what Loom loses and what the kernel does.
var events = []event{
	{name: "uplink down at the leaf",
		do:   func(b *bed) { b.ip("L0", "link", "set", "up-s0-0", "down") },
		undo: func(b *bed) { b.ip("L0", "link", "set", "up-s0-0", "up") }},
	{name: "kill -9 of bgpd on a spine",
		do:   func(b *bed) { b.stopRouting("S0", "bgpd", unix.SIGKILL) },
		undo: func(b *bed) { b.startRouting("S0", "bgpd") }},
	{name: "a next hop's MAC address changes",
		do:   func(b *bed) { b.ip("S0", "link", "set", "dn-l0-0", "address", "02:00:00:00:dd:01") },
		undo: nothing},
	{name: "kill -9 of spined", // the kernel forwards
		do:   func(b *bed) { b.stopDaemon("S0", unix.SIGKILL) },
		undo: func(b *bed) { b.startDaemon("S0") }, longest: time.Second},
	{name: "SIGTERM of bgpd on a spine", all: true,
		do:   func(b *bed) { b.stopRouting("S0", "bgpd", unix.SIGTERM) },
		undo: func(b *bed) { b.startRouting("S0", "bgpd") }},
	{name: "graceful shutdown of a spine", all: true,
		do: func(b *bed) {
			b.vtysh("S0", "configure terminal", "router bgp 65000", "bgp graceful-shutdown")
		},
		undo: func(b *bed) {
			b.vtysh("S0", "configure terminal", "router bgp 65000", "no bgp graceful-shutdown")
		}},
	{name: "kill -9 of bgpd on the leaf", all: true,
		do:   func(b *bed) { b.stopRouting("L0", "bgpd", unix.SIGKILL) },
		undo: func(b *bed) { b.startRouting("L0", "bgpd") }},
	{name: "kill -9 of zebra and bgpd on the leaf", all: true,
		do: func(b *bed) {
			b.stopRouting("L0", "zebra", unix.SIGKILL)
			b.stopRouting("L0", "bgpd", unix.SIGKILL)
		},
		undo: func(b *bed) { b.startRouting("L0", "zebra", "bgpd") }},
	{name: "uplink down at the spine", all: true,
		do:   func(b *bed) { b.ip("S0", "link", "set", "dn-l0-0", "down") },
		undo: func(b *bed) { b.ip("S0", "link", "set", "dn-l0-0", "up") }},
	{name: "the spine's other link down", all: true,
		do:   func(b *bed) { b.ip("S0", "link", "set", "dn-l1-0", "down") },
		undo: func(b *bed) { b.ip("S0", "link", "set", "dn-l1-0", "up") }},
	{name: "clear bgp *", all: true,
		do: func(b *bed) { b.vtysh("S0", "clear bgp *") }, undo: nothing},
	{name: "the VTEP's address away and back", all: true,
		do:   func(b *bed) { b.ip("L1", "addr", "del", b.vtep(1).String()+"/32", "dev", "lo") },
		undo: func(b *bed) { b.ip("L1", "addr", "add", b.vtep(1).String()+"/32", "dev", "lo") }},
	{name: "neighbours flushed", all: true,
		do: func(b *bed) {
			b.ip("L0", "neigh", "flush", "all", "nud", "all")
			b.ip("S0", "neigh", "flush", "all", "nud", "all")
		}, undo: nothing},
	// Nothing carries on when there is no bridge beside it: it may last as long as it is
	// away, and 300 ms.
	{name: "kill -9 of leafd", all: true,
		do:   func(b *bed) { b.stopDaemon("L0", unix.SIGKILL) },
		undo: func(b *bed) { b.startDaemon("L0") }, longest: away + 3*time.Second},
}

// away is the time from an event to its end.
const away = 1500 * time.Millisecond

// TestEvents: 16 flows go each way between two hosts, through Loom, and 16 between the
// leaves' own addresses, through the kernels of the same underlay. Whatever happens to
// it, Loom's flows are without an answer for no longer than the kernel's, and a bit.
func TestEvents(t *testing.T) {
	b := up(t, underlay)
	for _, n := range b.nodes() { // the kernel tells no more of a route than the number of its group
		b.ns[n.Name].Sysctl(t, "net/ipv4/nexthop_compat_mode", "0")
	}
	for _, e := range events {
		if e.all && !*all {
			continue
		}
		t.Run(e.name, func(t *testing.T) { b.in(t).during(e) })
	}
}

// during causes an event under load.
func (b *bed) during(e event) {
	b.t.Helper()
	b.multipath()
	const flows, each = 16, 10 * time.Millisecond
	loom := startProbe(b.t, b.ns["h0"], b.ns["h1"], b.addr("h1"), flows, each)
	kernel := startProbe(b.t, b.ns["L0"], b.ns["L1"], b.vtep(1), flows, each, b.vtep(0))
	time.Sleep(500 * time.Millisecond)
	loom.works(10 * time.Second)
	kernel.works(10 * time.Second)
	start := time.Now()
	e.do(b)
	time.Sleep(time.Until(start.Add(away)))
	e.undo(b)
	loom.works(30 * time.Second) // again
	kernel.works(30 * time.Second)
	end := time.Now()
	loom.end()
	kernel.end()
	got, want := loom.loss(start, end), kernel.loss(start, end)
	b.t.Logf("Loom lost %v, the kernel %v", got, want)
	if most := max(want.outage+want.outage/10+slack, e.longest); got.outage > most {
		b.t.Errorf("Loom was without an answer for %v, more than %v", got.outage, most)
	}
	if got.duplicates > 0 {
		b.t.Errorf("%d datagrams were answered twice", got.duplicates)
	}
}

// multipath waits until both leaves send to each other by both spines.
func (b *bed) multipath() {
	b.t.Helper()
	for leaf, other := range []int{1, 0} {
		eventually(b.t, 30*time.Second, func() string {
			node := b.topo.Leaves[leaf].Name
			if n := len(b.routeGet(node, b.vtep(other))); n != 2 {
				return fmt.Sprintf("%s has %d next hops to %v", node, n, b.vtep(other))
			}
			return ""
		})
	}
}
