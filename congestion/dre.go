package congestion

import "github.com/loomfabric/loom/internal/mono"

// DRE is the Discounting Rate Estimator of CONGA §3.2: a register X that grows
// by the bytes of each frame and shrinks by X ← X·(1-α) every T_dre, so that
// X ≈ R·τ on a link that carries R bytes per second, where τ = T_dre/α.
//
// There is no timer: each access first applies the decay of the whole periods that
// have passed. Time that runs backwards by less than a period counts as the same
// period. A larger step back re-anchors the periods without decay, so that a meter
// never freezes.
//
// A DRE is owned by one worker; it is not safe for concurrent use. [Params.DRE] makes
// it; the zero value is not useful.
type DRE struct {
	x      float64   // bytes
	anchor mono.Time // start of the current period
	filter
}

// DRE returns an idle link meter of these parameters, which must be valid.
func (p *Params) DRE() DRE { return DRE{filter: newFilter(p)} }

// Add accounts for a frame of the given length that is sent at now.
func (d *DRE) Add(now mono.Time, bytes uint32) {
	d.advance(now)
	d.x += float64(bytes)
}

// X returns the register, in bytes. Workers that share a link publish it to the
// link's [Meter].
func (d *DRE) X(now mono.Time) float64 {
	d.advance(now)
	return d.x
}

// Metric returns the congestion metric of a link of the given rate, in bits per
// second: X/(C·τ) in 2^Q levels. Level m stands for a utilisation from m/2^Q to
// (m+1)/2^Q; the last level has no upper end. A link of unknown rate (0) has
// metric 0.
func (d *DRE) Metric(now mono.Time, rate uint64) uint8 {
	return d.quantise(d.X(now), rate)
}

// advance applies the decay of the periods that ended up to now.
func (d *DRE) advance(now mono.Time) {
	if now < d.anchor {
		if uint64(d.anchor)-uint64(now) >= d.period {
			d.anchor = now
		}
		return
	}
	// Unsigned: the difference of two far apart times does not fit int64.
	if elapsed := uint64(now) - uint64(d.anchor); elapsed >= d.period {
		d.catchUp(elapsed / d.period)
	}
}

func (d *DRE) catchUp(periods uint64) {
	d.x = d.decayed(d.x, periods)
	d.anchor += mono.Time(periods * d.period)
}
