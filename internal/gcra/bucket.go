// Package gcra is a token bucket as a virtual clock: the Generic Cell Rate Algorithm
// (ITU-T I.371, annex A). It must not know what is charged.
package gcra

import (
	"github.com/loomfabric/loom/internal/mono"
)

// Bucket limits a rate, and lets bursts pass. Each unit that is charged takes a time, and
// the bucket is ready as long as what was charged is over within its depth. The zero
// Bucket is always ready. It belongs to one worker.
type Bucket struct {
	per   uint64    // picoseconds a unit; 0: no limit
	depth mono.Time // burst
	tat   mono.Time // when all that was charged is over
	rem   uint64    // picoseconds not yet in tat
}

// New returns a bucket whose units take per picoseconds each, at least one, and that is
// ready until depth units are ahead.
func New(per, depth uint64) Bucket {
	per = max(1, per)
	const most = 1 << 61 // nanoseconds: sums with a clock's time do not wrap
	return Bucket{per: per, depth: mono.Time(min(float64(depth)*float64(per)/1000, most))}
}

// Limits reports whether the bucket ever is not ready.
func (b *Bucket) Limits() bool { return b.per != 0 }

// Ready reports whether something may be charged at now.
func (b *Bucket) Ready(now mono.Time) bool { return b.per == 0 || b.tat-now <= b.depth }

// When returns the first time from now on at which Ready is true.
func (b *Bucket) When(now mono.Time) mono.Time {
	if b.Ready(now) {
		return now
	}
	return b.tat - b.depth
}

// Charge takes n units, whether the bucket is ready or not.
func (b *Bucket) Charge(now mono.Time, n uint64) {
	if b.per == 0 {
		return
	}
	ps := n*b.per + b.rem
	b.tat, b.rem = max(b.tat, now)+mono.Time(ps/1000), ps%1000
}

// Ahead returns the time from now until all that was charged is over; it is negative if
// it was over earlier.
func (b *Bucket) Ahead(now mono.Time) mono.Time { return b.tat - now }

// Take charges one unit if the bucket is ready, and reports whether it was. Where every
// unit is taken so, nothing lies further ahead than a burst and one unit more: if it does,
// the clock was set back, and the bucket begins anew.
func (b *Bucket) Take(now mono.Time) bool {
	if b.Ahead(now) > b.depth+mono.Time(b.per/1000)+1 {
		b.tat = now
	}
	if !b.Ready(now) {
		return false
	}
	b.Charge(now, 1)
	return true
}
