package balance

import (
	"github.com/loomfabric/loom/congestion"
	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/internal/units"
)

// waits are how long a packet waits on its way to a leaf, by uplink: for what stands in
// the uplink's own queue, and for what lies behind it, by the leaf's feedback. Both are
// times, so links of different rates compare. Times are picoseconds.
type waits struct {
	weight   uint64           // what a metric at its top stands for at most, bytes
	top      uint64           // the largest metric
	unit     [MaxPaths]uint64 // what one step of a metric stands for, bytes
	room     [MaxPaths]uint32 // what the uplink's queue can hold, bytes
	byteTime [MaxPaths]uint32 // how long a byte takes on the uplink's link
	near     [MaxPaths]uint64 // for the uplink's own queue
	far      [MaxPaths]uint64 // for what lies behind it on the way to leaf
	leaf     int              // -1: none
}

// metricWeight is what a path's metric counts for at its top, if nothing else is said: as
// much as so many bytes in the uplink's own queue, and as half of what that can hold. What
// it is matters little, see docs/ordered-spray.md.
const metricWeight = 128 << 10

// newWaits returns waits in which a metric at its top stands for so many bytes.
func newWaits(weight units.Size, p *congestion.Params) waits {
	w := waits{weight: uint64(weight), top: uint64(p.TopMetric()), leaf: -1}
	for u := range w.byteTime {
		w.byteTime[u] = ByteTime(0)
	}
	w.measure()
	return w
}

// measure finds out what steps of metrics stand for. A queue that holds little must not run
// over because another path is full further on.
func (w *waits) measure() {
	for u := range w.unit {
		top := w.weight
		if half := uint64(w.room[u]) / 2; half > 0 {
			top = min(top, half)
		}
		w.unit[u] = top / w.top
	}
}

// look takes the queues as they are now.
func (w *waits) look(now mono.Time, v *View) {
	v.look(now)
	w.leaf = -1
	if v.ByteTime != nil {
		w.byteTime = *v.ByteTime
	}
	if v.Room != nil && w.room != *v.Room {
		w.room = *v.Room
		w.measure()
	}
	for u := range w.near {
		w.near[u] = uint64(v.Queue[u]) * uint64(w.byteTime[u])
	}
}

// face has cost speak of the ways to a leaf.
func (w *waits) face(now mono.Time, v *View, leaf uint16) {
	if int(leaf) == w.leaf {
		return
	}
	var m [MaxPaths]uint8
	v.remote(leaf, now, &m)
	for u := range w.far {
		w.far[u] = uint64(m[u]) * w.unit[u] * uint64(w.byteTime[u])
	}
	w.leaf = int(leaf)
}

// cost returns how long a packet of a length in bytes takes by an uplink, but for what
// all ways to the leaf have in common.
func (w *waits) cost(u uint8, length uint64) uint64 {
	u %= MaxPaths
	return w.near[u] + w.far[u] + length*uint64(w.byteTime[u])
}

// add puts a packet into an uplink's queue.
func (w *waits) add(u uint8, length uint64) {
	w.near[u%MaxPaths] += length * uint64(w.byteTime[u%MaxPaths])
}
