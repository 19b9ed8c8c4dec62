package dataplane

import "sync/atomic"

// ringSize is how many events may be on their way from one worker to another;
// power of two.
const ringSize = 1024

// workerRings carry events between the workers of a node: one ring a pair of
// workers, each with one writer and one reader. A full ring loses the event, and
// that is counted: events must be such that the loss of one can be borne.
type workerRings[T any] struct {
	workers int
	rings   []workerRing[T] // from*workers + to
	lost    []ringLoss      // by sender
}

type ringLoss struct {
	n atomic.Uint64
	_ [56]byte
}

type workerRing[T any] struct {
	head atomic.Uint64 // next to read; written by the reader
	_    [56]byte
	tail atomic.Uint64 // next to write; written by the writer
	_    [56]byte
	buf  [ringSize]T
}

func newWorkerRings[T any](workers int) *workerRings[T] {
	return &workerRings[T]{
		workers: workers, rings: make([]workerRing[T], workers*workers), lost: make([]ringLoss, workers),
	}
}

// send gives all other workers a copy of e. It is called by worker from only.
func (m *workerRings[T]) send(from int, e *T) {
	lost := uint64(0)
	for to := range m.workers {
		if to == from {
			continue
		}
		r := &m.rings[from*m.workers+to]
		t := r.tail.Load()
		if t-r.head.Load() == ringSize {
			lost++
			continue
		}
		r.buf[t%ringSize] = *e
		r.tail.Store(t + 1)
	}
	if lost > 0 {
		m.lost[from].n.Add(lost)
	}
}

// between returns the ring from one worker to another, for that one to read.
func (m *workerRings[T]) between(from, to int) *workerRing[T] { return &m.rings[from*m.workers+to] }

// each gives a worker what the others have sent to it.
func (m *workerRings[T]) each(to int, do func(*T)) {
	for from := range m.workers {
		r := m.between(from, to)
		for e := r.front(); e != nil; e = r.front() {
			do(e)
			r.pop()
		}
	}
}

// front returns the oldest event, which stays where it is until pop; nil: there is
// none.
func (r *workerRing[T]) front() *T {
	h := r.head.Load()
	if h == r.tail.Load() {
		return nil
	}
	return &r.buf[h%ringSize]
}

// pop removes the event that front returned.
func (r *workerRing[T]) pop() { r.head.Store(r.head.Load() + 1) }
