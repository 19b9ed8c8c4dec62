package rdma

import (
	"github.com/loomfabric/loom/sim/engine"
	"github.com/loomfabric/loom/sim/network"
)

// receiver is a queue pair's other end.
type receiver QP

// Receive takes a data packet.
func (r *receiver) Receive(now engine.Time, p *network.Packet) {
	q := (*QP)(r)
	c := &q.stack.c
	q.n.Received++
	q.order(p)
	if p.CE {
		q.congested(now)
	}
	psn := p.Seq
	q.dst.net.Pool.Put(p)
	switch {
	case psn < q.expected || c.Recovery == IRN && psn > q.expected && q.have.has(psn):
		// The answer to it was lost, or it was resent needlessly: say again what
		// there is.
		q.n.Duplicates++
		q.answer(now, psn)
	case psn > q.expected:
		q.gap(now, psn)
	default:
		q.inOrder(now)
	}
}

// order measures reordering as the network made it.
func (q *QP) order(p *network.Packet) {
	if p.Seq >= q.latest {
		q.latest = p.Seq + 1
	} else if !p.Retrans {
		extent := q.latest - 1 - p.Seq
		q.n.Reordered++
		q.n.Extent += extent
		q.n.MaxExtent = max(q.n.MaxExtent, extent)
	}
}

// congested is DCQCN's notification point (DCQCN §3.1): a packet came marked,
// or leaves a gap.
func (q *QP) congested(now engine.Time) {
	c := &q.stack.c
	if c.Control != DCQCN {
		return
	}
	if c.CNPInterval == 0 {
		q.mark = true
		return
	}
	if now >= q.cnpAgain {
		q.cnpAgain = now + c.CNPInterval
		q.send(now, network.CNP, c.CNPBytes)
	}
}

// gap deals with a packet that came before the one that is expected.
func (q *QP) gap(now engine.Time, psn uint64) {
	c := &q.stack.c
	distance := psn - q.expected
	q.n.OutOfOrder++
	q.n.Distance += distance
	q.n.MaxDistance = max(q.n.MaxDistance, distance)
	if c.Recovery == IRN {
		q.have.set(psn)
	} else {
		q.n.Discarded++
		if q.nacked && (c.NackInterval == 0 || now < q.nackAgain) {
			return
		}
		q.nacked, q.nackAgain = true, now+c.NackInterval
	}
	if c.OutOfOrderCNP {
		q.congested(now)
	}
	q.answer(now, psn)
}

// inOrder takes the packet that is expected, and what was kept behind it.
func (q *QP) inOrder(now engine.Time) {
	c := &q.stack.c
	q.nacked = false
	ended := false
	for {
		m := q.incoming.at(0)
		q.n.Delivered += uint64(m.payload(q.expected, c.Payload))
		q.expected++
		q.unanswered++
		if q.expected == m.end {
			m.Received = now
			q.incoming.pop()
			ended = true
		}
		if c.Recovery != IRN || !q.have.has(q.expected) {
			break
		}
		q.have.clear(q.expected)
	}
	if ended || q.unanswered >= c.AckEvery {
		q.answer(now, q.expected-1)
	}
}

// answer says what is expected; if psn is of after that, also that it came.
func (q *QP) answer(now engine.Time, psn uint64) {
	kind := network.Ack
	if psn > q.expected {
		kind = network.Nack
	}
	p := q.packet(now, kind, q.stack.c.AckBytes)
	p.Seq = q.expected
	if kind == network.Nack && q.stack.c.Recovery == IRN {
		p.Blocks[0] = network.Block{From: psn, To: psn + 1}
		p.NBlocks = 1
	}
	p.Echo = q.mark
	q.mark = false
	q.unanswered = 0
	q.flow.Dst.Send(now, p, network.ControlClass)
}

// send sends a packet that has nothing to say but its kind.
func (q *QP) send(now engine.Time, kind network.Kind, size uint32) {
	q.flow.Dst.Send(now, q.packet(now, kind, size), network.ControlClass)
}

func (q *QP) packet(now engine.Time, kind network.Kind, size uint32) *network.Packet {
	p := q.dst.net.Pool.Get()
	p.Flow, p.Src, p.Dst, p.Hash = q.flow.ID, q.flow.Dst.ID, q.flow.Src.ID, q.flow.ReverseHash
	p.Kind, p.Size, p.Sent = kind, size, now
	return p
}
