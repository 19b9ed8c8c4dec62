package network

import (
	"container/heap"

	"github.com/loomfabric/loom/sim/engine"
)

// Source is a flow's sender as its host's interface sees it: asked for packets
// one by one, when the wire is free. A type becomes one by embedding a [Turn]
// and having Pull.
type Source interface {
	// Pull returns the next packet to send at now. Without one it returns when
	// to ask again, later than now (pacing), or engine.Never: then [Host.Ready]
	// must be called when there is something. With a packet the time may be when
	// there will be another one, which saves an idle question; engine.Never or a
	// time that is not later means nothing then, and the source stays ready.
	Pull(now engine.Time) (*Packet, engine.Time)

	turn() *Turn
}

// Turn is a source's place in its host's order; senders embed it. The zero
// value is ready to use. A Turn belongs to one host at a time and is not copied.
type Turn struct {
	source     Source
	prev, next *Turn       // among those that are ready
	at         engine.Time // when to ask again, of those that wait
	order      uint64      // of equal times
	used       uint64      // bytes sent in this turn
	index      int         // in the heap of those that wait
	state      turnState
}

type turnState uint8

const (
	turnIdle turnState = iota
	turnReady
	turnWaiting
)

func (t *Turn) turn() *Turn { return t }

// turns are the sources of a host: those that are ready in a list, in turn;
// those that named a time in a heap, so that the host needs one timer.
type turns struct {
	first, last *Turn
	waiting     waiting
	order       uint64
}

// ready puts t at the end of the list.
func (q *turns) ready(t *Turn) {
	q.idle(t)
	t.state = turnReady
	q.append(t)
}

// rotate moves t, which is ready, to the end.
func (q *turns) rotate(t *Turn) {
	if q.last == t {
		return
	}
	q.unlink(t)
	q.append(t)
}

// wait puts t, which is idle, with those that wait.
func (q *turns) wait(t *Turn, at engine.Time) {
	q.order++
	t.at, t.order, t.state = at, q.order, turnWaiting
	heap.Push(&q.waiting, t)
}

// idle takes t out of where it is.
func (q *turns) idle(t *Turn) {
	switch t.state {
	case turnReady:
		q.unlink(t)
	case turnWaiting:
		heap.Remove(&q.waiting, t.index)
	}
	t.state, t.used = turnIdle, 0
}

func (q *turns) append(t *Turn) {
	t.prev, t.next = q.last, nil
	if q.last == nil {
		q.first = t
	} else {
		q.last.next = t
	}
	q.last = t
}

func (q *turns) unlink(t *Turn) {
	if t.prev == nil {
		q.first = t.next
	} else {
		t.prev.next = t.next
	}
	if t.next == nil {
		q.last = t.prev
	} else {
		t.next.prev = t.prev
	}
	t.prev, t.next = nil, nil
}

// waiting is a heap of turns, for package heap: of equal times, who named it first
// comes first.
type waiting []*Turn

func (w waiting) Len() int { return len(w) }

func (w waiting) Less(i, j int) bool {
	return w[i].at < w[j].at || w[i].at == w[j].at && w[i].order < w[j].order
}

func (w waiting) Swap(i, j int) {
	w[i], w[j] = w[j], w[i]
	w[i].index, w[j].index = i, j
}

// Push adds a *Turn at the end.
func (w *waiting) Push(t any) {
	t.(*Turn).index = len(*w)
	*w = append(*w, t.(*Turn))
}

// Pop removes the last one.
func (w *waiting) Pop() any {
	last := len(*w) - 1
	t := (*w)[last]
	(*w)[last] = nil
	*w = (*w)[:last]
	return t
}
