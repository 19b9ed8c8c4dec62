package network

// queue is a FIFO of packets.
type queue struct {
	ring[*Packet]
	bytes uint64
}

func (q *queue) push(p *Packet) {
	q.ring.push(p)
	q.bytes += uint64(p.Size)
}

// pop returns the oldest packet, nil if there is none. A packet's Size does not
// change while it is in a queue.
func (q *queue) pop() *Packet {
	if q.n == 0 {
		return nil
	}
	p := q.ring.pop()
	q.bytes -= uint64(p.Size)
	return p
}
