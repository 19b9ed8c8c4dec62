package control

import (
	"fmt"
	"log/slog"

	"github.com/loomfabric/loom/dataplane"
)

// neededMTU returns the MTU that ports towards the fabric need, given those that ports
// have by PortID, and the port that asks for it. A leaf needs its widest access port's
// and the overhead of the tunnel. A spine sends on by any port what came in by another,
// so that all of them need the widest one's. 0: no such port exists.
func neededMTU(role dataplane.Role, ports []dataplane.PortConfig, overhead int, mtu func(i int) int) (need int, asks string) {
	for i := range ports {
		if m := mtu(i); (role == dataplane.Spine || ports[i].Kind == dataplane.Access) && m > need {
			need, asks = m, ports[i].Name
		}
	}
	if role == dataplane.Leaf && need > 0 {
		need += overhead
	}
	return need, asks
}

// narrow reports whether a port towards the fabric has a smaller MTU than it needs.
func narrow(p dataplane.PortState) bool { return p.MTU > 0 && p.MTU < p.NeedMTU }

// reportMTU logs that a port has become too narrow, or is wide enough again. What the
// start-up checks found it does not repeat.
func (m *Mirror) reportMTU(name string, old, p dataplane.PortState) {
	if m.stats.Published <= 1 {
		return
	}
	attrs := []any{slog.String("interface", name), slog.Int("mtu", p.MTU), slog.Int("needs", p.NeedMTU)}
	switch {
	case narrow(p) && (!narrow(old) || p.MTU != old.MTU || p.NeedMTU != old.NeedMTU):
		m.Log.Warn("the port's MTU is too small for the fabric: long packets are dropped",
			append(attrs, slog.String("fix", fmt.Sprintf("ip link set dev %s mtu %d", name, p.NeedMTU)))...)
	case narrow(old) && !narrow(p) && p.MTU > 0:
		m.Log.Info("the port's MTU is large enough again", attrs...)
	}
}
