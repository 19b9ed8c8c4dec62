package network

// ring is a FIFO in memory of its own, which grows to what was needed most. What waits in
// one is not touched before its turn: packets are seldom in the cache by then.
type ring[T any] struct {
	buf  []T // a power of two of them
	head int
	n    int
}

func (r *ring[T]) push(x T) {
	if r.n == len(r.buf) {
		r.grow()
	}
	r.buf[(r.head+r.n)&(len(r.buf)-1)] = x
	r.n++
}

func (r *ring[T]) grow() {
	buf := make([]T, max(32, 2*len(r.buf)))
	for i := range r.n {
		buf[i] = *r.at(i)
	}
	r.buf, r.head = buf, 0
}

// pop takes the oldest one; there is one.
func (r *ring[T]) pop() T {
	x := r.buf[r.head]
	r.head = (r.head + 1) & (len(r.buf) - 1)
	r.n--
	return x
}

// at returns the i-th oldest one.
func (r *ring[T]) at(i int) *T { return &r.buf[(r.head+i)&(len(r.buf)-1)] }
