package traffic

import (
	"testing"

	"github.com/loomfabric/loom/sim/engine"
	"github.com/loomfabric/loom/sim/network"
)

// TestMerge: flows of several sources come in order, with IDs and connections
// of their own, and each source hears of its own flows only.
func TestMerge(t *testing.T) {
	a, b := base(), base()
	a.Conns, a.Number = 2, 10
	b.Conns, b.Number = 3, 11
	in := &Incast{Stream: Stream{Number: 12}, Client: 2, Servers: []network.HostID{4, 5}, Bytes: 2000, Requests: 50, Until: engine.Never, Keep: true}
	l := newLab(func(f Flow) engine.Time { return 20 * engine.Microsecond }, first(a), in, first(b))
	l.engine.Run(engine.Never)
	if len(l.flows) != 500+500+100 || l.feed.Start() != engine.Never {
		t.Fatalf("%d flows", len(l.flows))
	}
	bound := map[int][2]int{10: {0, 512}, 12: {512, 514}, 11: {514, 514 + 768}}
	var perTag [13][]Flow
	for i, f := range l.flows {
		if f.ID != network.FlowID(i) || f.Start != l.started[i] {
			t.Fatalf("flow %d: %+v, started at %v", i, f, l.started[i])
		}
		if r := bound[f.Tag]; f.Conn < r[0] || f.Conn >= r[1] {
			t.Fatalf("workload %d has connection %d, outside %v", f.Tag, f.Conn, r)
		}
		perTag[f.Tag] = append(perTag[f.Tag], f)
	}
	if l.feed.Conns() != 514+768 {
		t.Errorf("%d connections", l.feed.Conns())
	}
	// What a source gives does not depend on its company.
	for i, f := range collect(first(a)) {
		f.ID, f.origin = perTag[10][i].ID, 0
		if f != perTag[10][i] {
			t.Fatalf("merged flow %+v, alone %+v", perTag[10][i], f)
		}
	}
	if in.Finished() != 50 {
		t.Errorf("%d requests finished", in.Finished())
	}
}

// told is a closed source of one flow that keeps what it is told.
type told struct {
	f    Flow
	sent bool
	done []Flow
}

func (s *told) Next() (Flow, bool) {
	ok := !s.sent
	s.sent = true
	return s.f, ok
}

func (s *told) Conns() int { return 5 }

func (s *told) Done(_ engine.Time, f Flow) bool {
	s.done = append(s.done, f)
	return false
}

// TestDoneIsTheSourcesOwn: a source hears of its flow as it made it, but for the
// ID.
func TestDoneIsTheSourcesOwn(t *testing.T) {
	a, b := &told{f: Flow{Conn: 3, Bytes: 1}}, &told{f: Flow{Conn: 4, Bytes: 2, Start: 5}}
	m := NewMerge(a, b)
	m.Next()
	f, _ := m.Next()
	if f.Conn != 9 || f.ID != 1 || m.Done(7, f) || len(a.done) != 0 || len(b.done) != 1 {
		t.Fatalf("flow %+v, told %v and %v", f, a.done, b.done)
	}
	b.done[0].ID = b.f.ID
	if b.done[0] != b.f {
		t.Errorf("told %+v of %+v", b.done[0], b.f)
	}
	if NewMerge(NewPoisson(base())).Done(0, Flow{}) {
		t.Error("an open source has more because a flow ended")
	}
}

// TestFeedHoldsLittle: a feed schedules one event however many flows there are,
// and none when there are no more.
func TestFeedHoldsLittle(t *testing.T) {
	l := newLab(func(Flow) engine.Time { return 0 }, NewPoisson(base()))
	if n := l.engine.Pending(); n != 1 {
		t.Errorf("%d events are pending, want 1", n)
	}
	empty := newLab(nil)
	if n := empty.engine.Pending(); n != 0 {
		t.Errorf("%d events are pending without flows", n)
	}
}

type nobody struct{ n int }

func (s *nobody) StartFlow(engine.Time, Flow) { s.n++ }

func TestFeedDoesNotAllocate(t *testing.T) {
	e := engine.New()
	s := &nobody{}
	NewFeed(e, s, NewPoisson(base()))
	until := engine.Millisecond
	e.Run(until)
	if n := testing.AllocsPerRun(10, func() {
		until += engine.Millisecond
		e.Run(until)
	}); n != 0 {
		t.Errorf("%g allocations for a hundred flows", n)
	}
	if s.n < 1000 {
		t.Errorf("only %d flows started", s.n)
	}
}
