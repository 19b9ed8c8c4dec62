package congestion

import (
	"math"
	"sync/atomic"

	"github.com/loomfabric/loom/internal/mono"
)

// Meter is the load of a link that several workers send on. Each worker meters its
// frames with a [DRE] of its own and publishes the register; the link's register
// is the sum. CONGA §3.2 has a single register, which every worker would have to
// write for every frame.
//
// A publication carries its time, and readers apply the decay since then. A worker
// that sleeps publishes nothing, and its share of the sum decays as its own DRE
// does. Time counts periods T_dre; a reading is off by the decay of one period at
// most.
//
// The workers of a node share it. Each worker writes its own word; all may read.
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

// NewMeter returns an idle meter for a link that the given number of workers
// share. p must be valid.
func NewMeter(workers int, p *Params) *Meter {
	return &Meter{filter: newFilter(p), slots: make([]meterSlot, workers)}
}

// periodOf returns the number of the period that contains now, modulo 2^32.
func (m *Meter) periodOf(now mono.Time) uint32 {
	// Division rounds towards zero, and the period at zero would be twice as
	// long. Moving the clock's origin far into the past avoids that.
	return uint32((uint64(now) ^ 1<<63) / m.period)
}

// Publish shares x, the register of a worker's DRE at now, with the other workers.
// Call it once a burst.
func (m *Meter) Publish(worker int, now mono.Time, x float64) {
	m.slots[worker].word.Store(uint64(math.Float32bits(float32(x)))<<32 | uint64(m.periodOf(now)))
}

// X returns the link's register: the sum of the workers' registers at now.
func (m *Meter) X(now mono.Time) float64 {
	period := m.periodOf(now)
	sum := 0.0
	for i := range m.slots {
		word := m.slots[i].word.Load()
		if word>>32 == 0 {
			continue
		}
		// A publication from the future comes from a worker that read its clock
		// a moment later, or from before a jump of the clock. In both cases it is
		// taken for as old as it lies ahead.
		ago := int64(int32(period - uint32(word)))
		x := m.decayed(float64(math.Float32frombits(uint32(word>>32))), uint64(max(ago, -ago)))
		if x == 0 {
			// The register has decayed to nothing. Clear the word, or it would
			// come back when the period wraps. A newer publication stays.
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
