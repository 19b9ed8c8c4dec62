package frr

import (
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
)

// TestOtherRouting: with OSPF and IS-IS, too, a link that goes costs Loom what it costs the
// kernel.
func TestOtherRouting(t *testing.T) {
	if !*all {
		return // make test-frr
	}
	for _, routing := range []string{"ospf", "isis"} {
		t.Run(routing, func(t *testing.T) {
			b := up(t, underlay+"frr: {routing: "+routing+"}\n")
			for _, name := range []string{"uplink down at the leaf", "uplink down at the spine"} {
				i := slices.IndexFunc(events, func(e event) bool { return e.name == name })
				t.Run(name, func(t *testing.T) { b.in(t).during(events[i]) })
			}
		})
	}
}

// TestBFD: a link that stays up and carries nothing of the kernel's more is taken out of
// use by BFD, and by Loom with it. What Loom sends does not pass the qdisc that swallows the
// rest, so that its flows have nothing to lose: they must not be disturbed either.
func TestBFD(t *testing.T) {
	if !*all {
		return // make test-frr
	}
	b := up(t, underlay+"frr: {bfd: 200ms}\n")
	ends := map[string]string{"L0": "up-s0-0", "S0": "dn-l0-0"}
	each := func(do ...string) {
		for node, dev := range ends {
			if out, err := exec.Command("tc", slices.Concat([]string{"-n", b.ns[node].Name, "qdisc", do[0], "dev", dev, "root"}, do[1:])...).CombinedOutput(); err != nil {
				b.t.Fatalf("qdisc of %s on %s: %v: %s", dev, node, err, out)
			}
		}
	}
	b.during(event{
		name: "silent link",
		do: func(b *bed) {
			start := time.Now()
			each("replace", "blackhole")
			eventually(b.t, away, func() string { // BGP by itself takes 9 s
				if len(b.routeGet("L0", b.vtep(1))) != 1 {
					return "the link is in use"
				}
				return ""
			})
			b.t.Logf("taken out of use after %v", time.Since(start).Round(10*time.Millisecond))
			for node, dev := range ends {
				if b.ns[node].Link(b.t, dev).Attrs().OperState != netlink.OperUp {
					b.t.Errorf("%s of %s is down: that is another test", dev, node)
				}
			}
		},
		undo: func(*bed) { each("del") },
	})
}
