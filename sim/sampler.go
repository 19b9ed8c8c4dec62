package sim

import (
	"time"

	"github.com/loomfabric/loom/sim/engine"
)

// sampler looks at things at an interval, all at the same time.
type sampler struct {
	run      *run
	id       engine.ID
	interval engine.Time
	looks    []func()
}

// every calls looks, in their order, at an interval from the beginning of the window
// to its end; with an interval of 0 never.
func (r *run) every(interval time.Duration, looks ...func()) {
	if interval == 0 {
		return
	}
	s := &sampler{run: r, interval: engine.Of(interval), looks: looks}
	s.id = r.engine.Register(s)
	r.engine.At(r.from, s.id, 0)
}

// Handle is the engine's to call.
func (s *sampler) Handle(now engine.Time, _ uint64) {
	for _, look := range s.looks {
		look()
	}
	if s.interval <= s.run.until-now {
		s.run.engine.At(now+s.interval, s.id, 0)
	}
}
