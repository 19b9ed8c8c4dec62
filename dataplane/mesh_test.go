package dataplane

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
)

// Of those who answer a poll exactly one learns all answers, however many polls
// there are at a time.
func TestPolls(t *testing.T) {
	const workers, rounds = 4, 3 * meshSize
	m := newMesh[poll](workers)
	var ended, wrong atomic.Int64
	var wg sync.WaitGroup
	for id := 1; id < workers; id++ {
		wg.Go(func() {
			r := m.between(0, id)
			for told := 0; told < rounds; runtime.Gosched() {
				for p := r.front(); p != nil; p = r.front() {
					if all := m.answer(0, *p, uint8(id), 1); all != 0 {
						ended.Add(1)
						if all != 0b1111 {
							wrong.Add(1)
						}
					}
					told++
					r.pop()
				}
			}
		})
	}
	lost := 0
	for asked := 0; asked < rounds; {
		p := m.ask(0, 0)
		if p == noPoll {
			runtime.Gosched()
			continue
		}
		asked++
		for m.between(0, 1).full() || m.between(0, 2).full() || m.between(0, 3).full() {
			runtime.Gosched()
		}
		lost += m.tell(0, &p)
	}
	wg.Wait()
	if lost != 0 || ended.Load() != rounds || wrong.Load() != 0 {
		t.Errorf("%d polls of %d ended, %d of them without all answers; %d events lost", ended.Load(), rounds, wrong.Load(), lost)
	}
}

func (r *meshRing[T]) full() bool { return r.tail.Load()-r.head.Load() == meshSize }

// There are no more polls than have room as long as the oldest has not ended.
func TestPollsThatNobodyAnswers(t *testing.T) {
	m := newMesh[poll](3)
	open := 0
	for m.ask(0, 1) != noPoll {
		if open++; open > meshSize {
			t.Fatal("polls are opened anew that nobody has answered")
		}
	}
	if all := m.answer(0, 0, 2, 2); open != meshSize || all != 1<<1|1<<2 {
		t.Errorf("%d polls were open; the first one ended with answers %b", open, all)
	}
	if p, q := m.ask(0, 1), m.ask(0, 1); p != 0 || q != noPoll {
		t.Errorf("when one has ended, polls %d and %d are opened", p, q)
	}
	if all := m.answer(0, noPoll, 2, 2) | m.answer(0, 1, 2, 0); all != 0 {
		t.Errorf("where nothing was asked, and where nobody answers, the answers are %b", all)
	}
}
