package engine

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// handler calls a function.
type handler func(now Time, arg uint64)

func (f handler) Handle(now Time, arg uint64) { f(now, arg) }

func TestTime(t *testing.T) {
	for _, c := range []struct {
		t    Time
		text string
		ns   int64
	}{
		{0, "0s", 0},
		{999, "0s+999ps", 0},
		{80 * Nanosecond, "80ns", 80},
		{Second + 1, "1s+1ps", 1e9},
		{Never, "never", int64(Never / 1000)},
	} {
		if c.t.String() != c.text || int64(c.t.Mono()) != c.ns || int64(c.t.Duration()) != c.ns {
			t.Errorf("%d ps is %v, %d ns, %v; want %s, %d ns", int64(c.t), c.t, c.t.Mono(), c.t.Duration(), c.text, c.ns)
		}
	}
	if Of(3*time.Microsecond) != 3*Microsecond || Of(200*24*time.Hour) != Never {
		t.Errorf("3µs is %v, 200 days are %v", Of(3*time.Microsecond), Of(200*24*time.Hour))
	}
	if s := (1500 * Millisecond).Seconds(); s != 1.5 {
		t.Errorf("1500 ms are %v s", s)
	}
}

func TestEqualTimesKeepTheirOrder(t *testing.T) {
	e := New()
	var got []uint64
	var id ID
	id = e.Register(handler(func(now Time, arg uint64) {
		got = append(got, arg)
		if arg < 3 { // at the time that is being handled, and last of it
			e.At(now, id, arg+100)
		}
	}))
	for arg := range uint64(40) {
		e.At(5*Microsecond, id, arg)
	}
	e.Run(Never)
	want := make([]uint64, 0, 43)
	for arg := range uint64(40) {
		want = append(want, arg)
	}
	if want = append(want, 100, 101, 102); !slices.Equal(got, want) {
		t.Errorf("order of equal times: %v", got)
	}
	if e.Handled() != 43 || e.Now() != 5*Microsecond || e.Pending() != 0 {
		t.Errorf("%d handled at %v, %d pending", e.Handled(), e.Now(), e.Pending())
	}
}

func TestRunStopsAndGoesOn(t *testing.T) {
	e := New()
	var got []Time
	id := e.Register(handler(func(now Time, arg uint64) {
		got = append(got, now)
		if arg == 1 {
			e.Stop()
		}
	}))
	e.At(10, id, 0)
	e.At(20, id, 1)
	e.At(30, id, 0)
	e.Run(15)
	if len(got) != 1 || e.Now() != 15 {
		t.Errorf("until 15: handled %v, now %v", got, e.Now())
	}
	e.At(15, id, 0) // the clock has not gone past it
	e.Run(Never)
	if len(got) != 3 || e.Now() != 20 {
		t.Errorf("until stopped: handled %v, now %v", got, e.Now())
	}
	e.Run(25)
	e.Run(3) // not back in time
	if len(got) != 3 || e.Now() != 25 {
		t.Errorf("until 25: handled %v, now %v", got, e.Now())
	}
	e.Run(100)
	if want := []Time{10, 15, 20, 30}; !slices.Equal(got, want) || e.Now() != 30 {
		t.Errorf("in the end: handled %v, now %v; want %v", got, e.Now(), want)
	}
}

func TestThePastCannotBeChanged(t *testing.T) {
	e := New()
	id := e.Register(handler(func(Time, uint64) {}))
	e.At(100, id, 0)
	e.Run(Never)
	defer func() {
		if s := fmt.Sprint(recover()); !strings.Contains(s, "before") {
			t.Errorf("panic says %q", s)
		}
	}()
	e.At(99, id, 0)
}

// timed is an owner of timers, one an argument.
type timed struct {
	e     *Engine
	id    ID
	timer []Timer
	rang  []int
	at    []Time
}

func (o *timed) Handle(now Time, arg uint64) {
	if o.timer[arg].Due(o.e, now, o.id, arg) {
		o.rang[arg]++
		o.at[arg] = now
	}
}

func newTimed(n int) *timed {
	o := &timed{e: New(), timer: make([]Timer, n), rang: make([]int, n), at: make([]Time, n)}
	o.id = o.e.Register(o)
	for i := range o.timer {
		o.timer[i] = NewTimer()
	}
	return o
}

func TestTimer(t *testing.T) {
	type step struct {
		at, set Time // set: -1 is off
	}
	for _, c := range []struct {
		name  string
		steps []step
		rang  int
		last  Time
	}{
		{"once", []step{{0, 10}}, 1, 10},
		{"later", []step{{0, 10}, {5, 20}}, 1, 20},
		{"earlier", []step{{0, 20}, {5, 10}}, 1, 10},
		{"off", []step{{0, 20}, {5, -1}}, 0, 0},
		{"off and on", []step{{0, 20}, {5, -1}, {6, 30}}, 1, 30},
		{"off and on earlier", []step{{0, 20}, {5, -1}, {6, 10}}, 1, 10},
		{"earlier and back", []step{{0, 20}, {1, 10}, {2, 20}}, 1, 20},
		{"again after it was due", []step{{0, 10}, {15, 20}}, 2, 20},
		{"the same time", []step{{0, 10}, {3, 10}}, 1, 10},
		{"back and forth", []step{{0, 30}, {1, 20}, {2, 30}, {3, 20}, {4, 30}}, 1, 30},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := newTimed(1)
			for _, s := range c.steps {
				o.e.Run(s.at)
				if s.set < 0 {
					o.timer[0].Off()
				} else {
					// The clock may stand before s.at when nothing is pending.
					o.timer[0].Set(o.e, s.set, o.id, 0)
				}
			}
			o.e.Run(Never)
			if o.rang[0] != c.rang || o.at[0] != c.last {
				t.Errorf("rang %d times, last at %v; want %d, %v", o.rang[0], o.at[0], c.rang, c.last)
			}
			if when, on := o.timer[0].On(); on {
				t.Errorf("still on, for %v", when)
			}
		})
	}
}

// TestTimersAgainstModel moves timers at random: each rings at the deadline
// that it had last, and at no other time.
func TestTimersAgainstModel(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 2))
		o := newTimed(8)
		deadline := slices.Repeat([]Time{Never}, 8)
		rang := make([]int, 8)
		tick := o.e.Register(handler(func(now Time, _ uint64) {
			i := r.IntN(8)
			if deadline[i] < now { // it rang before this event
				rang[i]++
				if o.at[i] != deadline[i] {
					t.Fatalf("seed %d: timer %d rang at %v, want %v", seed, i, o.at[i], deadline[i])
				}
				deadline[i] = Never
			}
			if o.rang[i] != rang[i] && deadline[i] != now {
				t.Fatalf("seed %d, %v: timer %d rang %d times, want %d", seed, now, i, o.rang[i], rang[i])
			}
			if deadline[i] == now {
				return // before or after this event
			}
			if r.IntN(4) == 0 {
				deadline[i] = Never
				o.timer[i].Off()
				return
			}
			deadline[i] = now + 1 + Time(r.IntN(300))
			o.timer[i].Set(o.e, deadline[i], o.id, uint64(i))
		}))
		for at := range Time(2000) {
			o.e.At(at*7, tick, 0)
		}
		o.e.Run(Never)
	}
}
