package measure

import (
	"testing"
)

const us = 1e-6

// congaClasses are the classes of CONGA §5.2.1.
func congaClasses() []Class { return SizeClasses(100_000, 10_000_000) }

func summary(t *testing.T, f *FCT, class string) ClassFCT {
	t.Helper()
	for _, s := range f.Summary() {
		if s.Class == class {
			return s
		}
	}
	t.Fatalf("there is no class %q", class)
	return ClassFCT{}
}

// TestFCT does four flows by hand.
func TestFCT(t *testing.T) {
	f := NewFCT(congaClasses())
	f.Add(1000, 10*us, 10*us)               // slowdown 1
	f.Add(99_999, 60*us, 20*us)             // 3
	f.Add(100_000, 300*us, 100*us)          // 3
	f.Add(10_000_001, 20_000*us, 10_000*us) // 2
	all := summary(t, f, "all")
	if all.Flows != 4 {
		t.Errorf("all: %+v", all)
	}
	for name, c := range map[string][2]float64{
		"mean": {all.MeanS, 20370e-6 / 4}, "p50": {all.P50S, 60e-6}, "p99": {all.P99S, 20000e-6},
		"normalised": {all.Norm, 20370.0 / 10130}, "slowdown": {all.SlowdownMean, 9.0 / 4},
		"p50 of slowdowns": {all.SlowdownP50, 2}, "p99.9 of slowdowns": {all.SlowdownP999, 3},
	} {
		if !near(c[0], c[1], 1e-9) {
			t.Errorf("%s is %g, want %g", name, c[0], c[1])
		}
	}
	small, medium, large := summary(t, f, "small"), summary(t, f, "medium"), summary(t, f, "large")
	if small.Flows != 2 || medium.Flows != 1 || large.Flows != 1 {
		t.Errorf("classes: %+v, %+v, %+v", small, medium, large)
	}
	if !near(small.Norm, 70.0/30, 1e-9) {
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
	f.Unfinished(1000, 40*us, 10*us)
	f.Unfinished(1000, 2*us, 10*us)
	if s := summary(t, f, "all"); s.Flows != 2 || !near(s.MeanS, 25e-6, 1e-9) || s.SlowdownMean != 2.5 {
		t.Errorf("%+v", s)
	}
}

// TestIdleUnknown: a flow whose idle time nobody knows has a completion time, and
// no slowdown.
func TestIdleUnknown(t *testing.T) {
	f := NewFCT(nil)
	f.Add(1000, 90*us, 0)
	if s := summary(t, f, "all"); s.Norm != 0 || s.SlowdownMean != 0 || !near(s.MeanS, 90e-6, 1e-9) {
		t.Errorf("%+v", s)
	}
	f.Unfinished(1000, 30*us, 10*us)
	if s := summary(t, f, "all"); s.Flows != 2 || !near(s.Norm, 3, 1e-9) || !near(s.SlowdownP99, 3, 1e-9) || !near(s.MeanS, 60e-6, 1e-9) {
		t.Errorf("%+v", s)
	}
	if got := NewFCT(congaClasses()).Summary(); got != nil {
		t.Errorf("no flows, and %+v", got)
	}
}
