package reorder

import (
	"math"

	"github.com/loomfabric/loom/internal/mono"
)

// Never is the deadline when nothing is held.
const Never = mono.Time(math.MaxInt64)

// timers is a binary heap of queues by deadline. Each queue knows its index, so
// that a T_resume can be moved when the OLD path brings news.
type timers struct {
	heap []uint16
}

func (t *timers) deadline(qs []queue) mono.Time {
	if len(t.heap) == 0 {
		return Never
	}
	return qs[t.heap[0]].deadline
}

// add puts a queue into the heap, which has room for all of them.
func (t *timers) add(qs []queue, q uint16) {
	t.heap = append(t.heap, q)
	qs[q].index = int32(len(t.heap) - 1)
	t.up(qs, len(t.heap)-1)
}

// moved restores the order after a queue's deadline has changed.
func (t *timers) moved(qs []queue, q uint16) {
	i := int(qs[q].index)
	t.down(qs, i)
	t.up(qs, int(qs[q].index))
}

func (t *timers) remove(qs []queue, q uint16) {
	i, last := int(qs[q].index), len(t.heap)-1
	t.swap(qs, i, last)
	t.heap = t.heap[:last]
	if i < last {
		t.moved(qs, t.heap[i])
	}
}

func (t *timers) swap(qs []queue, i, j int) {
	t.heap[i], t.heap[j] = t.heap[j], t.heap[i]
	qs[t.heap[i]].index, qs[t.heap[j]].index = int32(i), int32(j)
}

func (t *timers) less(qs []queue, i, j int) bool {
	return qs[t.heap[i]].deadline < qs[t.heap[j]].deadline
}

func (t *timers) up(qs []queue, i int) {
	for i > 0 && t.less(qs, i, (i-1)/2) {
		t.swap(qs, i, (i-1)/2)
		i = (i - 1) / 2
	}
}

func (t *timers) down(qs []queue, i int) {
	for {
		least := i
		for c := 2*i + 1; c <= 2*i+2 && c < len(t.heap); c++ {
			if t.less(qs, c, least) {
				least = c
			}
		}
		if least == i {
			return
		}
		t.swap(qs, i, least)
		i = least
	}
}
