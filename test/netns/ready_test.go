package netns

import (
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/loomfabric/loom/internal/loomctl"
)

// TestVTEPGone: a leaf that loses its VTEP's address says so to all who ask, and goes on
// forwarding; when the address is back, it is ready.
func TestVTEPGone(t *testing.T) {
	f := up(t, "pair.yaml")
	d, vtep := f.daemons["L0"], f.topo.Leaves[0].VTEP
	change := func(do func(netlink.Link, *netlink.Addr) error) {
		t.Helper()
		lo := f.ns["L0"].Link(t, "lo")
		f.ns["L0"].Do(t, func() {
			a, err := netlink.ParseAddr(vtep.String() + "/32")
			if err == nil {
				err = do(lo, a)
			}
			if err != nil {
				t.Fatalf("address %v of L0: %v", vtep, err)
			}
		})
	}
	says := func(ready bool) {
		t.Helper()
		eventually(t, 5*time.Second, func() string {
			_, err := d.get("/readyz")
			status := d.loomctl("status")
			if (err == nil) != ready || strings.Contains(status, "no_vtep") == ready || d.metric("loom_vtep_present") == 1 != ready {
				return "readyz: " + errText(err) + "\nloomctl: " + status
			}
			return ""
		})
	}
	says(true)
	change(netlink.AddrDel)
	says(false)
	transfer(t, f.ns["h0"], f.ns["h3"], f.addr("h3"), 256<<10)
	change(netlink.AddrAdd)
	says(true)
	if gone := lines(d.whole(), "no address of this machine any more", "an address of this machine again"); len(gone) != 2 {
		t.Errorf("the log tells of it in %q", gone)
	}
}

// loomctl runs the command and returns what it prints.
func (d *daemon) loomctl(args ...string) string {
	d.t.Helper()
	var out strings.Builder
	c := loomctl.Command(&out)
	c.SetArgs(append([]string{"--socket", strings.TrimSuffix(d.socket, ".sock") + ".admin.sock"}, args...))
	if err := c.Execute(); err != nil {
		d.t.Fatalf("loomctl %v of %s: %v", args, d.name, err)
	}
	return out.String()
}

func errText(err error) string {
	if err == nil {
		return "ready"
	}
	return err.Error()
}
