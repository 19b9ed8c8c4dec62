package dataplane

import "sync/atomic"

// meshSize is how many events may be on their way from one worker to another;
// power of two.
const meshSize = 1024

// mesh carries events between the workers of a node: one ring a pair of workers,
// each with one writer and one reader. A full ring loses the event, and that is
// counted; whoever tells events has to be able to bear it.
type mesh[T any] struct {
	workers int
	rings   []meshRing[T] // from*workers + to
	lost    []meshLoss    // by teller
}

type meshLoss struct {
	n atomic.Uint64
	_ [56]byte
}

type meshRing[T any] struct {
	head atomic.Uint64 // next to read; written by the reader
	_    [56]byte
	tail atomic.Uint64 // next to write; written by the writer
	_    [56]byte
	buf  [meshSize]T
}

func newMesh[T any](workers int) *mesh[T] {
	return &mesh[T]{workers: workers, rings: make([]meshRing[T], workers*workers), lost: make([]meshLoss, workers)}
}

// tell gives all other workers a copy of e. It is called by worker from only.
func (m *mesh[T]) tell(from int, e *T) {
	for to := range m.workers {
		if to == from {
			continue
		}
		r := &m.rings[from*m.workers+to]
		t := r.tail.Load()
		if t-r.head.Load() == meshSize {
			m.lost[from].n.Add(1)
			continue
		}
		r.buf[t%meshSize] = *e
		r.tail.Store(t + 1)
	}
}

// between returns the ring from one worker to another, for that one to read.
func (m *mesh[T]) between(from, to int) *meshRing[T] { return &m.rings[from*m.workers+to] }

// front returns the oldest event, which stays in its place until pop; nil: there
// is none.
func (r *meshRing[T]) front() *T {
	h := r.head.Load()
	if h == r.tail.Load() {
		return nil
	}
	return &r.buf[h%meshSize]
}

// pop removes the event that front returned.
func (r *meshRing[T]) pop() { r.head.Store(r.head.Load() + 1) }
