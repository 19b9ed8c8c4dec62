package control

import (
	"cmp"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/loomfabric/loom/config/vocab"
	"github.com/loomfabric/loom/dataplane"
	"github.com/loomfabric/loom/internal/units"
)

// leastQueue is the shortest queue that is worth advising, in bytes: some frames.
const leastQueue = 8 << 10

// CheckGaps warns of times that are shorter than an uplink's full queue takes to
// drain: by that much may the latencies of two paths differ. A flowlet gap that is
// shorter lets a flow that moves overtake its own packets (CONGA §3.4), and nearly
// every flow move before the metrics have seen the first one do so, which they then
// do together. A shorter pause that ends an epoch ends one whose packets are still
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
	for _, p := range vocab.Pauses(schemesOf(c), c.Congestion, c.Auto.FlowletGap, c.Sections) {
		if p.Value < drain {
			findings = append(findings, shortPause(&p, slow, drain))
		}
	}
	return findings
}

// schemesOf returns the schemes that a leaf uses, the classes' last.
func schemesOf(c *dataplane.Config) []string {
	schemes := []string{cmp.Or(c.Scheme, "ecmp")}
	for i := range c.Classes {
		schemes = append(schemes, c.Classes[i].Scheme)
	}
	return schemes
}

// shortPause says what a pause does that is shorter than an uplink's full queue.
func shortPause(p *vocab.Pause, slow *dataplane.PortConfig, drain time.Duration) Finding {
	var fixes []string
	does := fmt.Sprintf("a pause of %v ends an epoch: frames of it that still wait there may be overtaken", p.Value)
	switch {
	case p.Flowlet:
		does = fmt.Sprintf("a flow may move after a pause of %v: it may overtake its own packets, and many flows move before the metrics show the first", p.Value)
		fixes = append(fixes, fmt.Sprintf("set %s above %v on all leaves and spines", p.Key, drain))
	case drain <= p.Longest:
		fixes = append(fixes, fmt.Sprintf("set %s to %v or more on all leaves", p.Key, drain))
	}
	if short := shorter(slow, p.Value); short != "" {
		fixes = append(fixes, "set "+short)
	}
	if fixes == nil {
		fixes = []string{fmt.Sprintf("raise %s's rate, or lower its queue", slow.Name)}
	}
	return Finding{
		Place: p.Key,
		Fix:   strings.Join(fixes, ", or "),
		Problem: fmt.Sprintf("a full queue of uplink %s (%v at %v) takes %v, and under %s %s",
			slow.Name, units.Size(slow.Egress.QueueBytes), units.Rate(slow.Egress.Rate), drain, strings.Join(p.Schemes, " and "), does),
	}
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
