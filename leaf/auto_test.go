package leaf

import (
	"testing"
	"time"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/overlay"
	"github.com/loomfabric/loom/reorder"
)

// deriveAll wants all times.
var deriveAll = Auto{Reply: true, Inactive: true, ResumeExtra: true, ResumeDefault: true, MaxHold: true, FlowletGap: true}

// roundTrips is a histogram of n round trips of each of some lengths.
func roundTrips(n int, lengths ...time.Duration) (h reorder.Histogram) {
	for _, d := range lengths {
		for range n {
			h.Add(d)
		}
	}
	return h
}

// Whatever round trips take, the times that follow from them make sense, grow with
// them, and fit those that are configured.
func TestDerivedTimes(t *testing.T) {
	const ms = time.Millisecond
	h := roundTrips(100, 500*time.Microsecond, 600*time.Microsecond, 700*time.Microsecond)
	for range 3 {
		h.Add(4 * ms)
	}
	between := func(what string, d, least, most time.Duration) {
		t.Helper()
		if d < least || d > most {
			t.Errorf("%s is %v, want %v to %v", what, d, least, most)
		}
	}
	// Percentiles are off by a quarter at most.
	got := derive(&h, 3*ms, deriveAll)
	between("θ_reply", got.Reply, 1200*time.Microsecond, 1500*time.Microsecond)
	between("θ_inactive", got.Inactive, 8*ms, 10*ms)
	between("θ_resume_extra", got.ResumeExtra, 3*ms, 3*ms) // the queue
	between("θ_resume_default", got.ResumeDefault, 8*ms, 10*ms)
	between("the longest hold", got.MaxHold, 22*ms, 26*ms)
	between("the flowlet gap", got.FlowletGap, 3700*time.Microsecond, 4*ms)
	// Nothing is under way longer than in a full queue.
	got = derive(&h, 20*ms, deriveAll)
	between("θ_inactive with a deep queue", got.Inactive, 20*ms, 22*ms)
	between("θ_resume_extra with one", got.ResumeExtra, 20*ms, 20*ms)
	between("θ_resume_default with one", got.ResumeDefault, 24*ms, 25*ms)
	got = derive(&h, 0, deriveAll)
	between("θ_resume_extra without a queue", got.ResumeExtra, 1200*time.Microsecond, 1500*time.Microsecond)
	last := reorder.Times{}
	for rtt := time.Microsecond; rtt < 100*ms; rtt = rtt*3/2 + 1 {
		h := roundTrips(100, rtt, 2*rtt, 9*rtt)
		got := derive(&h, rtt, deriveAll)
		s, d := balance.LabConWeave(), reorder.Lab()
		s.Reply, s.Inactive = got.Reply, got.Inactive
		d.ResumeExtra, d.ResumeDefault, d.MaxHold = got.ResumeExtra, got.ResumeDefault, got.MaxHold
		if err := s.Validate(); err != nil {
			t.Errorf("round trips of %v: %v", rtt, err)
		}
		if err := d.Validate(); err != nil {
			t.Errorf("round trips of %v: %v", rtt, err)
		}
		if got.Reply < last.Reply || got.Inactive < last.Inactive || got.ResumeExtra < last.ResumeExtra ||
			got.ResumeDefault < last.ResumeDefault || got.MaxHold < last.MaxHold || got.FlowletGap < last.FlowletGap {
			t.Errorf("round trips of %v: %+v after %+v", rtt, got, last)
		}
		last = got
	}
	if got := derive(&h, time.Second, Auto{Reply: true}); got != (reorder.Times{Reply: got.Reply}) || got.Reply == 0 {
		t.Errorf("derived %+v, want θ_reply alone", got)
	}
}

// A change by a quarter of any time is worth making; less is not.
func TestNear(t *testing.T) {
	was := reorder.Times{Reply: 100, Inactive: 200, ResumeExtra: 300, ResumeDefault: 400, MaxHold: 1400, FlowletGap: 500}
	for name, change := range map[string]func(*reorder.Times) *time.Duration{
		"reply":          func(t *reorder.Times) *time.Duration { return &t.Reply },
		"inactive":       func(t *reorder.Times) *time.Duration { return &t.Inactive },
		"resume extra":   func(t *reorder.Times) *time.Duration { return &t.ResumeExtra },
		"resume default": func(t *reorder.Times) *time.Duration { return &t.ResumeDefault },
		"flowlet gap":    func(t *reorder.Times) *time.Duration { return &t.FlowletGap },
	} {
		for _, sign := range []time.Duration{1, -1} {
			u := was
			d := change(&u)
			quarter := *d / 4
			*d += sign * quarter
			if !near(&was, &u) {
				t.Errorf("%s: a quarter is a change", name)
			}
			*d += sign
			if near(&was, &u) {
				t.Errorf("%s: more than a quarter is none", name)
			}
		}
	}
	if !near(&reorder.Times{}, &reorder.Times{}) {
		t.Error("nothing differs from nothing")
	}
}

func TestSince(t *testing.T) {
	before := roundTrips(10, time.Millisecond, 40*time.Millisecond)
	now := before
	more := roundTrips(7, 2*time.Millisecond, 3*time.Millisecond)
	now.Merge(&more)
	got := since(&now, &before)
	if got.N != 14 || got.Counts != more.Counts || got.Sum != more.Sum {
		t.Errorf("%d since, want %d", got.N, more.N)
	}
	// The longest one since is known to its bucket, and is not longer than any.
	if got.Max < more.Max || got.Max > more.Max*5/4 || got.Quantile(1) < 3*time.Millisecond {
		t.Errorf("the longest took %v, want %v", got.Max, more.Max)
	}
	if none := since(&now, &now); none != (reorder.Histogram{}) {
		t.Errorf("%+v since now", none)
	}
}

// Times follow when there is something to go by, again when that has changed, and
// what was measured half a minute ago no longer counts.
func TestTuner(t *testing.T) {
	var u Tuner
	all := roundTrips(autoSamples-1, time.Millisecond)
	if u.Tune(&all, 0, deriveAll) || u.State().Samples != autoSamples-1 || u.State().Times != (reorder.Times{}) {
		t.Errorf("%d round trips were enough: %+v", all.N, u.State())
	}
	measure := func(n int, d time.Duration) bool {
		h := roundTrips(n, d)
		all.Merge(&h)
		return u.Tune(&all, 0, deriveAll)
	}
	if !measure(1, time.Millisecond) || u.State().Changes != 1 {
		t.Fatalf("nothing is derived: %+v", u.State())
	}
	first := u.State().Times
	if first.Reply < 2*time.Millisecond || first.Reply > 2500*time.Microsecond {
		t.Errorf("of a millisecond follows %+v", first)
	}
	if measure(50, 1100*time.Microsecond) || u.State().Times != first {
		t.Errorf("changed for nothing to %+v", u.State())
	}
	for range autoWindows {
		measure(10, 20*time.Millisecond)
	}
	s := u.State()
	if s.Samples != 10*autoWindows || s.P50 < 20*time.Millisecond || s.Times.Reply != overlay.MaxInactive/2 || s.Times.Inactive != overlay.MaxInactive {
		t.Errorf("after half a minute of 20ms: %+v", s)
	}
	// Without round trips the last times stay.
	for range 2 * autoWindows {
		if measure(0, 0) {
			t.Error("times follow from nothing")
		}
	}
	if got := u.State(); got.Samples != 0 || got.Times != s.Times {
		t.Errorf("%+v", got)
	}
}

// Derived times reach all classes and receivers: those that they are for.
func TestRetimeReachesAll(t *testing.T) {
	s := newSite(t, "conga", "conga-flow", "conweave", "ecmp")
	const ms = time.Millisecond
	times := reorder.Times{Reply: ms, Inactive: 9 * ms, ResumeExtra: 2 * ms, ResumeDefault: 3 * ms, MaxHold: 8 * ms, FlowletGap: 7 * ms}
	if err := s.Retime(s.now, &times); err != nil {
		t.Fatal(err)
	}
	if p := s.Classes()[2].Policy.(balance.ConWeavePolicy).Params(); p.Reply != ms || p.Inactive != 9*ms {
		t.Errorf("sources are told %+v", p)
	}
	if p := s.Receiver(reorder.SchemeID).(*reorder.ConWeave).Params(); p.ResumeExtra != 2*ms || p.ResumeDefault != 3*ms || p.MaxHold != 8*ms {
		t.Errorf("the destination is told %+v", p)
	}
	for i, lasts := range []time.Duration{7 * ms, 13 * ms} {
		f := s.Classes()[i].Policy.(balance.FlowletPolicy).Flowlets()
		f.Set(5, 1, s.now)
		if _, active := f.Lookup(5, s.now.Add(lasts)); !active {
			t.Errorf("class %d: a flowlet ends before %v", i, lasts)
		}
		if _, active := f.Lookup(5, s.now.Add(lasts+1)); active {
			t.Errorf("class %d: a flowlet goes on after %v", i, lasts)
		}
	}
	// What one of them refuses does not keep the others from taking theirs.
	err := s.Retime(s.now, &reorder.Times{Inactive: time.Hour, ResumeExtra: 4 * ms})
	if p := s.Receiver(reorder.SchemeID).(*reorder.ConWeave).Params(); err == nil || p.ResumeExtra != 4*ms {
		t.Errorf("an hour of inactivity: %v, the destination is told %+v", err, p)
	}
}

// All round trips that a worker has measured count: HELLOs', schemes', and those of
// schemes that are no more.
func TestRoundTrips(t *testing.T) {
	s := newSite(t, "conweave")
	s.prove(1)
	reply := func() {
		s.t.Helper()
		p, f, ok := s.send(1, uint32(s.now))
		if !ok || f.Opcode != overlay.OpRTTRequest {
			t.Fatalf("no request: %+v", f)
		}
		s.now += 5 * us
		m := overlay.Message{Leaf: 1, Link: overlay.AnyLink, Hash: p.Hash, Fabric: overlay.Fabric{
			Capable: true, Scheme: reorder.SchemeID, Opcode: overlay.OpRTTReply, Epoch: f.Epoch, Shim: true, Arg: f.TxTstamp,
		}}
		if !s.Handle(s.now, 0, &m, true) {
			t.Fatal("the reply is nobody's")
		}
	}
	count := func() uint64 {
		var h reorder.Histogram
		s.RoundTrips(&h)
		return h.N
	}
	reply()
	s.hello(1, overlay.Fabric{Tail: true, Arg: overlay.TstampOf(s.now)}, overlay.Hello{})
	if n := count(); n != 2 {
		t.Errorf("%d round trips, want 2", n)
	}
	for _, scheme := range []string{"conweave", "ecmp"} {
		classes, err := s.MakeClasses([]ClassConfig{{Scheme: scheme}})
		if err != nil {
			t.Fatal(err)
		}
		s.SetClasses(classes)
		if n := count(); n != 2 {
			t.Errorf("%d round trips under %s, want 2", n, scheme)
		}
		// What was taken over is not taken over again.
	}
}
