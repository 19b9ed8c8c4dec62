package reorder_test

import (
	"testing"
	"time"

	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/overlay"
	"github.com/loomfabric/loom/reorder"
)

// New times count for queues that are taken from now on.
func TestRetime(t *testing.T) {
	c := mustNew[int](t, func(p *reorder.Params) { *p = reorder.Lab(); p.Flows, p.Leaves = 64, 4 })
	was := c.Params()
	hold := func(now mono.Time, flow uint32) time.Duration {
		f := overlay.Fabric{Capable: true, Shim: true, Rerouted: true, Arg: 1}
		if v, _ := c.Arrive(now, 1, flow, &f, false, 0, 100, 0); v != reorder.Hold {
			t.Fatalf("flow %d: verdict %d", flow, v)
		}
		return c.Deadline().Sub(now)
	}
	const now = mono.Time(1e9)
	if d := hold(now, 1); d != was.ResumeDefault {
		t.Fatalf("held for %v, want %v", d, was.ResumeDefault)
	}
	const ms = time.Millisecond
	if err := c.Retime(now, &reorder.Times{ResumeExtra: ms, ResumeDefault: 2 * ms, MaxHold: 10 * ms}); err != nil {
		t.Fatal(err)
	}
	if d := hold(now, 2); d != 2*ms {
		t.Errorf("held for %v by the new times, want 2ms", d)
	}
	if got := c.Params(); got.ResumeExtra != ms || got.MaxHold != 10*ms || c.Grace() != mono.Time(ms) {
		t.Errorf("%+v", got)
	}
	flushed := 0
	for sent, ok := c.Expire(now.Add(was.ResumeDefault)); ok; sent, ok = c.Expire(now.Add(was.ResumeDefault)) {
		flushed += len(sent)
	}
	if flushed != 2 {
		t.Errorf("%d packets are let go, want 2", flushed)
	}
}

// Times that are left out stay, and make room for those that are given, whichever
// these are. What no queue can keep to changes nothing.
func TestRetimeFits(t *testing.T) {
	const ms = time.Millisecond
	lab := reorder.Lab() // 1 ms, 5 ms, 20 ms
	for _, tt := range []struct {
		name                  string
		times                 reorder.Times
		extra, deflt, longest time.Duration
		refused               bool
	}{
		{"none", reorder.Times{}, ms, 5 * ms, 20 * ms, false},
		{"of others", reorder.Times{Reply: ms, Inactive: 3 * ms, FlowletGap: ms}, ms, 5 * ms, 20 * ms, false},
		{"one", reorder.Times{ResumeExtra: 2 * ms}, 2 * ms, 5 * ms, 20 * ms, false},
		{"beyond the longest hold", reorder.Times{ResumeExtra: 25 * ms, ResumeDefault: 30 * ms}, 20 * ms, 20 * ms, 20 * ms, false},
		{"a longest hold below the others", reorder.Times{MaxHold: 3 * ms}, ms, 5 * ms, 5 * ms, false},
		{"all", reorder.Times{ResumeExtra: ms, ResumeDefault: 2 * ms, MaxHold: 6 * ms}, ms, 2 * ms, 6 * ms, false},
		{"below zero", reorder.Times{ResumeExtra: -ms, ResumeDefault: 2 * ms}, ms, 5 * ms, 20 * ms, true},
		{"a minute", reorder.Times{MaxHold: time.Minute}, ms, 5 * ms, 20 * ms, true},
	} {
		c := mustNew[int](t, func(p *reorder.Params) { *p = lab })
		if err := c.Retime(0, &tt.times); (err != nil) != tt.refused {
			t.Errorf("%s: %v", tt.name, err)
		}
		if p := c.Params(); p.ResumeExtra != tt.extra || p.ResumeDefault != tt.deflt || p.MaxHold != tt.longest {
			t.Errorf("%s: %v, %v, %v; want %v, %v, %v", tt.name, p.ResumeExtra, p.ResumeDefault, p.MaxHold, tt.extra, tt.deflt, tt.longest)
		}
	}
}
