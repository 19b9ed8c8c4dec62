package sim

import (
	"slices"
	"strings"
	"testing"

	"github.com/loomfabric/loom/sim/engine"
)

type probeFunc func(now engine.Time)

func (p probeFunc) Sample(now engine.Time) { p(now) }

func TestSampler(t *testing.T) {
	const usec = engine.Microsecond
	e := engine.New()
	s, err := newSampler(e, 7*usec, 10*usec, 40*usec)
	if err != nil {
		t.Fatal(err)
	}
	var first, second []engine.Time
	s.register(probeFunc(func(now engine.Time) {
		first = append(first, now)
		if len(second) != len(first)-1 {
			t.Error("probes were not called in the order of registration")
		}
	}))
	s.register(probeFunc(func(now engine.Time) { second = append(second, now) }))
	e.Run(engine.Never)
	if want := []engine.Time{7 * usec, 17 * usec, 27 * usec, 37 * usec}; !slices.Equal(first, want) || !slices.Equal(second, want) {
		t.Errorf("sampled at %v and %v", first, second)
	}
	e = engine.New()
	if s, err = newSampler(e, 0, 10*usec, 30*usec); err != nil {
		t.Fatal(err)
	}
	n := 0
	s.register(probeFunc(func(engine.Time) { n++ }))
	e.Run(engine.Never)
	if n != 4 || e.Pending() != 0 {
		t.Errorf("%d samples from 0 to 30 µs, both included, and %d events pending", n, e.Pending())
	}
	if _, err := newSampler(e, 0, 0, usec); err == nil || !strings.Contains(err.Error(), "interval above 0") {
		t.Errorf("no interval: %v", err)
	}
	if _, err := newSampler(e, -usec, usec, usec); err == nil || !strings.Contains(err.Error(), "cannot begin") {
		t.Errorf("in the past: %v", err)
	}
	if _, err := newSampler(e, 39*usec, usec, 38*usec); err != nil || e.Pending() != 0 {
		t.Errorf("an empty time: %v, %d events", err, e.Pending())
	}
}
