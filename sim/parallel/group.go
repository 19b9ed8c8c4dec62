// Package parallel runs the engines of a network's parts side by side, in threads. It
// knows nothing of networks, and decides nothing that shows in a result.
package parallel

import (
	"sync"
	"sync/atomic"

	"github.com/loomfabric/loom/sim/engine"
)

// Group runs engines side by side that each have a part of a network, with as many
// threads as there are to be had, and the same result for any number of them.
//
// What one part does to another takes at least the lookahead, which is the least delay
// of a link between two parts. Time therefore passes in windows that are no longer than
// that: within one, no part can hear of another, and each handles its own events. Between
// two windows one thread works alone: it hands over what crossed from part to part,
// handles the events of the engine that all share, and lets the planner prepare what
// begins in the next window (D. Nicol, "The cost of conservative synchronization in
// parallel discrete event simulations", 1993; the parts, which are many more than
// threads, and threads that take what is left of each other's, are those of UNISON,
// EuroSys 2024).
//
// The parts, the windows and the order in which a part takes over what was sent to it
// depend on the network alone, so threads change nothing.
type Group struct {
	// Shared is the engine of what concerns more than one part. Its events are handled
	// while all parts stand still, before events of the parts of the same time.
	Shared *engine.Engine

	parts     []*engine.Engine
	lookahead engine.Time
	links     Links
	planner   Planner
	threads   int

	now     engine.Time
	end     engine.Time // of the window
	over    bool
	until   engine.Time
	cursors []cursor
	barrier barrier
}

// Links are what carries things from part to part.
type Links interface {
	// Swap ends a window: what was sent in it is what Deliver hands over in the next one.
	Swap()
	// Deliver schedules with part i what was sent to it. It is called in the window.
	Deliver(i int)
	// Sent returns the time of the first thing that part i has sent since Swap; engine.Never
	// if there is none.
	Sent(i int) engine.Time
}

// Planner works between windows.
type Planner interface {
	// Next returns when something begins that Plan is to prepare; engine.Never if nothing does.
	Next() engine.Time
	// Plan prepares all that begins before end.
	Plan(end engine.Time)
	// Settle deals with what the parts have left behind.
	Settle()
}

// cursor counts the parts of a thread that were taken. It fills a cache line.
type cursor struct {
	n atomic.Int32
	_ [60]byte
}

// NewGroup returns a group without parts: Shared is all there is, and [Group.Run] runs
// it.
func NewGroup(shared *engine.Engine) *Group { return &Group{Shared: shared} }

// Split gives the group its parts. The lookahead is above 0.
func (g *Group) Split(parts []*engine.Engine, lookahead engine.Time, l Links, p Planner) {
	if lookahead <= 0 {
		panic("parallel: parts of a group need a lookahead above 0")
	}
	g.parts, g.lookahead, g.links, g.planner = parts, lookahead, l, p
}

// SetThreads says how many threads the group may use: 1 at least.
func (g *Group) SetThreads(n int) { g.threads = n }

// Now returns the time up to which the group has run.
func (g *Group) Now() engine.Time {
	if len(g.parts) == 0 {
		return g.Shared.Now()
	}
	return g.now
}

// Handled returns how many events were handled so far.
func (g *Group) Handled() uint64 {
	sum := g.Shared.Handled()
	for _, e := range g.parts {
		sum += e.Handled()
	}
	return sum
}

// Run handles events until none is left or the next one is later than until, as
// [engine.Engine.Run] does.
func (g *Group) Run(until engine.Time) {
	if len(g.parts) == 0 {
		g.Shared.Run(until)
		return
	}
	g.until, g.over = min(until, engine.Never-1), false
	n := min(max(g.threads, 1), len(g.parts))
	if len(g.cursors) != n {
		g.cursors = make([]cursor, n)
	}
	if n == 1 {
		for g.plan() {
			for i := range g.parts {
				g.step(i)
			}
		}
		return
	}
	g.barrier.reset(n)
	var others sync.WaitGroup
	for k := 1; k < n; k++ {
		others.Go(func() { g.work(k) })
	}
	g.work(0)
	others.Wait()
}

// work is what a thread does: its own parts, and then what others have left of theirs.
func (g *Group) work(k int) {
	n := len(g.cursors)
	plan := func() { g.over = !g.plan() }
	for {
		g.barrier.wait(plan)
		if g.over {
			return
		}
		for other := range n {
			owner := (k + other) % n
			for {
				i := owner + n*int(g.cursors[owner].n.Add(1)-1)
				if i >= len(g.parts) {
					break
				}
				g.step(i)
			}
		}
	}
}

// step lets a part have its window.
func (g *Group) step(i int) {
	g.links.Deliver(i)
	if e := g.parts[i]; e.Next() < g.end {
		e.Run(g.end - 1)
	}
}

// plan ends a window and begins the next one. It reports whether there is one.
func (g *Group) plan() bool {
	g.planner.Settle()
	for {
		parts, shared := g.next(), g.Shared.Next()
		first := min(parts, shared, g.planner.Next())
		if first > g.until {
			g.stop(first)
			return false
		}
		if shared == first {
			g.Shared.Run(shared)
			g.planner.Settle()
			continue
		}
		g.end = min(shared, g.until+1)
		if g.end-first > g.lookahead {
			g.end = first + g.lookahead
		}
		break
	}
	g.planner.Plan(g.end)
	g.end = min(g.end, g.Shared.Next()) // which Plan may have made earlier
	g.links.Swap()
	for k := range g.cursors {
		g.cursors[k].n.Store(0)
	}
	return true
}

// next returns the time of the parts' first event, of which some may be on their way.
func (g *Group) next() engine.Time {
	first := engine.Never
	for i, e := range g.parts {
		first = min(first, e.Next(), g.links.Sent(i))
	}
	return first
}

// stop sets all clocks to where the group stands when the next event is at first.
func (g *Group) stop(first engine.Time) {
	g.now = max(g.now, g.Shared.Now())
	if first < engine.Never {
		g.now = max(g.now, g.until)
	}
	for _, e := range g.parts {
		g.now = max(g.now, e.Now())
	}
	for _, e := range g.parts {
		e.Advance(g.now)
	}
	g.Shared.Advance(g.now)
}
