package congestion

import (
	"fmt"
	"time"
)

// MaxTags is how many uplinks a leaf can tell apart: an LBTag has 4 bits
// (CONGA §3.1).
const MaxTags = 16

// WireQ is the largest Q that fits the CE and FB_Metric fields of the fabric
// header, 3 bits each (CONGA §3.1).
const WireQ = 3

// Params are the tunables of CONGA. [Datacenter] and [Lab] return complete
// sets to start from; the zero value is not valid.
type Params struct {
	// Q is the number of bits of a congestion metric, 1 to 8 (§3.2). The paper
	// found 3 to 6 to work; what goes over the wire must not exceed [WireQ].
	Q uint
	// Tau is the time constant of the link meters (§3.2). It should exceed the
	// leaf-to-leaf round-trip time, so that it filters TCP's bursts (§3.6).
	Tau time.Duration
	// Alpha is the meters' decay factor, between 0 and 1, both excluded: they
	// decay every T_dre = Alpha·Tau.
	Alpha float64
	// FlowletGap is T_fl: a flow that pauses for longer may move (§3.4).
	FlowletGap time.Duration
	// FlowGap is the FlowletGap of CONGA-Flow: longer than any path's latency,
	// so that nothing is ever reordered (§5).
	FlowGap time.Duration
	// Ageing is how long a remote metric stands without an update before it
	// begins to fall (§3.3).
	Ageing time.Duration
	// Detector says how gaps are found.
	Detector Detector
	// Decision says how paths are compared (§3.5, §7).
	Decision Decision
}

// Datacenter returns the defaults of CONGA §3.6, which the paper found for
// links of 10 and 40 Gb/s and round trips of some 100 µs.
func Datacenter() Params {
	return Params{
		Q:          DefaultQ,
		Tau:        DefaultTau,
		Alpha:      DefaultAlpha,
		FlowletGap: 500 * time.Microsecond,
		FlowGap:    13 * time.Millisecond,
		Ageing:     10 * time.Millisecond,
	}
}

// Lab returns parameters for fabrics in software on shared cores, with links
// of some 100 Mb/s to 1 Gb/s. Two things set the scale there. A worker that has
// to wait for a core makes the round trip one of milliseconds, and τ must
// exceed it (§3.6). And τ must be long enough for a metric's levels to be more
// than rounding: at 100 Mb/s, C·τ is 25 kB for 2 ms, which makes a level of Q=3
// two full frames, as few as can be told apart. So all times are those of
// [Datacenter] times 12.5, with their proportions (T_fl ≈ 3τ, ageing ≈ 60τ)
// kept, rounded to what is easily remembered.
func Lab() Params {
	p := Datacenter()
	p.Tau = 2 * time.Millisecond
	p.FlowletGap = 6 * time.Millisecond
	p.FlowGap = 150 * time.Millisecond
	p.Ageing = 125 * time.Millisecond
	return p
}

// Validate reports the first parameter that makes no sense.
func (p *Params) Validate() error {
	switch {
	case p.Q < 1 || p.Q > maxQ:
		return fmt.Errorf("metrics of %d bits (Q): use 1 to %d", p.Q, maxQ)
	case p.Tau <= 0 || p.Tau > time.Minute:
		return fmt.Errorf("tau is %v: use a time above 0 and up to a minute", p.Tau)
	case !(p.Alpha > 0 && p.Alpha < 1):
		return fmt.Errorf("alpha is %v: use a number between 0 and 1", p.Alpha)
	case float64(p.Tau)*p.Alpha < 1:
		return fmt.Errorf("tau %v times alpha %v is below a nanosecond: use more of either", p.Tau, p.Alpha)
	case p.FlowletGap <= 0 || p.FlowletGap > time.Hour:
		return fmt.Errorf("flowlet gap is %v: use a time above 0 and up to an hour", p.FlowletGap)
	case p.FlowGap < p.FlowletGap || p.FlowGap > time.Hour:
		return fmt.Errorf("flow gap is %v: use the flowlet gap, %v, or more, up to an hour", p.FlowGap, p.FlowletGap)
	case p.Ageing < 16*tick || p.Ageing > time.Hour:
		return fmt.Errorf("ageing is %v: use %v to an hour", p.Ageing, 16*tick)
	case p.Detector > AgeBit:
		return fmt.Errorf("flowlet detector %d does not exist: use %v or %v", p.Detector, Timestamp, AgeBit)
	case p.Decision.Metric > SumMetric:
		return fmt.Errorf("path metric %d does not exist: use %v or %v", p.Decision.Metric, MaxMetric, SumMetric)
	}
	return nil
}

// DRE returns an idle link meter of these parameters.
func (p *Params) DRE() DRE { return NewDRE(p.Tau, p.Alpha, p.Q) }

// TopMetric returns the largest metric, 2^Q-1.
func (p *Params) TopMetric() uint8 { return uint8(1<<p.Q - 1) }
