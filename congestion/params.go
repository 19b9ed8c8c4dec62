package congestion

import (
	"fmt"
	"time"

	"github.com/loomfabric/loom/internal/field"
)

// MaxTags is the number of LBTags, and so of a leaf's uplinks: a tag has 4 bits
// (CONGA §3.1).
const MaxTags = 16

// WireQ is the largest Q that fits the CE and FB_Metric fields of the fabric
// header, which have 3 bits (CONGA §3.1).
const WireQ = 3

// Params are the tunables of CONGA. [Datacenter] and [Lab] return complete
// sets to start from; the zero value is not valid.
type Params struct {
	// Q is the number of bits of a congestion metric, 1 to 3 (§3.2).
	//
	// The fabric's header has room for [WireQ], which config/vocab checks. The paper
	// found that 3 to 6 work.
	Q uint `yaml:"q"`
	// Tau is the time constant of the link meters (§3.2). It should exceed the
	// leaf-to-leaf round-trip time, so that it filters TCP's bursts (§3.6).
	Tau time.Duration `yaml:"tau"`
	// Alpha is the link meters' decay factor, between 0 and 1, both excluded: they
	// decay every alpha·tau.
	Alpha float64 `yaml:"alpha"`
	// FlowletGap is T_fl: a flow that pauses for longer may move (§3.4).
	FlowletGap time.Duration `yaml:"flowlet_gap"`
	// FlowGap is the flowlet gap of scheme conga-flow. It should exceed any path's
	// latency, so that nothing is ever reordered (§5).
	FlowGap time.Duration `yaml:"flow_gap"`
	// Ageing is how long a metric from another leaf stands without an update. Then
	// it loses one step for each ageing time that passes: with q 3 the worst metric,
	// 7, is 6 after one ageing time and 0 after seven. The paper asks for a gradual
	// fall and leaves its length open (§3.3).
	Ageing time.Duration `yaml:"ageing"`
	// Detector is the way to find pauses: timestamp (exactly) or agebit (as the
	// paper's hardware does, between one and two gaps).
	Detector Detector `yaml:"detector"`
	// Decision is the rule that compares paths (§3.5, §7).
	Decision `yaml:",inline"`
}

// Datacenter returns the defaults of CONGA §3.6, which the paper found for
// links of 10 and 40 Gb/s and round trips of some 100 µs.
func Datacenter() Params {
	return Params{
		Q:          3,
		Tau:        160 * time.Microsecond,
		Alpha:      0.1, // so T_dre = α·τ is 16 µs
		FlowletGap: 500 * time.Microsecond,
		FlowGap:    13 * time.Millisecond,
		Ageing:     10 * time.Millisecond,
	}
}

// Lab returns parameters for fabrics in software on shared cores, with links of some
// 100 Mb/s to 1 Gb/s. Two things set the scale there. First, τ must exceed the round
// trip (§3.6), which takes milliseconds when a worker waits for a core. Second, τ
// must be long enough for a metric's levels to be more than rounding: at 100 Mb/s,
// C·τ is 25 kB for 2 ms, and a level of Q=3 is two full frames, the least useful
// difference. So all times are [Datacenter]'s times 12.5, rounded, with the same
// proportions (T_fl ≈ 3τ, ageing ≈ 60τ).
func Lab() Params {
	p := Datacenter()
	p.Tau = 2 * time.Millisecond
	p.FlowletGap = 6 * time.Millisecond
	p.FlowGap = 150 * time.Millisecond
	p.Ageing = 125 * time.Millisecond
	return p
}

// Validate reports the first parameter that makes no sense. The error is a
// [field.Error].
func (p *Params) Validate() error {
	switch {
	case p.Q < 1 || p.Q > maxQ:
		return field.Errorf("q", fmt.Sprintf("use 1 to %d", maxQ), "metrics of %d bits (Q)", p.Q)
	case p.Tau <= 0 || p.Tau > time.Minute:
		return field.Errorf("tau", "use a time above 0 and up to a minute", "tau is %v", p.Tau)
	case !(p.Alpha > 0 && p.Alpha < 1):
		return field.Errorf("alpha", "use a number between 0 and 1, as in 0.1", "alpha is %v", p.Alpha)
	case float64(p.Tau)*p.Alpha < 1:
		return field.Errorf("tau", "use more of either", "tau %v times alpha %v is below a nanosecond", p.Tau, p.Alpha)
	case p.FlowletGap <= 0 || p.FlowletGap > time.Hour:
		return field.Errorf("flowlet_gap", "use a time above 0 and up to an hour", "flowlet_gap is %v", p.FlowletGap)
	case p.FlowGap < p.FlowletGap:
		return field.Errorf("flow_gap", "raise flow_gap, or lower flowlet_gap: a flow ends after a longer pause than a flowlet", "flow_gap %v is below flowlet_gap %v", p.FlowGap, p.FlowletGap)
	case p.FlowGap > time.Hour:
		return field.Errorf("flow_gap", "use at most an hour", "flow_gap is %v", p.FlowGap)
	case p.Ageing < 16*tick || p.Ageing > time.Hour:
		return field.Errorf("ageing", fmt.Sprintf("use %v to an hour", time.Duration(16*tick)), "ageing is %v", p.Ageing)
	case p.Detector > AgeBit:
		return field.Errorf("detector", fmt.Sprintf("use %v or %v", Timestamp, AgeBit), "flowlet detector %d does not exist", p.Detector)
	case p.Metric > SumMetric:
		return field.Errorf("path_metric", fmt.Sprintf("use %v or %v", MaxMetric, SumMetric), "path metric %d does not exist", p.Metric)
	}
	return nil
}

// TopMetric returns the largest metric, 2^Q-1.
func (p *Params) TopMetric() uint8 { return uint8(1<<p.Q - 1) }
