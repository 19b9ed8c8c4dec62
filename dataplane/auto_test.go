package dataplane

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/overlay"
	"github.com/loomfabric/loom/reorder"
)

// roundTrips is a histogram of n round trips of each of some lengths.
func roundTrips(n int, lengths ...time.Duration) (h reorder.Histogram) {
	for _, d := range lengths {
		for range n {
			h.Add(d)
		}
	}
	return h
}

// A shaper is what a queue waits for, however fast the link behind it is.
func TestLongestQueue(t *testing.T) {
	port := func(kind PortKind, shaper, link uint64) PortConfig {
		return PortConfig{Kind: kind, Egress: EgressConfig{QueueBytes: 24_000, Rate: shaper, LinkRate: link}}
	}
	for _, tt := range []struct {
		ports []PortConfig
		want  time.Duration
	}{
		{nil, 0},
		{[]PortConfig{port(Uplink, 0, 0), port(Access, 1e6, 0)}, 0},
		{[]PortConfig{port(Uplink, 20e6, 10e9)}, 9600 * time.Microsecond},
		{[]PortConfig{port(Uplink, 20e6, 0), port(Uplink, 0, 10e6)}, 19200 * time.Microsecond},
	} {
		c := &Config{Ports: tt.ports}
		if got := c.longestQueue(); got != tt.want {
			t.Errorf("%+v: %v, want %v", tt.ports, got, tt.want)
		}
	}
}

// Whatever round trips take, the times that follow from them make sense, grow with
// them, and fit those that are configured.
func TestDerivedTimes(t *testing.T) {
	all := Auto{true, true, true, true, true, true}
	h := roundTrips(100, 500*time.Microsecond, 600*time.Microsecond, 700*time.Microsecond)
	for range 3 {
		h.Add(4 * time.Millisecond)
	}
	got := derive(&h, 3*time.Millisecond, all)
	between := func(what string, d, least, most time.Duration) {
		t.Helper()
		if d < least || d > most {
			t.Errorf("%s is %v, want %v to %v", what, d, least, most)
		}
	}
	// Percentiles are off by a quarter at most.
	between("θ_reply", got.Reply, 1200*time.Microsecond, 1500*time.Microsecond)
	between("θ_inactive", got.Inactive, 8*time.Millisecond, 10*time.Millisecond)
	between("θ_resume_extra", got.ResumeExtra, 3*time.Millisecond, 3*time.Millisecond) // the queue
	between("θ_resume_default", got.ResumeDefault, 8*time.Millisecond, 10*time.Millisecond)
	between("the flowlet gap", got.FlowletGap, 3700*time.Microsecond, 4*time.Millisecond)
	// Nothing is under way longer than in a full queue.
	got = derive(&h, 20*time.Millisecond, all)
	between("θ_inactive with a deep queue", got.Inactive, 20*time.Millisecond, 22*time.Millisecond)
	between("θ_resume_extra with one", got.ResumeExtra, 20*time.Millisecond, 20*time.Millisecond)
	between("θ_resume_default with one", got.ResumeDefault, 24*time.Millisecond, 25*time.Millisecond)
	if got = derive(&h, 0, all); got.ResumeExtra < 1200*time.Microsecond || got.ResumeExtra > 1500*time.Microsecond {
		t.Errorf("θ_resume_extra without a queue is %v", got.ResumeExtra)
	}
	last := Times{}
	for rtt := time.Microsecond; rtt < 100*time.Millisecond; rtt = rtt*3/2 + 1 {
		h := roundTrips(100, rtt, 2*rtt, 9*rtt)
		got := derive(&h, rtt, all)
		s, d := balance.LabConWeave(), reorder.Lab()
		s.Reply, s.Inactive = got.Reply, got.Inactive
		d.ResumeExtra, d.ResumeDefault, d.MaxHold = got.ResumeExtra, got.ResumeDefault, got.MaxHold
		if err := s.Validate(); err != nil {
			t.Errorf("round trips of %v: %v", rtt, err)
		}
		if err := d.Validate(); err != nil {
			t.Errorf("round trips of %v: %v", rtt, err)
		}
		if got.Reply < last.Reply || got.Inactive < last.Inactive || got.ResumeExtra < last.ResumeExtra || got.ResumeDefault < last.ResumeDefault || got.FlowletGap < last.FlowletGap {
			t.Errorf("round trips of %v: %+v after %+v", rtt, got, last)
		}
		last = got
	}
	if got := derive(&h, time.Second, Auto{Reply: true}); got != (Times{Reply: got.Reply}) || got.Reply == 0 {
		t.Errorf("derived %+v, want θ_reply alone", got)
	}
}

// autoNode is a node with one worker, whose times follow from round trips.
func autoNode(t *testing.T, auto Auto) (*Node, *rig, *strings.Builder) {
	cfg := leafConfig()
	cfg.Scheme, cfg.Options.ConWeave, cfg.Reorder = "conweave", balance.LabConWeave(), reorder.Lab()
	cfg.Classes = []Class{{Protocol: 6, Scheme: "conga"}, {Protocol: 1, Scheme: "conga-flow"}}
	cfg.Auto, cfg.Options.ConWeave.Connections, cfg.Reorder.Flows = auto, 64, 64
	r := newRig(t, fuzzConfig(cfg), leafTables())
	n := node(r)
	n.cfg.Auto = auto
	var log strings.Builder
	n.log = slog.New(slog.NewTextHandler(&log, nil))
	return n, r, &log
}

// Times come into force when there is something to go by, and again when that has
// changed; nothing is lost on the way, and a reload keeps them.
func TestTimesFollowRoundTrips(t *testing.T) {
	all := Auto{true, true, true, true, true, true}
	n, r, log := autoNode(t, all)
	r.send(up0, wrap(vtep2, own(), 100, udp4(bcast, hostB, 0, 1, 10), &overlay.Fabric{Capable: true}))
	r.send(acc0, udp4(hostB, hostA, 0, 7, 10)) // a connection
	policy := func() balance.ConWeavePolicy { return r.w.classes[2].policy.(balance.ConWeavePolicy) }
	few := roundTrips(autoSamples-1, time.Millisecond)
	if n.retime(few) || policy().Params().Reply != balance.LabConWeave().Reply {
		t.Errorf("%d round trips were enough for %+v", few.N, policy().Params())
	}
	more := few
	h := roundTrips(100, time.Millisecond)
	more.Merge(&h)
	if !n.retime(more) {
		t.Fatal("nothing is derived")
	}
	s := n.Auto()
	if p := policy().Params(); p.Reply != s.Times.Reply || p.Inactive != s.Times.Inactive || p.Reply < 2*time.Millisecond || p.Reply > 2500*time.Microsecond {
		t.Errorf("sources are told %+v, derived was %+v", p, s.Times)
	}
	if p := r.w.order.side.Params(); p.ResumeExtra != s.Times.ResumeExtra || p.ResumeDefault != s.Times.ResumeDefault || p.MaxHold != s.Times.MaxHold {
		t.Errorf("the destination is told %+v, derived was %+v", p, s.Times)
	}
	if got := policy().Stats().ConWeave; got.Epochs != 1 {
		t.Errorf("%d epochs", got.Epochs)
	}
	if c := n.ConWeave(-1); c.Sources[0].Active != 1 || c.Sources[0].Reply != s.Times.Reply {
		t.Errorf("%+v", c.Sources[0])
	}
	// A little more or less is not worth a change.
	h = roundTrips(50, 1100*time.Microsecond)
	more.Merge(&h)
	if n.retime(more) {
		t.Errorf("changed to %+v for nothing", n.Auto())
	}
	// A flowlet of conga goes on for as long as the gap says, one of conga-flow longer.
	conga, flow := r.w.classes[0].policy.(balance.FlowletPolicy).Flowlets(), r.w.classes[1].policy.(balance.FlowletPolicy).Flowlets()
	conga.Set(5, 1, r.now)
	flow.Set(5, 1, r.now)
	if _, active := conga.Lookup(5, r.now.Add(s.Times.FlowletGap)); !active {
		t.Error("conga's flowlet ended before the gap")
	}
	if _, active := conga.Lookup(5, r.now.Add(s.Times.FlowletGap+1)); active {
		t.Error("conga's flowlet did not end after the gap")
	}
	if _, active := flow.Lookup(5, r.now.Add(12*time.Millisecond)); !active {
		t.Error("conga-flow's flow ended after the flowlet gap")
	}
	// Half a minute later only the new round trips count.
	for range autoWindows {
		h = roundTrips(10, 8*time.Millisecond)
		more.Merge(&h)
		n.retime(more)
	}
	if s = n.Auto(); s.P50 < 8*time.Millisecond || s.Times.Reply != maxReply || s.Times.Inactive != overlay.MaxInactive {
		t.Errorf("after half a minute of 8ms: %+v", s)
	}
	if err := n.SetSchemes("conweave-conga", balance.Options{ConWeave: balance.LabConWeave()}, n.cfg.Classes); err != nil {
		t.Fatal(err)
	}
	if p := policy().Params(); p.Reply != s.Times.Reply {
		t.Errorf("a reload put θ_reply back to %v", p.Reply)
	}
	if log.Len() != 0 {
		t.Errorf("logged %s", log)
	}
	if n, _, _ := autoNode(t, Auto{}); n.Auto() != nil {
		t.Error("something is derived that nobody asked for")
	}
}

// What is configured stays, and what is derived fits it.
func TestDerivedTimesFitTheOthers(t *testing.T) {
	for _, rtt := range []time.Duration{10 * time.Microsecond, time.Millisecond, 30 * time.Millisecond} {
		for mask := range 1 << 5 {
			auto := Auto{mask&1 != 0, mask&2 != 0, mask&4 != 0, mask&8 != 0, mask&16 != 0, false}
			n, r, log := autoNode(t, auto)
			n.retime(roundTrips(100, rtt, 2*rtt))
			if log.Len() != 0 {
				t.Fatalf("%+v, round trips of %v: %s", auto, rtt, log)
			}
			s, d := r.w.classes[2].policy.(balance.ConWeavePolicy).Params(), r.w.order.side.Params()
			lab, hold := balance.LabConWeave(), reorder.Lab()
			if !auto.Reply && s.Reply != lab.Reply || !auto.ResumeDefault && d.ResumeDefault != hold.ResumeDefault ||
				!auto.ResumeExtra && d.ResumeExtra != hold.ResumeExtra {
				t.Errorf("%+v, round trips of %v: %+v and %+v", auto, rtt, s, d)
			}
		}
	}
}

// Greetings measure the round trip between leaves: the time that a peer kept one is
// not part of it.
func TestGreetingsMeasureTheRoundTrip(t *testing.T) {
	l := newPathLab(t, "ecmp")
	l.delay = [2]time.Duration{300 * time.Microsecond, 300 * time.Microsecond}
	l.pass(time.Second) // those that have been were under way for no time at all
	for _, r := range []*rig{l.a, l.b} {
		r.w.greetAt = 0
		r.w.stats.RoundTrip = reorder.Histogram{}
		l.pass(70 * time.Millisecond) // they greet at different times
	}
	for range int(time.Second / tick) {
		l.step()
	}
	for _, r := range []*rig{l.a, l.b} {
		s := r.w.snapshot()
		h := &s.RoundTrip
		if h.N < 3 || h.Quantile(0) < 500*time.Microsecond || h.Max > 900*time.Microsecond {
			t.Errorf("%d round trips, %v to %v; want 600µs", h.N, h.Quantile(0), h.Max)
		}
	}
	// A peer that has not greeted for long gets nothing back.
	if _, ok := l.a.w.shared.echo(0, l.a.now.Add(time.Second)); ok {
		t.Error("an old greeting is sent back")
	}
}
