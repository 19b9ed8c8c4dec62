package congestion

import (
	"math"
	"sync/atomic"

	"github.com/loomfabric/loom/internal/mono"
)

// Meter is the load of a link that several workers send on. Each worker meters
// what it sends with a [DRE] of its own and publishes the register; the link's
// is their sum (CONGA §3.2 has one register, which every worker would have to
// write for every frame).
//
// A publication carries its time, and whoever reads it applies the decay since
// then: a worker that sleeps, and so publishes nothing, fades from the sum as
// its own DRE would. Time counts periods T_dre; a reading is off by the decay of
// one period at most.
//
// It is shared: each worker writes its own word, anyone may read.
type Meter struct {
	filter
	slots []meterSlot
}

// meterSlot is one worker's publication: X as a float32, bytes, in the high
// half, and the period it was published in, wrapping, in the low half. It fills
// a cache line: a worker's publications do not disturb another's.
type meterSlot struct {
	word atomic.Uint64
	_    [56]byte
}

// NewMeter returns an idle meter for a link that that many workers share. p
// must be valid.
func NewMeter(workers int, p *Params) *Meter {
	return &Meter{filter: newFilter(p.Tau, p.Alpha, p.Q), slots: make([]meterSlot, workers)}
}

// periodOf returns the number of the period that now falls in, modulo 2^32.
func (m *Meter) periodOf(now mono.Time) uint32 {
	// The clock's origin is moved far into the past: division rounds towards
	// zero, and a period must not be twice as long there.
	return uint32((uint64(now) ^ 1<<63) / m.period)
}

// Publish makes x, the register of a worker's DRE at now, known to the others.
// It is meant to be called once a burst.
func (m *Meter) Publish(worker int, now mono.Time, x float64) {
	m.slots[worker].word.Store(uint64(math.Float32bits(float32(x)))<<32 | uint64(m.periodOf(now)))
}

// X returns the link's register: the sum of the workers', each decayed to now.
func (m *Meter) X(now mono.Time) float64 {
	period := m.periodOf(now)
	sum := 0.0
	for i := range m.slots {
		word := m.slots[i].word.Load()
		if word>>32 == 0 {
			continue
		}
		// A publication from the future is a worker that read its clock a
		// moment later, or is from before a jump of the clock. Taking it for as
		// old as it lies ahead is right for both.
		ago := int64(int32(period - uint32(word)))
		x := m.decayed(float64(math.Float32frombits(uint32(word>>32))), uint64(max(ago, -ago)))
		if x == 0 {
			// Nothing is left. Forget it, or it would come back when the
			// period wraps. A newer publication stays.
			m.slots[i].word.CompareAndSwap(word, 0)
		}
		sum += x
	}
	return sum
}

// Metric returns the link's congestion metric: X/(C·τ) quantised, for a rate in
// bits per second; 0 if the rate is unknown (0).
func (m *Meter) Metric(now mono.Time, rate uint64) uint8 { return m.quantise(m.X(now), rate) }

// Utilisation returns X/(C·τ), the share of the link's rate (bits per second) in
// use. It is above 1 in a burst that a queue took up, and 0 if the rate is unknown (0).
func (m *Meter) Utilisation(now mono.Time, rate uint64) float64 { return m.share(m.X(now), rate) }
