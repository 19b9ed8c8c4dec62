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
	samples  uint64
	stopped  bool
}

// NewSampler returns a sampler that first samples at from, then every interval,
// and not after until; engine.Never: until [Sampler.Stop].
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

// Stop ends sampling: the one event that is pending does nothing.
func (s *Sampler) Stop() { s.stopped = true }

// Samples returns how often probes were called.
func (s *Sampler) Samples() uint64 { return s.samples }

// Handle is the engine's to call.
func (s *Sampler) Handle(now engine.Time, _ uint64) {
	if s.stopped {
		return
	}
	s.samples++
	for _, p := range s.probes {
		p.Sample(now)
	}
	if s.interval <= s.until-now {
		s.engine.At(now+s.interval, s.id, 0)
	}
}

// Sample is one point of a [Series].
type Sample struct {
	Time  engine.Time
	Value float64
}

// Series is a value over time in bounded memory: when it is full, every other
// sample goes, and from then on only every other one is kept.
type Series struct {
	samples []Sample
	every   uint64 // one of so many is kept
	seen    uint64
}

// NewSeries returns an empty series that keeps at most limit samples, but 2 at
// least.
func NewSeries(limit int) *Series {
	return &Series{samples: make([]Sample, 0, max(limit, 2)), every: 1}
}

// Add adds a sample.
func (s *Series) Add(now engine.Time, v float64) {
	s.seen++
	if (s.seen-1)%s.every != 0 {
		return
	}
	if len(s.samples) == cap(s.samples) {
		n := 0
		for i := 0; i < len(s.samples); i += 2 {
			s.samples[n] = s.samples[i]
			n++
		}
		s.samples = s.samples[:n]
		s.every *= 2
		if (s.seen-1)%s.every != 0 {
			return
		}
	}
	s.samples = append(s.samples, Sample{now, v})
}

// Samples returns what is kept, evenly spread over all that was added; it is
// valid until the next Add.
func (s *Series) Samples() []Sample { return s.samples }

// Every returns that one of so many samples is kept.
func (s *Series) Every() uint64 { return s.every }
