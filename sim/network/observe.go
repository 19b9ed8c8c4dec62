package network

import (
	"math"

	"github.com/loomfabric/loom/sim/engine"
)

// Occupancy is how long a port's queues had which length, all of them together:
// a histogram over time.
type Occupancy struct {
	width uint64
	time  []engine.Time // by length / width
	bytes uint64
	since engine.Time
	area  float64 // byte seconds
	peak  uint64
}

// Observe begins to observe how many bytes wait at the port, to a resolution of
// width bytes; lengths of buckets × width and above are one. Observing again
// begins anew.
func (p *Port) Observe(now engine.Time, width uint64, buckets int) *Occupancy {
	p.watch = &Occupancy{width: max(width, 1), time: make([]engine.Time, max(buckets, 0)+1), bytes: p.waits, since: now, peak: p.waits}
	return p.watch
}

func (o *Occupancy) change(now engine.Time, bytes uint64) {
	if d := now - o.since; d > 0 {
		o.time[min(o.bytes/o.width, uint64(len(o.time)-1))] += d
		o.area += float64(o.bytes) * d.Seconds()
		o.since = now
	}
	o.bytes = bytes
	o.peak = max(o.peak, bytes)
}

// Together returns what several ports' queues had up to now as if they had been one
// port's, one after the other. They have the same resolution.
func Together(now engine.Time, ports ...*Occupancy) *Occupancy {
	all := &Occupancy{width: ports[0].width, time: make([]engine.Time, len(ports[0].time)), since: now}
	for _, o := range ports {
		o.change(now, o.bytes)
		for i, t := range o.time {
			all.time[i] += t
		}
		all.area += o.area
		all.peak = max(all.peak, o.peak)
	}
	return all
}

// Mean returns the average length up to now, bytes.
func (o *Occupancy) Mean(now engine.Time) float64 {
	if total := o.Total(now); total > 0 {
		return o.area / total.Seconds()
	}
	return 0
}

// Peak returns the greatest length, bytes.
func (o *Occupancy) Peak() uint64 { return o.peak }

// Total returns for how long the port was observed.
func (o *Occupancy) Total(now engine.Time) engine.Time {
	o.change(now, o.bytes)
	sum := engine.Time(0)
	for _, t := range o.time {
		sum += t
	}
	return sum
}

// Quantile returns the length that was not exceeded for a share q of the time,
// rounded up to the resolution: math.MaxUint64 if that is beyond the last bucket.
func (o *Occupancy) Quantile(now engine.Time, q float64) uint64 {
	want := q * float64(o.Total(now))
	sum := 0.
	for i, t := range o.time[:len(o.time)-1] {
		if sum += float64(t); sum >= want {
			return uint64(i+1)*o.width - 1
		}
	}
	return math.MaxUint64
}
