package reorder

// Holds is a pool of bounded FIFOs of frames that wait for something: a next
// hop's MAC address, or the TAIL packet of the path they overtook (ConWeave
// §3.3). All queues draw on one pool of items, so that many queues that are
// seldom used cost little; a limit on each queue keeps one from taking the
// pool.
//
// Holds is owned by one worker; it is not safe for concurrent use. Nothing is
// allocated after [NewHolds]. The queue arguments of all methods must be below
// the number of queues.
type Holds[T any] struct {
	items []held[T]
	queue []fifo
	free  int32 // first of the list of free items
	limit int   // items a queue
	total int
}

// none ends a list of items.
const none = int32(-1)

type held[T any] struct {
	v    T
	next int32
}

type fifo struct {
	head, tail int32
	n          int
}

// NewHolds returns empty queues that hold at most items values in all, and at
// most perQueue in one of them. Numbers below zero count as zero.
func NewHolds[T any](queues, items, perQueue int) *Holds[T] {
	h := &Holds[T]{
		items: make([]held[T], max(items, 0)),
		queue: make([]fifo, max(queues, 0)),
		free:  none,
		limit: perQueue,
	}
	for i := range h.queue {
		h.queue[i] = fifo{head: none, tail: none}
	}
	for i := len(h.items) - 1; i >= 0; i-- {
		h.items[i].next = h.free
		h.free = int32(i)
	}
	return h
}

// Each calls do for the values of queue q, the oldest first. do must not change the
// queues.
func (h *Holds[T]) Each(q int, do func(*T)) {
	for i := h.queue[q].head; i != none; i = h.items[i].next {
		do(&h.items[i].v)
	}
}

// Push appends v to queue q. It reports false, and v stays the caller's, when the
// queue or the pool is full.
func (h *Holds[T]) Push(q int, v T) bool {
	f := &h.queue[q]
	i := h.free
	if i == none || f.n >= h.limit {
		return false
	}
	it := &h.items[i]
	h.free = it.next
	it.v, it.next = v, none
	if f.n == 0 {
		f.head = i
	} else {
		h.items[f.tail].next = i
	}
	f.tail = i
	f.n++
	h.total++
	return true
}

// Pop removes and returns the oldest value of queue q.
func (h *Holds[T]) Pop(q int) (T, bool) {
	var zero T
	f := &h.queue[q]
	if f.n == 0 {
		return zero, false
	}
	i := f.head
	it := &h.items[i]
	v := it.v
	it.v = zero // what v refers to is the caller's from here on
	f.head = it.next
	f.n--
	if f.n == 0 {
		f.tail = none
	}
	it.next = h.free
	h.free = i
	h.total--
	return v, true
}

// Peek returns the oldest value of queue q and leaves it there.
func (h *Holds[T]) Peek(q int) (T, bool) {
	f := &h.queue[q]
	if f.n == 0 {
		var zero T
		return zero, false
	}
	return h.items[f.head].v, true
}

// Len returns the number of values in queue q.
func (h *Holds[T]) Len(q int) int { return h.queue[q].n }

// Total returns the number of values in all queues.
func (h *Holds[T]) Total() int { return h.total }
