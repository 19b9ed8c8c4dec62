package dataplane

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/leaf"
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
		l := &layout{}
		for _, p := range tt.ports {
			l.ports = append(l.ports, seat{PortConfig: p})
		}
		if got := l.longestQueue(); got != tt.want {
			t.Errorf("%+v: %v, want %v", tt.ports, got, tt.want)
		}
	}
}

// autoNode is a node with one worker, whose times follow from round trips.
func autoNode(t *testing.T, auto leaf.Auto) (*Node, *rig, *strings.Builder) {
	cfg := leafConfig()
	p := labConWeave()
	p.Source.Connections, p.Destination.Flows = 64, 64
	useConWeave(&cfg, p)
	cfg.Classes = []Class{{Protocol: 6, Scheme: "conga"}, {Protocol: 1, Scheme: "conga-flow"}}
	cfg.Auto = auto
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
	all := leaf.Auto{Reply: true, Inactive: true, ResumeExtra: true, ResumeDefault: true, MaxHold: true, FlowletGap: true}
	n, r, log := autoNode(t, all)
	r.prove(0)
	r.send(up0, wrap(vtep2, own(), 100, udp4(bcast, hostB, 0, 1, 10), &overlay.Fabric{Capable: true}))
	r.send(acc0, udp4(hostB, hostA, 0, 7, 10)) // a connection
	policy := func() balance.ConWeavePolicy { return r.w.leaf.classes[2].Policy.(balance.ConWeavePolicy) }
	few := roundTrips(20, time.Millisecond)
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
	if p := r.destination().Params(); p.ResumeExtra != s.Times.ResumeExtra || p.ResumeDefault != s.Times.ResumeDefault || p.MaxHold != s.Times.MaxHold {
		t.Errorf("the destination is told %+v, derived was %+v", p, s.Times)
	}
	if got := source(r.w.leaf.classes[2]); got.Epochs != 1 {
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
	conga, flow := r.w.leaf.classes[0].Policy.(balance.FlowletPolicy).Flowlets(), r.w.leaf.classes[1].Policy.(balance.FlowletPolicy).Flowlets()
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
	for range int(30 * time.Second / leaf.AutoEvery) {
		h = roundTrips(10, 20*time.Millisecond)
		more.Merge(&h)
		n.retime(more)
	}
	if s = n.Auto(); s.P50 < 20*time.Millisecond || s.Times.Reply != overlay.MaxInactive/2 || s.Times.Inactive != overlay.MaxInactive {
		t.Errorf("after half a minute of 20ms: %+v", s)
	}
	if err := n.SetSchemes("conweave-informed", balance.Options{}, n.cfg.Classes); err != nil {
		t.Fatal(err)
	}
	if p := policy().Params(); p.Reply != s.Times.Reply {
		t.Errorf("a reload put θ_reply back to %v", p.Reply)
	}
	if log.Len() != 0 {
		t.Errorf("logged %s", log)
	}
	if n, _, _ := autoNode(t, leaf.Auto{}); n.Auto() != nil {
		t.Error("something is derived that nobody asked for")
	}
}

// What is configured stays, and what is derived fits it.
func TestDerivedTimesFitTheOthers(t *testing.T) {
	for _, rtt := range []time.Duration{10 * time.Microsecond, time.Millisecond, 30 * time.Millisecond} {
		for mask := range 1 << 5 {
			auto := leaf.Auto{Reply: mask&1 != 0, Inactive: mask&2 != 0, ResumeExtra: mask&4 != 0, ResumeDefault: mask&8 != 0, MaxHold: mask&16 != 0}
			n, r, log := autoNode(t, auto)
			n.retime(roundTrips(100, rtt, 2*rtt))
			if log.Len() != 0 {
				t.Fatalf("%+v, round trips of %v: %s", auto, rtt, log)
			}
			s, d := r.w.leaf.classes[2].Policy.(balance.ConWeavePolicy).Params(), r.destination().Params()
			lab, hold := balance.LabConWeave(), reorder.Lab()
			if !auto.Reply && s.Reply != lab.Reply || !auto.ResumeDefault && d.ResumeDefault != hold.ResumeDefault ||
				!auto.ResumeExtra && d.ResumeExtra != hold.ResumeExtra {
				t.Errorf("%+v, round trips of %v: %+v and %+v", auto, rtt, s, d)
			}
		}
	}
}

// HELLOs measure the round trip between leaves: the time that a peer kept one is not
// part of it.
func TestHellosMeasureTheRoundTrip(t *testing.T) {
	l := newPathLab(t, "ecmp")
	l.delay = [2]time.Duration{300 * time.Microsecond, 300 * time.Microsecond}
	l.pass(time.Second) // those that have been were under way for no time at all
	for _, r := range []*rig{l.a, l.b} {
		r.w.leaf.brain.SetHello(0)
		l.pass(70 * time.Millisecond) // they send at different times
	}
	before := [2]reorder.Histogram{l.a.w.snapshot().Leaf.RoundTrip, l.b.w.snapshot().Leaf.RoundTrip}
	for range int(time.Second / tick) {
		l.step()
	}
	for i, r := range []*rig{l.a, l.b} {
		h := r.w.snapshot().Leaf.RoundTrip
		for j := range h.Counts {
			h.Counts[j] -= before[i].Counts[j]
		}
		h.N -= before[i].N
		if h.N < 3 || h.Quantile(0) < 500*time.Microsecond || h.Max > 900*time.Microsecond {
			t.Errorf("%d round trips, %v to %v; want 600µs", h.N, h.Quantile(0), h.Max)
		}
	}
	// A peer that has sent none for long gets nothing back.
	l.lose = func(from *rig, _ *overlay.Fabric) bool { return from == l.b }
	for range int(time.Second / tick) {
		l.step()
	}
	echoes := 0
	l.lose = func(from *rig, f *overlay.Fabric) bool {
		if from == l.a && f.Opcode == overlay.OpHello && f.Tail {
			echoes++
		}
		return true
	}
	for range int(time.Second / tick) {
		l.step()
	}
	if echoes > 0 {
		t.Errorf("an old HELLO is sent back %d times", echoes)
	}
}
