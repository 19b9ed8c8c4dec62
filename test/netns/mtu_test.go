package netns

import (
	"fmt"
	"testing"
	"time"

	"github.com/loomfabric/loom/internal/testenv"
)

// TestMTUAtRunTime: the MTU of a leaf's uplink, then of a spine's port, becomes too
// small under a running daemon, which says so, and is right again.
func TestMTUAtRunTime(t *testing.T) {
	f := up(t, "trio.yaml")
	k := f.link("L0-S0.0")
	for _, c := range []struct {
		node, port string
		ns         *testenv.Namespace
		need       int
	}{{"L0", k.LeafPort, f.ns["L0"], 1550}, {"S0", k.SpinePort, f.ns["S0"], 1600}} {
		d := f.daemons[c.node]
		for step, mtu := range []int{1400, 1600} {
			setMTU(t, c.ns, c.ns.Link(t, c.port), mtu)
			want := [...]string{
				fmt.Sprintf(`long packets are dropped" node=%s interface=%s mtu=1400 needs=%d fix="ip link set dev %[2]s mtu %[3]d"`, c.node, c.port, c.need),
				fmt.Sprintf(`large enough again" node=%s interface=%s mtu=1600 needs=%d`, c.node, c.port, c.need),
			}[step]
			eventually(t, 3*time.Second, func() string {
				if n := d.metric("loom_port_mtu_bytes", "port", c.port); n != uint64(mtu) {
					return fmt.Sprintf("loom_port_mtu_bytes is %d", n)
				}
				if len(lines(d.whole(), want)) != 1 {
					return fmt.Sprintf("%q is not in the log once:\n%s", want, d.tail())
				}
				return ""
			})
			if n := d.metric("loom_port_mtu_needed_bytes", "port", c.port); n != uint64(c.need) {
				t.Errorf("%s needs %d, want %d", c.port, n, c.need)
			}
		}
	}
}
