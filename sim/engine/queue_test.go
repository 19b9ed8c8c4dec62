package engine

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// model is the queue as nobody would build it: a list that is searched.
type model struct {
	events []event
}

func (m *model) take(until Time) (event, bool) {
	best := -1
	for i := range m.events {
		if best < 0 || m.events[i].at < m.events[best].at {
			best = i
		}
	}
	if best < 0 || m.events[best].at > until {
		return event{}, false
	}
	ev := m.events[best]
	m.events = slices.Delete(m.events, best, best+1)
	return ev, true
}

// TestQueueAgainstModel schedules and takes at random, with times that are
// equal, near, far and at slots' borders, and stops in between.
func TestQueueAgainstModel(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		q, m := newQueue(), model{}
		now, arg := Time(0), uint64(0)
		spans := []Time{1, 4, 64, 100, 4096, 1e5, 1e6, 1e9, 1e12, 1 << 50}
		for step := range 400 {
			span := spans[r.IntN(len(spans))]
			burst := 1
			if r.IntN(20) == 0 {
				burst = r.IntN(200)
			}
			at := now + Time(r.Int64N(int64(span)))
			for range burst {
				switch r.IntN(6) {
				case 0: // the same time again
				case 1:
					at = (at + 1) | 63 // the last of a slot
				case 2:
					at = (at | 4095) + 1 // the first of one
				default:
					at = now + Time(r.Int64N(int64(span)))
				}
				if r.IntN(300) == 0 {
					at = Never - Time(r.IntN(2))
				}
				if at < now { // beyond the end of time
					at = Never
				}
				ev := event{at: at, arg: arg, id: ID(arg % 7)}
				arg++
				q.push(ev)
				m.events = append(m.events, ev)
				if at == Never {
					at = now
				}
			}
			until := now + Time(r.Int64N(int64(span)))
			if r.IntN(10) == 0 {
				until = Never
			}
			for range r.IntN(2*burst + 1) {
				want, ok := m.take(until)
				got := q.peek(until)
				if (got != nil) != ok || ok && (got.at != want.at || got.arg != want.arg || got.id != want.id) {
					t.Fatalf("seed %d, step %d: got %v, want %v %v", seed, step, got, want, ok)
				}
				if !ok {
					if q.n > 0 {
						now = until // the clock goes on to where it was to stop
					}
					break
				}
				now = got.at
				q.drop()
			}
			if q.n != len(m.events) {
				t.Fatalf("seed %d, step %d: %d events pending, want %d", seed, step, q.n, len(m.events))
			}
			if now > 1<<61 {
				break
			}
		}
		for len(m.events) > 0 {
			want, _ := m.take(Never)
			if got := q.peek(Never); got == nil || got.at != want.at || got.arg != want.arg {
				t.Fatalf("seed %d, at the end: got %v, want %v", seed, got, want)
			}
			q.drop()
		}
		if q.peek(Never) != nil || q.n != 0 {
			t.Fatalf("seed %d: an empty queue has events", seed)
		}
	}
}

// TestQueueManyNear schedules backwards into the part that is sorted already,
// which has to be dealt out again, and is too slow for the race otherwise.
func TestQueueManyNear(t *testing.T) {
	q := newQueue()
	const n, start = 20000, Time(1 << 40)
	q.push(event{at: start})
	q.push(event{at: start + 1<<35}) // sorted with all that is before it
	if q.peek(Never) == nil {
		t.Fatal("no event")
	}
	q.drop()
	for i := range n {
		q.push(event{at: start + Time(2*n-2*(i/2)), arg: uint64(i)})
	}
	if k := len(q.near) - q.first; k > many+1 {
		t.Errorf("%d events are kept sorted by insertion, want at most %d", k, many+1)
	}
	last := event{at: -1}
	for range n {
		ev := q.peek(Never)
		if ev.at < last.at || ev.at == last.at && ev.arg < last.arg {
			t.Fatalf("event %v comes after %v", *ev, last)
		}
		last = *ev
		q.drop()
	}
}

// increments are what lies between an event and the one that it causes.
var increments = []struct {
	name string
	next func(r *rand.Rand) Time
}{
	{"exponential", func(r *rand.Rand) Time { return Time(r.ExpFloat64() * float64(Microsecond)) }},
	{"network", func(r *rand.Rand) Time {
		switch x := r.IntN(100); {
		case x < 48: // serialisation at 100 Gbit/s
			return 120 * Nanosecond
		case x < 52:
			return 6 * Nanosecond
		case x < 98: // and propagation
			return 1120 * Nanosecond
		default: // timers
			return Time(r.Int64N(int64(Millisecond)))
		}
	}},
}

// holder is a handler that schedules another event for each that it gets: the
// hold model, by which event queues are compared.
type holder struct {
	e    *Engine
	id   ID
	gaps []Time
	left int
	next int
}

func (h *holder) Handle(now Time, arg uint64) {
	if h.left--; h.left == 0 {
		h.e.Stop()
	}
	h.next++
	h.e.At(now+h.gaps[h.next&(len(h.gaps)-1)], h.id, arg)
}

func newHolder(pending int, next func(*rand.Rand) Time) *holder {
	r := rand.New(rand.NewPCG(1, uint64(pending)))
	h := &holder{e: New(), gaps: make([]Time, 1<<16)}
	h.id = h.e.Register(h)
	for i := range h.gaps {
		h.gaps[i] = next(r)
	}
	for i := range pending {
		h.e.At(h.gaps[i&(len(h.gaps)-1)], h.id, uint64(i))
	}
	h.run(10 * pending)
	return h
}

func (h *holder) run(events int) {
	h.left = events
	h.e.Run(Never)
}

// BenchmarkHold is the time of an event: to schedule it and to handle it.
func BenchmarkHold(b *testing.B) {
	for _, inc := range increments {
		for _, pending := range []int{100, 1000, 10000, 100000} {
			b.Run(fmt.Sprintf("%s/%d", inc.name, pending), func(b *testing.B) {
				h := newHolder(pending, inc.next)
				b.ReportAllocs()
				b.ResetTimer()
				h.run(b.N)
			})
		}
	}
}

func TestSteadyStateAllocatesNothing(t *testing.T) {
	for _, inc := range increments {
		h := newHolder(1000, inc.next)
		if n := testing.AllocsPerRun(10, func() { h.run(20000) }); n != 0 {
			t.Errorf("%s: %v allocations in 20000 events", inc.name, n)
		}
		if h.e.Pending() != 1000 {
			t.Errorf("%s: %d events pending, want 1000", inc.name, h.e.Pending())
		}
	}
}
