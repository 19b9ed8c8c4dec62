package rdma

import (
	"math"

	"github.com/loomfabric/loom/sim/engine"
	"github.com/loomfabric/loom/sim/network"
)

// Pull is the interface's to call: the next packet, if the rate and the window
// let one go.
func (q *QP) Pull(now engine.Time) (*network.Packet, engine.Time) {
	psn, ok := q.choose()
	if !ok {
		q.idle = true
		return nil, engine.Never
	}
	if now < q.paceUntil {
		return nil, q.paceUntil
	}
	c := &q.stack.c
	m := q.messages.of(psn)
	p := q.src.net.Pool.Get()
	p.Flow, p.Src, p.Dst, p.Hash = q.flow.ID, q.flow.Src.ID, q.flow.Dst.ID, q.flow.Hash
	p.Kind = network.Data
	p.Seq, p.Number, p.Sent = psn, psn, now
	p.Len = m.payload(psn, c.Payload)
	p.Size = p.Len + c.Header
	p.Last = psn+1 == m.end
	p.ECT = c.Control == DCQCN
	p.Retrans = psn < q.highest

	q.n.Packets++
	q.n.Bytes += uint64(p.Size)
	if p.Retrans {
		q.n.Retransmitted++
	}
	if q.loss.on && psn < q.next {
		q.loss.next = psn + 1
	} else {
		q.next = psn + 1
		q.highest = max(q.highest, q.next)
	}
	if c.Control == DCQCN {
		q.pace(now, p.Size)
	}
	q.restart(now)
	return p, q.paceUntil
}

// choose returns the packet that is next.
func (q *QP) choose() (psn uint64, ok bool) {
	if l := &q.loss; l.on {
		for ; l.next < l.lost; l.next++ {
			if !q.sacked.has(l.next) {
				return l.next, true
			}
		}
	}
	if q.next == q.posted {
		return 0, false
	}
	// BDP-FC: IRN §3.2.
	if w := q.stack.window; w > 0 && q.next-q.una >= w {
		return 0, false
	}
	return q.next, true
}

// pace keeps the next packet back for as long as this one takes at the present
// rate. At the line rate the wire does that.
func (q *QP) pace(now engine.Time, size uint32) {
	q.rp.catchUp(now)
	if q.rp.rate < q.rp.line {
		q.paceUntil = now + engine.Time(math.Ceil(float64(size)*8*float64(engine.Second)/q.rp.rate))
	}
	q.rp.sent(size)
}

// wake has the host ask, if it does not do so by itself and there is something
// to send.
func (q *QP) wake(now engine.Time) {
	if !q.idle {
		return
	}
	if _, ok := q.choose(); ok {
		q.idle = false
		q.flow.Src.Ready(now, q)
	}
}

// restart has the timer run from now, while packets are in flight. As the
// InfiniBand specification has it, it is for when nothing comes at all.
func (q *QP) restart(now engine.Time) {
	if q.una == q.highest {
		q.timer.Off()
		return
	}
	c := &q.stack.c
	rto := c.RTO
	if c.Recovery == IRN {
		if rto = c.RTOHigh; q.next-q.una <= c.RTOLowPackets {
			rto = c.RTOLow
		}
	}
	q.timer.Set(q.src.engine, now+rto, q.src.id, uint64(q.number))
}

// timeout takes everything that is in flight for lost. IRN as published resends
// the oldest packet only, and would wait again for each further one of a tail
// that was lost; like the ns-3 of ConWeave, this resends all that was not
// sacked.
func (q *QP) timeout(now engine.Time) {
	q.n.Timeouts++
	if q.stack.c.Recovery == IRN {
		q.loss = loss{on: true, end: q.next, next: q.una, lost: q.next}
	} else {
		q.next = q.una
	}
	q.restart(now)
	q.wake(now)
}

// Receive takes what the receiver sent: ACKs, NACKs and CNPs.
func (q *QP) Receive(now engine.Time, p *network.Packet) {
	kind, expected, echo, block := p.Kind, p.Seq, p.Echo, p.Blocks[0]
	q.src.net.Pool.Put(p)
	if q.closed {
		return // in this window
	}
	if kind == network.CNP || echo {
		q.n.CNPs++
		if q.stack.c.Control == DCQCN {
			q.rp.notify(now)
		}
	}
	if kind == network.CNP {
		return
	}
	if kind == network.Nack {
		q.n.Nacks++
	}
	if q.stack.c.Recovery == IRN {
		q.handleIRN(kind, expected, block)
	} else {
		q.acknowledge(expected)
		if kind == network.Nack && expected == q.una {
			q.next = q.una // go back
		}
	}
	q.restart(now)
	if q.complete(now); !q.closed {
		q.wake(now)
	}
}

// acknowledge advances to what the receiver expects.
func (q *QP) acknowledge(expected uint64) (progress bool) {
	if expected <= q.una {
		return false
	}
	q.una = expected
	q.next = max(q.next, q.una) // a rewind may be late
	return true
}

// handleIRN handles an answer as IRN does (IRN §3.1). A NACK names the packet that it
// answers; of those before it, the ones that were never named are lost.
func (q *QP) handleIRN(kind network.Kind, expected uint64, b network.Block) {
	l := &q.loss
	old := q.una
	if q.acknowledge(expected) {
		for psn := old; psn < q.una; psn++ {
			q.sacked.clear(psn)
		}
		l.next = max(l.next, q.una)
		l.nack = 0
		if l.on && q.una >= l.end {
			l.on = false
		}
	}
	if kind != network.Nack || b.From < q.una || b.From >= q.next {
		return
	}
	q.sacked.set(b.From)
	l.high = max(l.high, b.From+1)
	l.nack++
	if !l.on && l.nack >= q.stack.c.NackThreshold {
		l.on, l.end, l.next, l.lost = true, q.next, q.una, 0
	}
	if l.on {
		l.lost = max(l.lost, l.high)
	}
}

// complete tells of the messages that are.
func (q *QP) complete(now engine.Time) {
	for q.messages.n() > 0 && q.messages.at(0).end <= q.una {
		m := q.messages.at(0).Message
		q.spare = append(q.spare, q.messages.at(0))
		q.messages.pop()
		m.Acked = now
		q.n.Messages++
		if q.oneShot {
			q.stack.Close(q)
		}
		if q.stack.listen != nil {
			q.stack.listen.Completed(now, q, m)
		}
		if q.closed {
			return
		}
	}
}
