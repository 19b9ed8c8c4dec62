package measure

import (
	"fmt"

	"github.com/loomfabric/loom/sim/engine"
)

// Probe looks at something from time to time.
type Probe interface {
	// Sample is called once every interval.
	Sample(now engine.Time)
}

// Sampler calls probes at an interval, all at the same time.
type Sampler struct {
	engine   *engine.Engine
	id       engine.ID
	interval engine.Time
	until    engine.Time
	probes   []Probe
}

// NewSampler returns a sampler that first samples at from, then every interval,
// and not after until.
func NewSampler(e *engine.Engine, from, interval, until engine.Time) (*Sampler, error) {
	if interval <= 0 {
		return nil, fmt.Errorf("sampling every %v never gets on: give an interval above 0", interval)
	}
	if from < e.Now() {
		return nil, fmt.Errorf("sampling cannot begin at %v: it is %v", from, e.Now())
	}
	s := &Sampler{engine: e, interval: interval, until: until}
	s.id = e.Register(s)
	if from <= until {
		e.At(from, s.id, 0)
	}
	return s, nil
}

// Register adds a probe, which is called after those that were there before.
func (s *Sampler) Register(p Probe) { s.probes = append(s.probes, p) }

// Handle is the engine's to call.
func (s *Sampler) Handle(now engine.Time, _ uint64) {
	for _, p := range s.probes {
		p.Sample(now)
	}
	if s.interval <= s.until-now {
		s.engine.At(now+s.interval, s.id, 0)
	}
}
