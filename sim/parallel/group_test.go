package parallel

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/loomfabric/loom/sim/engine"
)

// Every event of the model does something that depends on all events of its part before it,
// and schedules others, here and elsewhere. Times are unique, so that one queue of all
// events, which is searched, gives the order that is right.

// state is what the events of a part make of it.
type state struct {
	hash uint64
	n    int
}

// effect is an event that another one causes.
type effect struct {
	part int
	at   engine.Time
	arg  uint64
}

const (
	modelParts     = 7
	modelLookahead = 1000
	modelEnd       = 40_000
	shared         = modelParts // the number of the engine of all
)

// handle is the model's only rule.
func (s *state) handle(part int, now engine.Time, arg uint64) []effect {
	s.hash = (s.hash^uint64(now)*31^arg)*0x9e3779b97f4a7c15 + 1
	s.n++
	r := rand.New(rand.NewPCG(s.hash, arg))
	var out []effect
	for range r.IntN(3) {
		to, least := part, 1
		if r.IntN(3) == 0 {
			to, least = r.IntN(modelParts), modelLookahead
		}
		if part == shared {
			to, least = r.IntN(modelParts+1), 1
		}
		// The last digits make the time one of its own.
		at := (now/modelEnd+engine.Time(least+r.IntN(3000)))*modelEnd + engine.Time(r.IntN(modelEnd))
		out = append(out, effect{to, at, r.Uint64()})
	}
	return out
}

// begin is what there is at first.
func begin(seed uint64) (out []effect) {
	r := rand.New(rand.NewPCG(seed, 3))
	for i := range modelParts + 1 {
		for range 3 {
			out = append(out, effect{i, engine.Time(r.IntN(5000))*modelEnd + engine.Time(r.IntN(modelEnd)), r.Uint64()})
		}
	}
	return out
}

// flows are what a planner begins: a part, and a time.
func flows(seed uint64) (out []effect) {
	r := rand.New(rand.NewPCG(seed, 4))
	at := engine.Time(0)
	for range 30 {
		at += engine.Time(r.IntN(2000))*modelEnd + engine.Time(r.IntN(modelEnd))
		out = append(out, effect{r.IntN(modelParts), at, r.Uint64()})
	}
	return out
}

// naive is all of it as nobody would build it.
func naive(seed uint64, until engine.Time) (states [modelParts + 1]state) {
	pending := append(begin(seed), flows(seed)...)
	for len(pending) > 0 {
		slices.SortFunc(pending, func(a, b effect) int { return cmp.Compare(a.at, b.at) })
		e := pending[0]
		if e.at > until {
			break
		}
		pending = append(pending[1:], states[e.part].handle(e.part, e.at, e.arg)...)
	}
	return states
}

// fabric is the model in parts.
type fabric struct {
	states  [modelParts + 1]state
	engines [modelParts + 1]*engine.Engine
	ids     [modelParts + 1]engine.ID
	boxes   [2][modelParts][modelParts][]effect // side, from, to
	side    int
	sent    [modelParts]engine.Time
	flows   []effect
	settled int
}

type place struct {
	f    *fabric
	part int
}

func (p place) Handle(now engine.Time, arg uint64) {
	f := p.f
	for _, e := range f.states[p.part].handle(p.part, now, arg) {
		if e.part == p.part || p.part == shared {
			f.engines[e.part].At(e.at, f.ids[e.part], e.arg)
			continue
		}
		box := &f.boxes[f.side][p.part][e.part]
		*box = append(*box, e)
		f.sent[p.part] = min(f.sent[p.part], e.at)
	}
}

func (f *fabric) Swap() {
	f.side = 1 - f.side
	for i := range f.sent {
		f.sent[i] = engine.Never
	}
}

func (f *fabric) Deliver(i int) {
	for from := range f.boxes[1-f.side] {
		box := &f.boxes[1-f.side][from][i]
		for _, e := range *box {
			f.engines[i].At(e.at, f.ids[i], e.arg)
		}
		*box = (*box)[:0]
	}
}

func (f *fabric) Sent(i int) engine.Time { return f.sent[i] }

func (f *fabric) Next() engine.Time {
	if len(f.flows) == 0 {
		return engine.Never
	}
	return f.flows[0].at
}

func (f *fabric) Plan(end engine.Time) {
	for f.Next() < end {
		e := f.flows[0]
		f.flows = f.flows[1:]
		f.engines[e.part].At(e.at, f.ids[e.part], e.arg)
	}
}

func (f *fabric) Settle() { f.settled++ }

func newFabric(seed uint64, threads int) (*fabric, *Group) {
	f := &fabric{flows: flows(seed)}
	for i := range f.engines {
		f.engines[i] = engine.New()
		f.ids[i] = f.engines[i].Register(place{f, i})
	}
	for i := range f.sent {
		f.sent[i] = engine.Never
	}
	for _, e := range begin(seed) {
		f.engines[e.part].At(e.at, f.ids[e.part], e.arg)
	}
	g := NewGroup(f.engines[shared])
	g.Split(f.engines[:modelParts], modelLookahead*modelEnd, f, f)
	g.SetThreads(threads)
	return f, g
}

// TestGroupAgainstModel: parts with any number of threads do what one queue of all events
// does, whatever the stops on the way.
func TestGroupAgainstModel(t *testing.T) {
	for seed := range uint64(12) {
		end := engine.Time(60_000) * modelEnd
		want := naive(seed, end)
		for _, threads := range []int{1, 2, 3, 7, 50} {
			f, g := newFabric(seed, threads)
			stops := rand.New(rand.NewPCG(seed, 5))
			for now := engine.Time(0); now < end; {
				now = min(end, now+engine.Time(stops.IntN(20_000))*modelEnd)
				g.Run(now)
				if g.Now() > now {
					t.Fatalf("seed %d, %d threads: the clock is at %v after a run until %v", seed, threads, g.Now(), now)
				}
			}
			if f.states != want {
				t.Fatalf("seed %d, %d threads:\n%v, want\n%v", seed, threads, f.states, want)
			}
			n := uint64(0)
			for i := range want {
				n += uint64(want[i].n)
			}
			if g.Handled() != n || n < 30 {
				t.Fatalf("seed %d: %d events, want %d", seed, g.Handled(), n)
			}
		}
	}
}

// TestGroupWithoutParts: there is one engine, and that is all.
func TestGroupWithoutParts(t *testing.T) {
	e := engine.New()
	n := 0
	id := e.Register(handler(func(engine.Time, uint64) { n++ }))
	e.At(10, id, 0)
	e.At(20, id, 0)
	g := NewGroup(e)
	if g.Run(15); n != 1 || g.Now() != 15 || g.Handled() != 1 {
		t.Errorf("%d events until %v, %d handled", n, g.Now(), g.Handled())
	}
}

type handler func(now engine.Time, arg uint64)

func (f handler) Handle(now engine.Time, arg uint64) { f(now, arg) }

func TestLookahead(t *testing.T) {
	defer func() {
		if s := fmt.Sprint(recover()); s != "parallel: parts of a group need a lookahead above 0" {
			t.Errorf("panic says %q", s)
		}
	}()
	NewGroup(engine.New()).Split(nil, 0, nil, nil)
}
