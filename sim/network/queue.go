package network

// queue is a FIFO of packets, linked through themselves.
type queue struct {
	head, tail *Packet
	n          int
	bytes      uint64
}

func (q *queue) push(p *Packet) {
	p.next = nil
	if q.tail == nil {
		q.head = p
	} else {
		q.tail.next = p
	}
	q.tail = p
	q.n++
	q.bytes += uint64(p.Size)
}

// pop returns the oldest packet, nil if there is none. A packet's Size does not
// change while it is in a queue.
func (q *queue) pop() *Packet {
	p := q.head
	if p == nil {
		return nil
	}
	q.head = p.next
	if q.head == nil {
		q.tail = nil
	}
	p.next = nil
	q.n--
	q.bytes -= uint64(p.Size)
	return p
}
