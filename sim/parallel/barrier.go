package parallel

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// barrier lets threads wait for each other, the last one doing something before all go
// on. Waiting is short as a rule, so they look for a while before they sleep.
type barrier struct {
	n       int32
	arrived atomic.Int32
	round   atomic.Uint32

	mutex    sync.Mutex
	cond     *sync.Cond
	sleepers int
}

func (b *barrier) reset(n int) {
	b.n, b.cond = int32(n), sync.NewCond(&b.mutex)
	b.arrived.Store(0)
}

// How long a thread looks: so many times alone, which is about as long as a part of a busy
// fabric takes for its window, then so many times letting others run.
const (
	spins  = 20000
	yields = 50
)

func (b *barrier) wait(last func()) {
	round := b.round.Load()
	if b.arrived.Add(1) == b.n {
		last()
		b.arrived.Store(0)
		b.mutex.Lock()
		b.round.Add(1)
		if b.sleepers > 0 {
			b.cond.Broadcast()
		}
		b.mutex.Unlock()
		return
	}
	for i := range spins + yields {
		if b.round.Load() != round {
			return
		}
		if i >= spins {
			runtime.Gosched()
		}
	}
	b.mutex.Lock()
	b.sleepers++
	for b.round.Load() == round {
		b.cond.Wait()
	}
	b.sleepers--
	b.mutex.Unlock()
}
