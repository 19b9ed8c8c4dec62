package network

import "github.com/loomfabric/loom/sim/engine"

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
	index      int32       // in the heap of those that wait
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
	heap        []*Turn
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
	q.heap = append(q.heap, t)
	t.index = int32(len(q.heap) - 1)
	q.up(t)
}

// idle takes t out of where it is.
func (q *turns) idle(t *Turn) {
	switch t.state {
	case turnReady:
		q.unlink(t)
	case turnWaiting:
		q.remove(t)
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

// before is the order of the heap: of equal times, who named it first.
func (t *Turn) before(u *Turn) bool {
	return t.at < u.at || t.at == u.at && t.order < u.order
}

func (q *turns) put(i int32, t *Turn) {
	q.heap[i] = t
	t.index = i
}

func (q *turns) up(t *Turn) {
	i := t.index
	for i > 0 {
		parent := (i - 1) / 2
		if !t.before(q.heap[parent]) {
			break
		}
		q.put(i, q.heap[parent])
		i = parent
	}
	q.put(i, t)
}

func (q *turns) down(t *Turn) {
	i, n := t.index, int32(len(q.heap))
	for {
		c := 2*i + 1
		if c >= n {
			break
		}
		if c+1 < n && q.heap[c+1].before(q.heap[c]) {
			c++
		}
		if !q.heap[c].before(t) {
			break
		}
		q.put(i, q.heap[c])
		i = c
	}
	q.put(i, t)
}

func (q *turns) remove(t *Turn) {
	last := q.heap[len(q.heap)-1]
	q.heap[len(q.heap)-1] = nil
	q.heap = q.heap[:len(q.heap)-1]
	if last == t {
		return
	}
	q.put(t.index, last)
	q.up(last)
	q.down(last)
}
