package dataplane

import (
	"time"

	"github.com/loomfabric/loom/internal/mono"
)

// origin makes mono.Time small numbers and never 0 at run time.
var origin = time.Now().Add(-time.Second)

// continueClock has now go on with the clock of another process, whose mono.Time was 0
// when CLOCK_MONOTONIC stood at zero, ns. It is called before anything has read the clock.
func continueClock(zero int64) {
	if o := time.Now().Add(-time.Duration(monotonic() - zero)); o.Sub(origin).Abs() > time.Millisecond {
		origin = o // in the process itself, as in tests, there is nothing to go on with
	}
}

// now reads the monotonic clock: once a round of a worker, never per packet.
func now() mono.Time { return mono.Time(time.Since(origin)) }
