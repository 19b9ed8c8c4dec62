package sim

import (
	"fmt"

	"github.com/loomfabric/loom/sim/engine"
)

// probe looks at something from time to time.
type probe interface {
	// Sample is called once every interval.
	Sample(now engine.Time)
}

// sampler calls probes at an interval, all at the same time.
type sampler struct {
	engine   *engine.Engine
	id       engine.ID
	interval engine.Time
	until    engine.Time
	probes   []probe
}

// newSampler returns a sampler that first samples at from, then every interval,
// and not after until.
func newSampler(e *engine.Engine, from, interval, until engine.Time) (*sampler, error) {
	if interval <= 0 {
		return nil, fmt.Errorf("sampling every %v never gets on: give an interval above 0", interval)
	}
	if from < e.Now() {
		return nil, fmt.Errorf("sampling cannot begin at %v: it is %v", from, e.Now())
	}
	s := &sampler{engine: e, interval: interval, until: until}
	s.id = e.Register(s)
	if from <= until {
		e.At(from, s.id, 0)
	}
	return s, nil
}

// register adds a probe, which is called after those that were there before.
func (s *sampler) register(p probe) { s.probes = append(s.probes, p) }

// Handle is the engine's to call.
func (s *sampler) Handle(now engine.Time, _ uint64) {
	for _, p := range s.probes {
		p.Sample(now)
	}
	if s.interval <= s.until-now {
		s.engine.At(now+s.interval, s.id, 0)
	}
}
