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
)

// leastQueue is the shortest queue that is worth advising, in bytes: some frames.
const leastQueue = 8 << 10

// CheckGaps warns of a flowlet gap that is shorter than an uplink's full queue
// takes to drain. By that much may the latencies of two paths differ, so that a
// flow that moves overtakes its own packets (CONGA §3.4); and nearly every flow
// can move before the metrics have seen the first one do so, which they then do
// together. Uplinks without a shaper have no queue of a known time. The classes
// and the scheme that c names count, so it is worth calling after a reload.
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
	byGap := make(map[time.Duration][]string)
	for _, s := range slices.Compact(schemes) {
		if c.Auto.FlowletGap && s != "conga-flow" {
			continue // it will be above that
		}
		if gap, ok := balance.Gap(s, &c.Congestion); ok && gap < drain {
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
		if fits := uint64(float64(e.Rate) / 8 * key.gap.Seconds()); fits >= leastQueue {
			fix += fmt.Sprintf(", or %s's queue to at most %d bytes", slow.Name, fits)
		}
		findings = append(findings, Finding{
			Fix: fix,
			Problem: fmt.Sprintf("a full queue of uplink %s (%v at %v) takes %v, and under %s a flow may move after a pause of %v: it may overtake its own packets, and many flows move before the metrics show the first",
				slow.Name, units.Size(e.QueueBytes), units.Rate(e.Rate), drain, strings.Join(schemes, " and "), key.gap),
		})
	}
	return findings
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
