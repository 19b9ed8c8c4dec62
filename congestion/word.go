package congestion

import (
	"time"

	"github.com/loomfabric/loom/internal/mono"
)

// word is one entry of a congestion table, in a machine word so that it can be
// written and read whole by workers that share it:
//
//	63           16 15    9 8       7      0
//	 time(48)       0       known    metric(8)
//
// Time counts ticks of 1.024 µs and wraps after nine years. The zero word is
// an entry of which nothing is known.
type word uint64

const (
	tickShift     = 10
	tick          = time.Duration(1 << tickShift)
	wordTimeShift = 16
	wordTimeMask  = word(1<<64 - 1<<wordTimeShift)
	wordKnown     = word(1 << 8)
)

func makeWord(metric uint8, now mono.Time) word {
	return word(now>>tickShift)<<wordTimeShift | wordKnown | word(metric)
}

func (w word) known() bool { return w&wordKnown != 0 }

func (w word) metric() uint8 { return uint8(w) }

// age returns how far the entry's time is from now, to a tick. An entry from
// the future is taken for as old as it lies ahead: a few ticks are two workers
// that read their clocks at different moments, and after a jump of the clock
// entries must age, not stand until time has caught up with them.
func (w word) age(now mono.Time) time.Duration {
	ticks := int64(word(now>>tickShift)<<wordTimeShift-w&wordTimeMask) >> wordTimeShift
	return time.Duration(max(ticks, -ticks)) << tickShift
}
