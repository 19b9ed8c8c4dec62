package dataplane

import (
	"time"

	"github.com/loomfabric/loom/internal/mono"
)

// origin makes mono.Time small numbers and never 0 at run time.
var origin = time.Now().Add(-time.Second)

// now reads the monotonic clock: once a round of a worker, never per packet.
func now() mono.Time { return mono.Time(time.Since(origin)) }
