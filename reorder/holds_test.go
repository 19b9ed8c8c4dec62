package reorder

import (
	"math/rand/v2"
	"testing"
	"time"
)

type frame struct {
	id    int
	bytes uint32
}

// TestAgainstSlices drives Holds and plain slices with the same random
// operations and compares everything they can be asked.
func TestAgainstSlices(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	for range 50 {
		queues, items, limit := 1+rng.IntN(8), rng.IntN(40), rng.IntN(12)
		h := NewHolds[frame](queues, items, limit)
		naive := make([][]frame, queues)
		total, id := 0, 0
		for range 2000 {
			q := rng.IntN(queues)
			if rng.IntN(2) == 0 {
				id++
				f := frame{id, uint32(rng.IntN(9000))}
				want := total < items && len(naive[q]) < limit
				if got := h.Push(q, f); got != want {
					t.Fatalf("Push(%d) = %v with %d of %d in the queue and %d of %d in all", q, got, len(naive[q]), limit, total, items)
				}
				if want {
					naive[q] = append(naive[q], f)
					total++
				}
			} else {
				peeked, peekOK := h.Peek(q)
				got, ok := h.Pop(q)
				if ok != (len(naive[q]) > 0) || ok != peekOK || got != peeked {
					t.Fatalf("Pop(%d) = %v, %v; Peek = %v, %v; %d expected", q, got, ok, peeked, peekOK, len(naive[q]))
				}
				if ok {
					if got != naive[q][0] {
						t.Fatalf("Pop(%d) = %v, want %v", q, got, naive[q][0])
					}
					naive[q] = naive[q][1:]
					total--
				}
			}
			if h.Len(q) != len(naive[q]) || h.Total() != total {
				t.Fatalf("queue %d: Len %d Total %d, want %d %d", q, h.Len(q), h.Total(), len(naive[q]), total)
			}
		}
	}
}

func TestLimits(t *testing.T) {
	tests := []struct {
		name                 string
		items, limit, pushes int
		want                 int
	}{
		{"pool is the limit", 3, 10, 5, 3},
		{"queue is the limit", 10, 3, 5, 3},
		{"no items", 0, 3, 2, 0},
		{"no room in a queue", 3, 0, 2, 0},
		{"negative numbers", -1, -1, 2, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := NewHolds[int](2, tt.items, tt.limit)
			got := 0
			for i := range tt.pushes {
				if h.Push(1, i) {
					got++
				}
			}
			if got != tt.want || h.Len(1) != tt.want || h.Len(0) != 0 {
				t.Errorf("%d values went in, lengths %d and %d; want %d, 0 and as many", got, h.Len(0), h.Len(1), tt.want)
			}
		})
	}
}

// A full queue must leave room for the others.
func TestQueueLimitProtectsOthers(t *testing.T) {
	h := NewHolds[int](2, 8, 4)
	for i := range 100 {
		h.Push(0, i)
	}
	for i := range 4 {
		if !h.Push(1, i) {
			t.Fatalf("queue 1 refused value %d although queue 0 is at its limit", i)
		}
	}
}

// A popped value must not be kept alive by the pool.
func TestPopClears(t *testing.T) {
	h := NewHolds[*int](1, 1, 1)
	h.Push(0, new(int))
	h.Pop(0)
	if h.items[0].v != nil {
		t.Error("the pool still refers to a value that was popped")
	}
}

func TestHoldsDoNotAllocate(t *testing.T) {
	h := NewHolds[frame](4, 64, 16)
	if n := testing.AllocsPerRun(1000, func() {
		for i := range 32 {
			h.Push(i&3, frame{i, 64})
		}
		for i := range 32 {
			h.Pop(i & 3)
		}
	}); n != 0 {
		t.Errorf("%v allocations a round, want none", n)
	}
}

func BenchmarkHolds(b *testing.B) {
	h := NewHolds[uint64](1024, 4096, 16)
	b.ReportAllocs()
	q := 0
	for b.Loop() {
		h.Push(q, 1)
		h.Pop(q)
		q = (q + 1) & 1023
	}
}
