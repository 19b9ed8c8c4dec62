// Package engine is virtual time: a clock that jumps from event to event, in
// picoseconds, and a queue of events with a total order. One goroutine runs an
// engine; many engines can run side by side.
package engine

import (
	"fmt"
	"math"
	"time"

	"github.com/loomfabric/loom/internal/mono"
)

// Time is a point in virtual time, or a span of it, in picoseconds: a byte
// takes 80 of them at 100 Gbit/s. It lasts for 106 days.
type Time int64

// Spans of time.
const (
	Picosecond  Time = 1
	Nanosecond       = 1000 * Picosecond
	Microsecond      = 1000 * Nanosecond
	Millisecond      = 1000 * Microsecond
	Second           = 1000 * Millisecond
	// Never is later than every event.
	Never Time = math.MaxInt64
)

// Of returns d in virtual time; what does not fit is Never.
func Of(d time.Duration) Time {
	if d > time.Duration(Never/Nanosecond) {
		return Never
	}
	return Time(d) * Nanosecond
}

// Mono returns t as the algorithm packages want it, rounded down.
func (t Time) Mono() mono.Time { return mono.Time(t / Nanosecond) }

// Duration returns t rounded down to nanoseconds.
func (t Time) Duration() time.Duration { return time.Duration(t / Nanosecond) }

// Seconds returns t in seconds.
func (t Time) Seconds() float64 { return float64(t) / float64(Second) }

// String returns t as a duration is written, with its picoseconds.
func (t Time) String() string {
	if t == Never {
		return "never"
	}
	if ps := t % Nanosecond; ps != 0 {
		return fmt.Sprintf("%v+%dps", t.Duration(), ps)
	}
	return t.Duration().String()
}

// Handler is somebody to whom things happen.
type Handler interface {
	// Handle is called at the time of each event, with the argument that it was
	// scheduled with.
	Handle(now Time, arg uint64)
}

// ID is a Handler's number: events hold no pointers.
type ID uint32

// Engine is a clock and its events. Not safe for concurrent use.
type Engine struct {
	now      Time
	handled  uint64
	stopped  bool
	handlers []Handler
	queue    queue
	next     Time // of the first event, if known; Never: not known
}

// New returns an engine at time 0.
func New() *Engine { return &Engine{queue: newQueue(), next: Never} }

// Register gives h a number. Handlers stay for the engine's life: register
// nodes, hosts and stacks, and tell flows and packets apart by the argument.
func (e *Engine) Register(h Handler) ID {
	e.handlers = append(e.handlers, h)
	return ID(len(e.handlers) - 1)
}

// Now returns the time of the event that is being handled.
func (e *Engine) Now() Time { return e.now }

// Advance sets the clock to t if that is later. No event may be before t.
func (e *Engine) Advance(t Time) { e.now = max(e.now, t) }

// Handled returns how many events were handled so far.
func (e *Engine) Handled() uint64 { return e.handled }

// Pending returns how many events are still to come.
func (e *Engine) Pending() int { return e.queue.n }

// Stop ends Run after the current event.
func (e *Engine) Stop() { e.stopped = true }

// At schedules an event. Events of the same time happen in the order in which
// they were scheduled. The past cannot be changed: it panics.
func (e *Engine) At(t Time, id ID, arg uint64) {
	if t < e.now {
		panic(fmt.Sprintf("engine: an event of handler %d is scheduled for %v, which is before %v", id, t, e.now))
	}
	e.queue.push(event{at: t, arg: arg, id: id})
	if t < e.next && e.next != Never {
		e.next = t
	}
}

// Next returns the time of the next event, Never if there is none.
func (e *Engine) Next() Time {
	if e.next == Never {
		e.next = e.queue.earliest()
	}
	return e.next
}

// Run handles events until none is left, the next one is later than until, or
// somebody calls Stop. The clock then stands at the last event, or at until if
// later events wait. It may be called again.
func (e *Engine) Run(until Time) {
	e.stopped = false
	e.next = Never
	for !e.stopped {
		next := e.queue.peek(until)
		if next == nil {
			if e.queue.n > 0 {
				e.now = max(e.now, until)
			}
			return
		}
		ev := *next
		e.queue.drop()
		e.now = ev.at
		e.handled++
		e.handlers[ev.id].Handle(ev.at, ev.arg)
	}
}

// Timer is one event that can be moved and called off. Moving it later costs
// nothing: the event that is pending finds out when it happens. The zero value
// is not useful; it is made by [Engine.NewTimer] and owned by its Handler, which
// asks [Timer.Due] first when the event comes.
type Timer struct {
	deadline Time // Never: off
	pending  Time // of the event in the queue; Never: none
}

// NewTimer returns a timer that is off.
func NewTimer() Timer { return Timer{Never, Never} }

// Set makes the timer due at t: the event goes to id with arg.
func (m *Timer) Set(e *Engine, t Time, id ID, arg uint64) {
	m.deadline = t
	if t < m.pending {
		m.pending = t
		e.At(t, id, arg)
	}
}

// Off calls the timer off.
func (m *Timer) Off() { m.deadline = Never }

// On reports whether the timer is set, and for when.
func (m *Timer) On() (Time, bool) { return m.deadline, m.deadline != Never }

// Due is what the Handler asks when an event of this timer comes: it reports
// whether the time has come, and otherwise schedules what is still to come. A
// timer that is due is off until it is set again.
func (m *Timer) Due(e *Engine, now Time, id ID, arg uint64) bool {
	if now != m.pending {
		return false // an event that a later Set made needless
	}
	m.pending = Never
	if m.deadline == Never {
		return false
	}
	if m.deadline > now {
		m.pending = m.deadline
		e.At(m.deadline, id, arg)
		return false
	}
	m.deadline = Never
	return true
}
