package congestion

import (
	"math"
	"time"
)

// maxQ bounds Q: a metric is a uint8.
const maxQ = 8

// decaySteps is the number of precomputed powers of (1-α). A link that was idle for
// longer costs one math.Pow on its next frame.
const decaySteps = 64

// filter holds the decay and the scale of the register X of CONGA §3.2, which all
// link meters share. It is read-only once made.
type filter struct {
	period uint64  // T_dre, ns
	tau    float64 // seconds
	keep   float64 // 1-α
	levels float64 // 2^Q
	decay  [decaySteps]float64
}

// newFilter returns the filter of valid parameters.
func newFilter(p *Params) filter {
	period := math.Round(p.Alpha * float64(p.Tau))
	f := filter{
		period: uint64(period),
		// τ follows from the rounded period; otherwise X would be off by the
		// rounding of T_dre to a nanosecond.
		tau:    period / p.Alpha / float64(time.Second),
		keep:   1 - p.Alpha,
		levels: float64(uint(1) << p.Q),
	}
	for k := range f.decay {
		f.decay[k] = math.Pow(f.keep, float64(k))
	}
	return f
}

// decayed returns x after a number of periods.
func (f *filter) decayed(x float64, periods uint64) float64 {
	if periods < decaySteps {
		x *= f.decay[periods]
	} else {
		x *= math.Pow(f.keep, float64(periods))
	}
	if x < 1e-9 {
		return 0 // keeps an idle link out of denormal arithmetic
	}
	return x
}

// quantise maps X of a link of the given rate to 2^Q levels, saturating.
func (f *filter) quantise(x float64, rate uint64) uint8 {
	return uint8(min(f.share(x, rate)*f.levels, f.levels-1))
}

// share returns X/(C·τ), 0 for a link of unknown rate.
func (f *filter) share(x float64, rate uint64) float64 {
	if rate == 0 {
		return 0
	}
	return x * 8 / (float64(rate) * f.tau)
}
