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
	polls   []pollBook    // by teller
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
	return &mesh[T]{
		workers: workers, rings: make([]meshRing[T], workers*workers),
		lost: make([]meshLoss, workers), polls: make([]pollBook, workers),
	}
}

// tell gives all other workers a copy of e, and returns how many of them have no
// room for it. It is called by worker from only.
func (m *mesh[T]) tell(from int, e *T) (lost int) {
	for to := range m.workers {
		if to == from {
			continue
		}
		r := &m.rings[from*m.workers+to]
		t := r.tail.Load()
		if t-r.head.Load() == meshSize {
			lost++
			continue
		}
		r.buf[t%meshSize] = *e
		r.tail.Store(t + 1)
	}
	if lost > 0 {
		m.lost[from].n.Add(uint64(lost))
	}
	return lost
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

// A poll is a question that goes along with an event, for what no worker alone
// knows: each answers it, and the one that happens to be last learns all answers.
// Nobody waits for it. An answer is a number below maxAnswers.
type poll uint16

// noPoll goes along with an event that asks nothing.
const noPoll poll = meshSize

const (
	maxAnswers = 16
	pollOpen   = 1<<16 - 1 // of a poll's word: how many have not answered; above it a bit for each answer given
)

// pollBook is the polls that one worker holds.
type pollBook struct {
	next  uint32
	words [meshSize]atomic.Uint32
}

// ask opens a poll among the workers other than from, which has answered already.
// It is called by worker from, before it tells the event. Where a worker is behind
// so many polls that all are open there is none: noPoll.
func (m *mesh[T]) ask(from int, answer uint8) poll {
	b := &m.polls[from]
	p := poll(b.next % meshSize)
	if b.words[p].Load()&pollOpen != 0 {
		return noPoll
	}
	b.next++
	b.words[p].Store(answerBit(answer) | uint32(m.workers-1))
	return p
}

// answer answers a poll of a worker's for n others, once each. To the last one it
// returns what all have answered, a bit for each answer; to all before it, and of
// noPoll, nothing.
func (m *mesh[T]) answer(from int, p poll, answer uint8, n int) (all uint16) {
	if p >= noPoll || n == 0 {
		return 0
	}
	w := &m.polls[from].words[p]
	w.Or(answerBit(answer)) // first: who is last must see it
	if left := w.Add(-uint32(n)); left&pollOpen == 0 {
		return uint16(left >> 16)
	}
	return 0
}

func answerBit(answer uint8) uint32 { return 1 << (16 + answer%maxAnswers) }
