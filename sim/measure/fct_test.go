package measure

import (
	"math"
	"strings"
	"testing"

	"github.com/loomfabric/loom/sim/engine"
)

const us = engine.Microsecond

// congaClasses are the classes of CONGA §5.2.1.
func congaClasses() []Class {
	return []Class{{"small", 0, 100_000}, {"medium", 100_000, 10_000_001}, {"large", 10_000_001, 0}}
}

func summary(t *testing.T, f *FCT, class string) FCTSummary {
	t.Helper()
	for _, s := range f.Summary() {
		if s.Class == class {
			return s
		}
	}
	t.Fatalf("there is no class %q", class)
	return FCTSummary{}
}

// TestFCT does four flows by hand.
func TestFCT(t *testing.T) {
	f := NewFCT(congaClasses())
	f.Add(1000, 5*us, 15*us, 10*us)                 // took 10, slowdown 1
	f.Add(99_999, 0, 60*us, 20*us)                  // 60, 3
	f.Add(100_000, 0, 300*us, 100*us)               // 300, 3
	f.Add(10_000_001, 100*us, 20_100*us, 10_000*us) // 20000, 2
	if err := f.Err(); err != nil {
		t.Error(err)
	}
	all := summary(t, f, "all")
	if all.Flows != 4 {
		t.Errorf("all: %+v", all)
	}
	for name, c := range map[string][2]float64{
		"mean": {all.FCTMean, 20370e-6 / 4}, "p50": {all.FCT50, 60e-6}, "p99": {all.FCT99, 20000e-6},
		"normalised": {all.Normalised, 20370.0 / 10130}, "slowdown": {all.SlowMean, 9.0 / 4},
		"p50 of slowdowns": {all.Slow50, 2}, "p99.9 of slowdowns": {all.Slow999, 3},
	} {
		if !near(c[0], c[1], 1e-9) {
			t.Errorf("%s is %g, want %g", name, c[0], c[1])
		}
	}
	small, medium, large := summary(t, f, "small"), summary(t, f, "medium"), summary(t, f, "large")
	if small.Flows != 2 || medium.Flows != 1 || large.Flows != 1 {
		t.Errorf("classes: %+v, %+v, %+v", small, medium, large)
	}
	if !near(small.Normalised, 70.0/30, 1e-9) {
		t.Errorf("small %+v", small)
	}
}

// TestClassEdges: CONGA §5.2.1 calls flows "< 100KB" small and "> 10MB" large.
func TestClassEdges(t *testing.T) {
	for bytes, want := range map[uint64]string{0: "small", 99_999: "small", 100_000: "medium", 10_000_000: "medium", 10_000_001: "large", 1 << 60: "large"} {
		var got []string
		for _, c := range congaClasses() {
			if (&fctClass{Class: c}).holds(bytes) {
				got = append(got, c.Name)
			}
		}
		if len(got) != 1 || got[0] != want {
			t.Errorf("%d bytes are %v, want %s", bytes, got, want)
		}
	}
}

// TestUnfinishedAges: an age counts as a lower bound, and never as a flow that
// beat the idle network.
func TestUnfinishedAges(t *testing.T) {
	f := NewFCT(nil)
	f.Unfinished(1000, 0, 40*us, 10*us)
	f.Unfinished(1000, 38*us, 40*us, 10*us)
	f.Unfinished(1000, 38*us, 40*us, 0) // no idle time: no age to count
	s := summary(t, f, "all")
	if s.Flows != 2 || !near(s.FCTMean, 25e-6, 1e-9) || s.SlowMean != 2.5 || f.Err() != nil {
		t.Errorf("%+v, %v", s, f.Err())
	}
}

// TestSlowdownGuard: less than 1 is an error beyond rounding.
func TestSlowdownGuard(t *testing.T) {
	for _, c := range []struct {
		took, idle engine.Time
		want       float64
		wrong      bool
	}{
		{20 * us, 10 * us, 2, false},
		{10 * us, 10 * us, 1, false},
		{10*us - engine.Nanosecond, 10 * us, 1, false},
		{10*us - engine.Nanosecond - 1, 10 * us, 1, true},
		{engine.Second - us, engine.Second, 1, false},
		{engine.Second - 2*us, engine.Second, 1, true},
		{us, 0, 1, true},
		{5 * us, 10 * us, 0.5, true},
	} {
		got, err := slowdown(c.took, c.idle)
		if (err != nil) != c.wrong || math.Abs(got-c.want) > 1e-3 {
			t.Errorf("%v instead of %v: %g, %v", c.took, c.idle, got, err)
		}
	}
	f := NewFCT(nil)
	f.Add(77, 0, 5*us, 10*us)
	f.Add(78, 0, 6*us, 10*us)
	err := f.Err()
	if err == nil || !strings.Contains(err.Error(), "2 flows were faster") || !strings.Contains(err.Error(), "77 bytes: it took 5µs, but 10µs") {
		t.Errorf("error %v", err)
	}
	if s := summary(t, f, "all"); s.SlowMean != 1 || s.Flows != 2 {
		t.Errorf("%+v", s)
	}
}
