package sim

import (
	"testing"
	"time"

	"github.com/loomfabric/loom/config/vocab"
	"github.com/loomfabric/loom/sim/engine"
)

// TestSlowerThanIdle: beating the idle network is an error beyond rounding.
func TestSlowerThanIdle(t *testing.T) {
	const usec = engine.Microsecond
	for _, c := range []struct {
		took, idle engine.Time
		wrong      bool
	}{
		{20 * usec, 10 * usec, false},
		{10 * usec, 10 * usec, false},
		{10*usec - engine.Nanosecond, 10 * usec, false},
		{10*usec - engine.Nanosecond - 1, 10 * usec, true},
		{engine.Second - usec, engine.Second, false},
		{engine.Second - 2*usec, engine.Second, true},
		{usec, 0, true},
		{5 * usec, 10 * usec, true},
	} {
		if err := slowerThanIdle(c.took, c.idle); (err != nil) != c.wrong {
			t.Errorf("%v instead of %v: %v", c.took, c.idle, err)
		}
	}
}

// TestSeveralWorkloads: each has completion times of its own, which add up, and
// the uplinks' shares are told apart from one's start to the next one's.
func TestSeveralWorkloads(t *testing.T) {
	s := small()
	w := s.Workloads[0]
	s.Workloads = []vocab.Workload{w, w}
	s.Workloads[0].Name, s.Workloads[1].Name = "first", "second"
	s.Workloads[1].Start = time.Duration(s.Warmup + s.Duration/2)
	res := must(t, s)
	flows := 0
	for _, w := range res.Workloads {
		if len(w.FCT) == 0 || w.FCT[0].Class != "all" || w.FCT[0].Flows != w.Flows {
			t.Errorf("%s: %d flows, completion times %+v", w.Name, w.Flows, w.FCT)
			continue
		}
		flows += w.FCT[0].Flows
	}
	if flows != res.Flows {
		t.Errorf("%d flows in all workloads, want %d", flows, res.Flows)
	}
	if len(res.Phases) != 2*len(res.Uplinks) {
		t.Fatalf("%d shares in two phases of %d uplinks", len(res.Phases), len(res.Uplinks))
	}
	for i, u := range res.Uplinks {
		a, b := res.Phases[i], res.Phases[i+len(res.Uplinks)]
		if a.Bytes == 0 || b.Bytes == 0 || a.Bytes+b.Bytes != u.Bytes || b.Link != u.Link+" from "+time.Duration(s.Workloads[1].Start).String() {
			t.Errorf("%+v and %+v of %+v", a, b, u)
		}
	}
	if one := must(t, small()); one.Workloads[0].FCT != nil || one.Phases != nil {
		t.Errorf("a single workload has %d phases and completion times %v", len(one.Phases), one.Workloads[0].FCT)
	}
}
