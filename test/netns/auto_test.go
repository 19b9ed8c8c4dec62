package netns

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/loomfabric/loom/internal/testenv"
)

// TestAutoPorts: nobody lists uplinks, spines' ports or leaves; the kernel's routes say
// all of it. A link that comes while the nodes run is used as soon as a route leads over
// it, at both ends.
func TestAutoPorts(t *testing.T) {
	s := newSite(t, 1)
	host1 := testenv.NewNamespace(t, "lnhost")
	s.access(s.far, host1, addr1)
	spine := s.run("spined", "spine", s.spine, "vteps: any\nmax_ports: 4\n")
	leaf := func(name string, ns *testenv.Namespace, own, peer netip.Addr) *daemon {
		return s.run("leafd", name, ns, fmt.Sprintf(
			"vtep: %v\npeers: [%v]\nuplinks: auto\nmax_ports: 4\naccess: [{interface: acc0, vni: 100}]\nvnis: [{vni: 100}]\n", own, peer))
	}
	leaf0 := leaf("leaf0", s.leaf0, vtep0, vtep1)
	leaf("leaf1", s.far, vtep1, vtep0)
	reach := func(when string) {
		t.Helper()
		if out, ok := testenv.Ping(t, s.host0, addr1, 1400, 5); !ok {
			t.Fatalf("%s:\n%s", when, out)
		}
	}
	reach("with the ports that were there at the start")
	if leaf0.sent("up0") < 5 || spine.sent("dn0") < 5 || spine.sent("dn1") < 5 {
		t.Errorf("up0 sent %d, dn0 %d, dn1 %d frames: it was not Loom", leaf0.sent("up0"), spine.sent("dn0"), spine.sent("dn1"))
	}

	testenv.VethPair(t, s.leaf0, "up1", s.spine, "dn2", testenv.VethOptions{MTU: 1600})
	addAddr(t, s.leaf0, "up1", "10.1.1.0/31")
	addAddr(t, s.spine, "dn2", "10.1.1.1/31")
	s.routeTo(s.spine, vtep0, "10.1.1.0")
	s.routeTo(s.leaf0, vtep1, "10.1.1.1")
	leaf0.open("up1", true)
	spine.open("dn2", true)
	before := leaf0.sent("up0")
	reach("over a link that came later")
	if leaf0.sent("up1") < 5 || spine.sent("dn2") < 5 || leaf0.sent("up0") > before+2 {
		t.Errorf("up1 sent %d, dn2 %d, and up0 %d frames more", leaf0.sent("up1"), spine.sent("dn2"), leaf0.sent("up0")-before)
	}
}
