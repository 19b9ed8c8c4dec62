package xsk

import "sync/atomic"

// ring is the common part of both ends of an AF_XDP ring: a power of two of slots,
// and two free-running 32-bit indices in shared memory. Each end writes one index.
// Indices are stored without a mask, so that producer - consumer is the fill level
// even after they wrap around 2^32.
type ring[T any] struct {
	slots    []T
	mask     uint32
	prod     uint32 // producer index: ours, or the last one seen
	cons     uint32 // consumer index: ours, or the last one seen
	producer *atomic.Uint32
	consumer *atomic.Uint32
	flags    *atomic.Uint32
}

// newRing lays a ring over shared words and slots. It starts from the indices
// that are in memory; the number of slots must be a power of two.
func newRing[T any](producer, consumer, flags *atomic.Uint32, slots []T) ring[T] {
	return ring[T]{
		slots:    slots,
		mask:     uint32(len(slots) - 1),
		prod:     producer.Load(),
		cons:     consumer.Load(),
		producer: producer,
		consumer: consumer,
		flags:    flags,
	}
}

// reread takes the indices from memory, where another process has moved ours.
func (r *ring[T]) reread() { r.prod, r.cons = r.producer.Load(), r.consumer.Load() }

// size returns the number of slots.
func (r *ring[T]) size() uint32 { return r.mask + 1 }

// needWakeup reports whether the kernel has asked for a system call before it
// goes on with this ring.
func (r *ring[T]) needWakeup() bool { return r.flags.Load()&needWakeupFlag != 0 }

// needWakeupFlag is XDP_RING_NEED_WAKEUP.
const needWakeupFlag = 1

// producerRing is the user's end of a ring that the kernel consumes: TX, fill.
type producerRing[T any] struct{ ring[T] }

// free returns how many slots can be produced now. It looks at the shared
// consumer index, which costs a cache miss when the kernel has moved it.
func (r *producerRing[T]) free() uint32 {
	r.cons = r.consumer.Load()
	return r.size() - (r.prod - r.cons)
}

// produce copies as much of src as fits, publishes it with one store and
// returns how many entries that was. The shared consumer index is read only
// when the cached one shows too little room.
func (r *producerRing[T]) produce(src []T) int {
	room := r.size() - (r.prod - r.cons)
	if uint64(room) < uint64(len(src)) {
		room = r.free()
		if uint64(room) < uint64(len(src)) {
			src = src[:room]
		}
	}
	if len(src) == 0 {
		return 0
	}
	n := copy(r.slots[r.prod&r.mask:], src)
	copy(r.slots, src[n:])
	r.prod += uint32(len(src))
	// The store is a release: the consumer sees the slots before the index.
	r.producer.Store(r.prod)
	return len(src)
}

// consumerRing is the user's end of a ring that the kernel produces: RX,
// completion.
type consumerRing[T any] struct{ ring[T] }

// available returns how many entries can be consumed now.
func (r *consumerRing[T]) available() uint32 {
	r.prod = r.producer.Load()
	return r.prod - r.cons
}

// consume copies entries to dst, hands their slots back with one store and
// returns how many there were. The shared producer index is read only when the
// cached one does not show enough to fill dst.
func (r *consumerRing[T]) consume(dst []T) int {
	ready := r.prod - r.cons
	if uint64(ready) < uint64(len(dst)) {
		// The load is an acquire: slots up to the index are visible after it.
		ready = r.available()
		if uint64(ready) < uint64(len(dst)) {
			dst = dst[:ready]
		}
	}
	if len(dst) == 0 {
		return 0
	}
	n := copy(dst, r.slots[r.cons&r.mask:])
	copy(dst[n:], r.slots)
	r.cons += uint32(len(dst))
	r.consumer.Store(r.cons)
	return len(dst)
}
