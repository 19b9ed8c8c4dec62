package rdma

import (
	"github.com/loomfabric/loom/sim/engine"
)

// reactionPoint is DCQCN's sender (DCQCN §3.1): the rate of one queue pair. It
// needs no timers: all that they would do follows from the times of the CNPs,
// and is caught up with whenever somebody wants the rate or a CNP comes.
type reactionPoint struct {
	c *Rates

	line, floor     float64 // bit/s
	additive, hyper float64
	rate, target    float64 // R_C and R_T
	alpha           float64

	cut      bool        // at least once
	slot     engine.Time // when alpha's slot began
	marked   bool        // a CNP came in it
	cutSlots engine.Time // a multiple of CutInterval after this the rate may be cut; Never: no CNP yet
	cutAt    engine.Time // when it will be; Never: no CNP since
	riseAt   engine.Time // of the increase timer

	byTimer, byBytes uint32 // increases since the cut: T and BC
	bytes            uint64 // since the last increase by them, or the cut
	cuts             uint64
}

// reset starts at the line rate: "there is no slow start" (DCQCN §3.1).
func (r *reactionPoint) reset(c *Rates, line uint64) {
	*r = reactionPoint{
		c: c, line: float64(line), floor: float64(min(c.Min, line)),
		additive: float64(c.Additive), hyper: float64(c.Hyper),
		rate: float64(line), target: float64(line), alpha: 1,
		cutSlots: engine.Never, cutAt: engine.Never, riseAt: engine.Never,
	}
	if c.Additive == 0 {
		r.additive = float64(line) / 2500 // 40 Mbit/s at 100 Gbit/s
	}
	if c.Hyper == 0 {
		r.hyper = float64(line) / 1000 // 100 Mbit/s at 100 Gbit/s
	}
}

// notify handles a CNP.
func (r *reactionPoint) notify(now engine.Time) {
	r.catchUp(now)
	if r.c.CutInterval == 0 {
		r.reduce(now)
		r.alpha = (1-r.c.Gain)*r.alpha + r.c.Gain
		r.slot, r.marked = now, false
		return
	}
	if r.cutSlots == engine.Never {
		// The slots begin with the first CNP. What comes at the same time as the
		// end of one of alpha's comes after it: hence the nanosecond.
		r.slot, r.cutSlots = now, now+engine.Nanosecond
		r.cutAt = r.cutSlots + r.c.CutInterval
		return
	}
	r.marked = true
	if r.cutAt == engine.Never {
		done := max(0, now-r.cutSlots) / r.c.CutInterval
		r.cutAt = r.cutSlots + (done+1)*r.c.CutInterval
	}
}

// catchUp lets everything happen that is due by now.
func (r *reactionPoint) catchUp(now engine.Time) {
	for {
		switch {
		case r.riseAt <= now && r.riseAt <= r.cutAt:
			n := engine.Time(1)
			if r.rate == r.line && r.target == r.line {
				n += (min(now, r.cutAt) - r.riseAt) / r.c.IncreaseInterval // nothing to rise to
			} else {
				r.increase()
			}
			r.byTimer += uint32(min(n, 1<<20-engine.Time(r.byTimer)))
			r.riseAt += n * r.c.IncreaseInterval
		case r.cutAt <= now:
			at := r.cutAt
			r.average(at)
			r.reduce(at)
			r.cutAt = engine.Never
		default:
			r.average(now)
			return
		}
	}
}

// average ends all of alpha's slots that are over by now: the first one may
// have had a CNP, the others had none.
func (r *reactionPoint) average(now engine.Time) {
	if r.cutSlots == engine.Never && !r.cut {
		return // alpha is 1 until the first CNP
	}
	n := (now - r.slot) / r.c.AlphaInterval
	if n <= 0 {
		return
	}
	r.slot += n * r.c.AlphaInterval
	if r.marked {
		r.alpha = (1-r.c.Gain)*r.alpha + r.c.Gain
		r.marked = false
		n--
	}
	for f := 1 - r.c.Gain; n > 0; n >>= 1 { // alpha *= f^n
		if n&1 != 0 {
			r.alpha *= f
		}
		f *= f
	}
}

// reduce cuts the rate (DCQCN §3.1, equation 1) and begins anew with what
// raises it.
func (r *reactionPoint) reduce(at engine.Time) {
	if r.c.Clamp || r.byTimer > 0 {
		r.target = r.rate
	}
	r.rate = max(r.floor, r.rate*(1-r.alpha/2))
	r.byTimer, r.byBytes, r.bytes = 0, 0, 0
	r.riseAt = at + r.c.IncreaseInterval
	r.cut = true
	r.cuts++
}

// increase is one step up (DCQCN §3.1, equations 3 and 4): fast recovery, then
// additive, then hyper increase.
func (r *reactionPoint) increase() {
	least, most := r.byTimer, r.byTimer
	if r.c.IncreaseBytes != 0 {
		least, most = min(r.byTimer, r.byBytes), max(r.byTimer, r.byBytes)
	}
	switch {
	case most < r.c.FastRecovery:
	case least > r.c.FastRecovery:
		r.target = min(r.line, r.target+r.hyper)
	default:
		r.target = min(r.line, r.target+r.additive)
	}
	r.rate = (r.rate + r.target) / 2
	if r.target-r.rate < 1 { // halving never arrives, bits do
		r.rate = r.target
	}
}

// sent counts bytes of payload and headers for the byte counter.
func (r *reactionPoint) sent(bytes uint32) {
	if r.c.IncreaseBytes == 0 || !r.cut {
		return
	}
	for r.bytes += uint64(bytes); r.bytes >= r.c.IncreaseBytes; r.bytes -= r.c.IncreaseBytes {
		r.increase()
		r.byBytes++
	}
}
