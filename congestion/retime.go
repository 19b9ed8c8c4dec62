package congestion

import (
	"time"

	"github.com/loomfabric/loom/internal/mono"
)

// SetGap changes T_fl, which must be positive, at now. Flowlets that are active by
// the new gap go on. With [AgeBit] SetGap visits the whole table, and each entry
// keeps its age in periods.
func (f *Flowlets) SetGap(now mono.Time, gap time.Duration) {
	if f.gap == 0 {
		f.limit = int64(gap)
		return
	}
	before := f.agePeriod(now)
	f.gap = uint64(gap)
	f.period = (uint64(now) ^ 1<<63) / f.gap
	f.start = f.period * f.gap
	shift := (f.period - before) << flowletStampShift
	for i, e := range f.entries {
		if e&flowletValid != 0 {
			f.entries[i] = e + shift
		}
	}
}
