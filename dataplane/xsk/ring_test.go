package xsk

import (
	"math/rand/v2"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
)

// fakeRing is a ring over plain memory with both ends: what the kernel and
// user space share, without the kernel.
type fakeRing struct {
	producer, consumer, flags atomic.Uint32
	slots                     []uint64
}

// newFakeRing starts both indices at start, as a ring that has been in use.
func newFakeRing(size int, start uint32) *fakeRing {
	f := &fakeRing{slots: make([]uint64, size)}
	f.producer.Store(start)
	f.consumer.Store(start)
	return f
}

func (f *fakeRing) producerEnd() producerRing[uint64] {
	return producerRing[uint64]{newRing(&f.producer, &f.consumer, &f.flags, f.slots)}
}

func (f *fakeRing) consumerEnd() consumerRing[uint64] {
	return consumerRing[uint64]{newRing(&f.producer, &f.consumer, &f.flags, f.slots)}
}

// starts are index values around the wrap of 2^32 and of the smaller powers.
var starts = []uint32{0, 1, 7, 1<<31 - 3, 1 << 31, 1<<32 - 9, 1<<32 - 1}

func sequence(from, n int) []uint64 {
	s := make([]uint64, n)
	for i := range s {
		s[i] = uint64(from + i)
	}
	return s
}

func TestRingEmptyAndFull(t *testing.T) {
	for _, start := range starts {
		for _, size := range []int{1, 2, 8, 64} {
			f := newFakeRing(size, start)
			p, c := f.producerEnd(), f.consumerEnd()
			buf := make([]uint64, size+3)
			if n := c.consume(buf); n != 0 || c.available() != 0 {
				t.Fatalf("size %d, start %#x: empty ring gave %d entries, %d available", size, start, n, c.available())
			}
			if got := p.free(); got != uint32(size) {
				t.Fatalf("size %d, start %#x: empty ring has room for %d", size, start, got)
			}
			if n := p.produce(sequence(100, size+3)); n != size {
				t.Fatalf("size %d, start %#x: took %d of %d", size, start, n, size+3)
			}
			if n := p.produce(sequence(0, 1)); n != 0 || p.free() != 0 {
				t.Fatalf("size %d, start %#x: full ring took %d, %d free", size, start, n, p.free())
			}
			if got := f.producer.Load() - f.consumer.Load(); got != uint32(size) {
				t.Fatalf("size %d, start %#x: shared indices are %d apart", size, start, got)
			}
			if n := c.consume(buf); n != size || !slices.Equal(buf[:n], sequence(100, size)) {
				t.Fatalf("size %d, start %#x: consumed %v", size, start, buf[:n])
			}
			if n := p.produce(nil); n != 0 {
				t.Fatalf("nothing produced %d", n)
			}
			if n := c.consume(nil); n != 0 {
				t.Fatalf("nothing consumed %d", n)
			}
		}
	}
}

// TestRingPartialBatches splits batches where the slots wrap.
func TestRingPartialBatches(t *testing.T) {
	for _, start := range starts {
		f := newFakeRing(8, start)
		p, c := f.producerEnd(), f.consumerEnd()
		next, want := 0, 0
		buf := make([]uint64, 8)
		for step := range 40 {
			n := p.produce(sequence(next, step%5+1))
			next += n
			got := c.consume(buf[:step%3+1])
			if !slices.Equal(buf[:got], sequence(want, got)) {
				t.Fatalf("start %#x, step %d: consumed %v, want from %d", start, step, buf[:got], want)
			}
			want += got
			if int(p.size()-p.free()) != next-want {
				t.Fatalf("start %#x, step %d: %d free, but %d are queued", start, step, p.free(), next-want)
			}
		}
	}
}

// TestRingPublishesOnce checks that an end stores its index only after a whole
// batch, and never the other's.
func TestRingPublishesOnce(t *testing.T) {
	f := newFakeRing(8, 1<<32-2)
	p, c := f.producerEnd(), f.consumerEnd()
	p.produce(sequence(0, 5))
	if f.producer.Load() != 3 || f.consumer.Load() != 1<<32-2 {
		t.Fatalf("after producing 5: producer %d, consumer %#x", f.producer.Load(), f.consumer.Load())
	}
	c.consume(make([]uint64, 4))
	if f.producer.Load() != 3 || f.consumer.Load() != 2 {
		t.Fatalf("after consuming 4: producer %d, consumer %d", f.producer.Load(), f.consumer.Load())
	}
}

// TestRingCachesTheOtherEnd checks that the other end's index is not read while
// the cached one suffices: that read is a cache miss for each burst.
func TestRingCachesTheOtherEnd(t *testing.T) {
	f := newFakeRing(8, 0)
	p, c := f.producerEnd(), f.consumerEnd()
	p.produce(sequence(0, 8))
	c.consume(make([]uint64, 4))
	if n := p.produce(sequence(8, 2)); n != 2 || p.cons != 4 {
		t.Fatalf("produced %d with consumer %d seen", n, p.cons)
	}
	c.consume(make([]uint64, 2)) // 6 consumed; the producer has seen 4
	if n := p.produce(sequence(10, 2)); n != 2 || p.cons != 4 {
		t.Fatalf("produced %d; consumer index %d was read again without need", n, p.cons)
	}
	if n := p.produce(sequence(12, 1)); n != 1 || p.cons != 6 {
		t.Fatalf("produced %d with consumer %d seen, want 1 and 6", n, p.cons)
	}
	// The consumer saw 8; 2 of those are left.
	if n := c.consume(make([]uint64, 2)); n != 2 || c.prod != 8 {
		t.Fatalf("consumed %d; producer index %d was read again without need", n, c.prod)
	}
}

func TestRingNeedWakeup(t *testing.T) {
	f := newFakeRing(8, 0)
	p := f.producerEnd()
	if p.needWakeup() {
		t.Error("wake-up needed though the flag is not set")
	}
	f.flags.Store(1)
	if !p.needWakeup() {
		t.Error("wake-up not needed though the flag is set")
	}
	f.flags.Store(2)
	if p.needWakeup() {
		t.Error("another flag was taken for need_wakeup")
	}
}

// TestRingModel holds a ring against a slice used as a queue, on random batches
// from random indices.
func TestRingModel(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %#x", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for round := range 200 {
		size := 1 << rng.IntN(8)
		start := -uint32(rng.IntN(2 * size))
		if round%2 == 1 {
			start = rng.Uint32()
		}
		f := newFakeRing(size, start)
		p, c := f.producerEnd(), f.consumerEnd()
		var queue []uint64
		next := 0
		for range 300 {
			if rng.IntN(2) == 0 {
				batch := sequence(next, rng.IntN(size+3))
				n := p.produce(batch)
				if want := min(len(batch), size-len(queue)); n != want {
					t.Fatalf("size %d, start %#x: produced %d, want %d", size, start, n, want)
				}
				queue = append(queue, batch[:n]...)
				next += n
			} else {
				buf := make([]uint64, rng.IntN(size+3))
				n := c.consume(buf)
				if want := min(len(buf), len(queue)); n != want || !slices.Equal(buf[:n], queue[:n]) {
					t.Fatalf("size %d, start %#x: consumed %v, want %v", size, start, buf[:n], queue[:want])
				}
				queue = queue[n:]
			}
			if int(c.available()) != len(queue) || int(p.free()) != size-len(queue) {
				t.Fatalf("size %d, start %#x: %d available, %d free, want %d and %d",
					size, start, c.available(), p.free(), len(queue), size-len(queue))
			}
		}
	}
}

// TestRingTwoGoroutines passes numbers from one goroutine to another; with the
// race detector it shows that the indices order the accesses to the slots.
func TestRingTwoGoroutines(t *testing.T) {
	const total = 100_000
	f := newFakeRing(64, 1<<32-1000)
	p, c := f.producerEnd(), f.consumerEnd()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for next := 0; next < total; {
			n := p.produce(sequence(next, min(1+next%48, total-next)))
			next += n
			if n == 0 {
				runtime.Gosched()
			}
		}
	}()
	buf := make([]uint64, 48)
	for next := 0; next < total; {
		n := c.consume(buf[:1+next%len(buf)])
		if !slices.Equal(buf[:n], sequence(next, n)) {
			t.Fatalf("consumed %v, want from %d", buf[:n], next)
		}
		next += n
		if n == 0 {
			runtime.Gosched()
		}
	}
	<-done
	if c.available() != 0 {
		t.Errorf("%d entries are left", c.available())
	}
}

func TestRingDoesNotAllocate(t *testing.T) {
	f := newFakeRing(64, 0)
	p, c := f.producerEnd(), f.consumerEnd()
	batch := make([]uint64, 32)
	if n := testing.AllocsPerRun(100, func() {
		p.produce(batch)
		c.consume(batch)
	}); n != 0 {
		t.Errorf("a batch allocates %v times", n)
	}
}

func BenchmarkRing(b *testing.B) {
	for _, size := range []int{1, 32, 64} {
		b.Run(map[int]string{1: "batch=1", 32: "batch=32", 64: "batch=64"}[size], func(b *testing.B) {
			var words [3]atomic.Uint32
			slots := make([]Desc, 2048)
			p := producerRing[Desc]{newRing(&words[0], &words[1], &words[2], slots)}
			c := consumerRing[Desc]{newRing(&words[0], &words[1], &words[2], slots)}
			batch := make([]Desc, size)
			b.ReportAllocs()
			for i := 0; i < b.N; i += size {
				if p.produce(batch) != size || c.consume(batch) != size {
					b.Fatal("a batch did not fit")
				}
			}
		})
	}
}
