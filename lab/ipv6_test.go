package lab

import (
	"testing"

	"github.com/loomfabric/loom/internal/testenv"
)

const overIPv6 = `dataplane: kernel
underlay: ipv6
leaves: 2
spines: 2
links: {parallel: 1}
hosts: {per_leaf: 1}
vnis: [{vni: 10}]
`

// TestIPv6: a fabric over IPv6 works with the kernel alone, with Loom, and with a leaf of
// each, and follows a fault. What is on its way when a link changes may be lost.
func TestIPv6(t *testing.T) {
	for _, c := range []struct{ name, text string }{
		{"kernel", overIPv6},
		{"Loom", "dataplane: loom\nfallback: kernel\n" + overIPv6[len("dataplane: kernel\n"):]},
		{"a leaf of each", "dataplane: loom\nkernel_leaves: [L1]\n" + overIPv6[len("dataplane: kernel\n"):]},
	} {
		t.Run(c.name, func(t *testing.T) {
			l, _ := withDaemons(t, c.text)
			if c.name == "kernel" {
				l, _ = newLab(t, c.text)
			}
			up(t, l)
			reach := func(what string, tries int) {
				t.Helper()
				for i, from := range l.Topo.Hosts {
					to := l.Topo.Hosts[1-i].Addr.Addr()
					for try := range tries {
						out, ok := testenv.Ping(t, testenv.OpenNamespace(t, l.ns(from.Name)), to, 1472, 2)
						if ok {
							break
						}
						if t.Logf("%s: from %s:\n%s", what, from.Name, out); try == tries-1 {
							t.Fail()
						}
					}
				}
			}
			reach("at first", 1)
			if err := l.Fail("L0-S1.0"); err != nil {
				t.Fatal(err)
			}
			reach("without a link", 3)
			if err := l.Restore("L0-S1.0"); err != nil {
				t.Fatal(err)
			}
			reach("with the link again", 3)
		})
	}
}
