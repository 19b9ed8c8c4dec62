package control

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/dataplane"
	"github.com/loomfabric/loom/internal/units"
	"github.com/loomfabric/loom/overlay"
)

// leastQueue is the shortest queue that is worth advising, in bytes: some frames.
const leastQueue = 8 << 10

// CheckGaps warns of times that are shorter than an uplink's full queue takes to
// drain: by that much may the latencies of two paths differ. A flowlet gap that is
// shorter lets a flow that moves overtake its own packets (CONGA §3.4), and nearly
// every flow move before the metrics have seen the first one do so, which they then
// do together. A θ_inactive that is shorter ends an epoch whose packets are still
// under way (ConWeave §4.1). Uplinks without a shaper have no queue of a known time.
// The classes and the scheme that c names count, so it is worth calling after a
// reload.
func CheckGaps(c *dataplane.Config) (findings []Finding) {
	if c.Role != dataplane.Leaf {
		return nil
	}
	slow, drain := slowestQueue(c.Ports)
	if slow == nil {
		return nil
	}
	schemes := []string{c.Scheme}
	for i := range c.Classes {
		schemes = append(schemes, c.Classes[i].Scheme)
	}
	slices.Sort(schemes)
	schemes = slices.Compact(schemes)
	return append(checkFlowlets(c, schemes, slow, drain), checkInactive(c, schemes, slow, drain)...)
}

// checkFlowlets warns of a flowlet gap that is shorter than a queue of an uplink.
func checkFlowlets(c *dataplane.Config, schemes []string, slow *dataplane.PortConfig, drain time.Duration) (findings []Finding) {
	byGap := make(map[time.Duration][]string)
	for _, s := range schemes {
		scheme := balance.Find(s)
		if scheme == nil || scheme.Gap == nil {
			continue
		}
		gap, key := scheme.Gap(&c.Congestion)
		if c.Auto.FlowletGap && key == "flowlet_gap" {
			continue // it will be above that
		}
		if gap < drain {
			byGap[gap] = append(byGap[gap], s)
		}
	}
	e := &slow.Egress
	for _, key := range []struct {
		name string
		gap  time.Duration
	}{{"flowlet_gap", c.Congestion.FlowletGap}, {"flow_gap", c.Congestion.FlowGap}} {
		schemes, ok := byGap[key.gap]
		if !ok {
			continue
		}
		delete(byGap, key.gap)
		fix := fmt.Sprintf("set congestion.%s above %v on all leaves and spines", key.name, drain)
		if short := shorter(slow, key.gap); short != "" {
			fix += ", or " + short
		}
		findings = append(findings, Finding{
			Fix: fix,
			Problem: fmt.Sprintf("a full queue of uplink %s (%v at %v) takes %v, and under %s a flow may move after a pause of %v: it may overtake its own packets, and many flows move before the metrics show the first",
				slow.Name, units.Size(e.QueueBytes), units.Rate(e.Rate), drain, strings.Join(schemes, " and "), key.gap),
		})
	}
	return findings
}

// checkInactive warns of a θ_inactive that is shorter than a queue of an uplink.
func checkInactive(c *dataplane.Config, schemes []string, slow *dataplane.PortConfig, drain time.Duration) []Finding {
	inactive := time.Duration(0)
	schemes = slices.DeleteFunc(slices.Clone(schemes), func(name string) bool {
		s := balance.Find(name)
		if s == nil || s.Section == nil {
			return true
		}
		p, ok := c.Sections[s.Section.Name].(balance.Pauser)
		if ok {
			inactive, _ = p.Pause()
		}
		return !ok
	})
	if len(schemes) == 0 || inactive >= drain {
		return nil
	}
	var fixes []string
	if drain <= overlay.MaxInactive {
		fixes = append(fixes, fmt.Sprintf("set conweave.inactive to %v or more on all leaves", drain))
	}
	if short := shorter(slow, inactive); short != "" {
		fixes = append(fixes, "set "+short)
	}
	if fixes == nil {
		fixes = []string{fmt.Sprintf("raise %s's rate, or lower its queue", slow.Name)}
	}
	return []Finding{{
		Fix: strings.Join(fixes, ", or "),
		Problem: fmt.Sprintf("a full queue of uplink %s (%v at %v) takes %v, and under %s a pause of %v ends an epoch: frames of it that still wait there may be overtaken",
			slow.Name, units.Size(slow.Egress.QueueBytes), units.Rate(slow.Egress.Rate), drain, strings.Join(schemes, " and "), inactive),
	}}
}

// shorter advises on a queue that drains within a time; "": none is worth it.
func shorter(p *dataplane.PortConfig, within time.Duration) string {
	fits := uint64(float64(p.Egress.Rate) / 8 * within.Seconds())
	if fits < leastQueue {
		return ""
	}
	return fmt.Sprintf("%s's queue to at most %d bytes", p.Name, fits)
}

// slowestQueue finds the shaped uplink whose full queue takes longest; nil: none
// is shaped.
func slowestQueue(ports []dataplane.PortConfig) (slowest *dataplane.PortConfig, drain time.Duration) {
	for i := range ports {
		p := &ports[i]
		if p.Kind != dataplane.Uplink || p.Egress.Rate == 0 {
			continue
		}
		seconds := float64(p.Egress.QueueBytes) * 8 / float64(p.Egress.Rate)
		d := time.Duration(min(math.Ceil(seconds*1e6)*1e3, math.MaxInt64/2)) // whole µs
		if d > drain {
			slowest, drain = p, d
		}
	}
	return slowest, drain
}
