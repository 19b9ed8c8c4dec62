package congestion

import (
	"time"

	"github.com/loomfabric/loom/internal/mono"
)

// word is one entry of a congestion table. It fits a machine word, so that workers
// write and read it as a whole:
//
//	63           16 15    9 8       7      0
//	 time(48)       0       known    metric(8)
//
// Time counts ticks of 1.024 µs and wraps after nine years. The zero word is
// an empty entry.
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

// age returns the distance of the entry's time from now, to a tick. An entry from
// the future counts as that old, too. A few ticks come from two workers that read
// their clocks at different moments. After a jump of the clock an entry must age,
// and not stand until time has caught up with it.
func (w word) age(now mono.Time) time.Duration {
	ticks := int64(word(now>>tickShift)<<wordTimeShift-w&wordTimeMask) >> wordTimeShift
	return time.Duration(max(ticks, -ticks)) << tickShift
}
