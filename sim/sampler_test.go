package sim

import (
	"slices"
	"testing"
	"time"

	"github.com/loomfabric/loom/sim/engine"
)

func TestSampler(t *testing.T) {
	const usec = engine.Microsecond
	r := &run{engine: engine.New(), from: 7 * usec, until: 37 * usec}
	var first, second []engine.Time
	r.every(10*time.Microsecond, func() {
		first = append(first, r.engine.Now())
		if len(second) != len(first)-1 {
			t.Error("looks were not in their order")
		}
	}, func() { second = append(second, r.engine.Now()) })
	r.engine.Run(engine.Never)
	if want := []engine.Time{7 * usec, 17 * usec, 27 * usec, 37 * usec}; !slices.Equal(first, want) || !slices.Equal(second, want) {
		t.Errorf("sampled at %v and %v", first, second)
	}
	if r.every(0, func() {}); r.engine.Pending() != 0 {
		t.Errorf("%d events pending without an interval", r.engine.Pending())
	}
}
