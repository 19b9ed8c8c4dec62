package reorder

import (
	"time"

	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/overlay"
)

// arrive decides about a packet.
func (c *ConWeave) arrive(now mono.Time, p *Arrival) {
	f := &p.Fabric
	p.Verdict, p.Also = Pass, nil
	if !f.Capable || !f.Shim || f.Opcode > overlay.OpRTTRequest {
		c.stats.Unmarked++
		return
	}
	c.stats.Packets++
	c.stats.Bytes += uint64(p.Len)
	c.answer(now, p)
	e, fresh := c.find(now, p)
	if e == nil {
		c.stats.NoFlow++
		return
	}
	later := f.TxTstamp.Sub(e.V.sent) > 0 // of one path, which keeps the order
	if fresh {
		c.unknown++
		c.stats.Epochs++
		e.renew(f)
	} else if e.V.epoch != f.Epoch || e.V.flags&flowTailKnown != 0 {
		ahead := e.ahead(now, f)
		later = ahead > 0
		switch e.place(f, ahead) {
		case older:
			if e.V.flags&flowPassed != 0 || e.V.flags&flowOvertook != 0 && !f.Rerouted {
				c.stats.Late++
			}
			return
		case newer:
			c.supersede(now, e, p)
		}
	}
	e.Last = now
	if later {
		e.V.sent = f.TxTstamp
	}
	switch {
	case f.Tail:
		if e.V.queue != 0 {
			p.Verdict, p.Drain = PassDrain, e.V.queue-1
		}
		c.tail(now, e, f)
	case f.Rerouted:
		c.stats.Rerouted++
		c.rerouted(now, e, p)
	default:
		c.old(now, e, f)
	}
}

// answer says to the source what a packet asks for, whatever becomes of it.
func (c *ConWeave) answer(now mono.Time, p *Arrival) {
	f := &p.Fabric
	if f.Opcode == overlay.OpRTTRequest {
		c.stats.Requests++
		c.stats.Replies++
		c.say(overlay.OpRTTReply, p.Leaf, p.Hash, f.Epoch, f.Path, f.TxTstamp, int(p.Port))
	}
	if f.Tail {
		// Always: if one got lost, its source waits for it; if not, it ignores
		// this one.
		c.stats.Tails++
		c.stats.Clears++
		c.say(overlay.OpClear, p.Leaf, p.Hash, f.Epoch, f.Path, f.Arg, int(p.Port))
	}
	if p.CE {
		c.notify(now, p)
	}
}

// supersede ends a flow's epoch because of a packet of a newer one: what is held
// goes before it.
func (c *ConWeave) supersede(now mono.Time, e *flow, p *Arrival) {
	c.stats.Epochs++
	early := e.V.flags&(flowFlushed|flowTailSeen) == flowFlushed
	if e.V.queue != 0 {
		c.stats.Overtaken++
		p.Verdict, p.Drain, early = DrainPass, c.drain(now, e.V.queue-1), true
	}
	e.renew(&p.Fabric)
	if early {
		e.V.flags |= flowOvertook
	}
}

// tail ends the OLD path (§3.3.1): what was held may go.
func (c *ConWeave) tail(now mono.Time, e *flow, f *overlay.Fabric) {
	if e.V.queue != 0 {
		q := &c.queues[e.V.queue-1]
		if q.measured {
			c.missed(now.Sub(q.estimate))
		}
		c.stats.TailFlushes++
		c.drain(now, e.V.queue-1)
	} else if e.V.flags&flowFlushed != 0 && e.V.flags&flowTailSeen == 0 {
		c.stats.Premature++
		if e.V.flags&flowOld != 0 {
			c.missed(now.Sub(e.resume()))
		}
	}
	e.V.tail = f.Arg
	e.V.flags |= flowTailKnown | flowTailSeen
}

// missed records by how much the TAIL came after the estimate of its arrival.
func (c *ConWeave) missed(d time.Duration) {
	if d > 0 {
		c.stats.TailLate.Add(d)
	} else {
		c.stats.TailEarly.Add(-d)
	}
}

// old is a packet of the OLD path before the TAIL: the latest news of how long
// the path takes (Appendix A).
func (c *ConWeave) old(now mono.Time, e *flow, f *overlay.Fabric) {
	switch {
	case e.V.flags&flowTailSeen != 0:
		c.stats.AfterTail++
		return
	case e.V.flags&flowFlushed != 0:
		c.stats.Premature++
		return // the estimate is over (Appendix A: "or when T_resume expires")
	}
	e.Time, e.V.tx = now, f.TxTstamp
	e.V.flags |= flowOld
	if e.V.queue != 0 {
		c.resume(e, e.V.queue-1)
		c.timers.moved(c.queues, e.V.queue-1)
	}
}

// rerouted is a packet of the NEW path: it waits until the TAIL has come.
func (c *ConWeave) rerouted(now mono.Time, e *flow, p *Arrival) {
	e.V.tail = p.Fabric.Arg
	e.V.flags |= flowTailKnown
	if e.V.flags&(flowTailSeen|flowFlushed) != 0 {
		return
	}
	if e.V.flags&flowGaveUp != 0 {
		c.stats.PassedUnheld++
		return
	}
	if e.V.queue != 0 {
		if q := &c.queues[e.V.queue-1]; c.room(q.port, p.Len) {
			c.charge(q, p.Len)
			p.Verdict, p.Hold = Hold, e.V.queue-1
			return
		}
		// Behind what it holds the packet does not fit, and it must not go before
		// that: all of it goes.
		e.V.flags |= flowGaveUp
		c.stats.Exhausted++
		c.stats.PassedUnheld++
		p.Verdict, p.Drain = DrainPass, c.drain(now, e.V.queue-1)
		return
	}
	if !c.open(now, e, p) {
		e.V.flags |= flowGaveUp
		c.stats.NoQueue++
		c.stats.PassedUnheld++
		return
	}
	p.Hold = e.V.queue - 1
	if p.Verdict == DrainPass {
		p.Verdict = DrainHold
	} else {
		p.Verdict = Hold
	}
}

// open takes a queue for the flow, and starts T_resume with its first packet.
func (c *ConWeave) open(now mono.Time, e *flow, p *Arrival) bool {
	i, port := c.free, int32(p.Port)
	if i == none || !c.room(port, p.Len) || c.ports[port].Queues >= c.params.PortQueues {
		return false
	}
	q := &c.queues[i]
	c.free = q.next
	*q = queue{since: now, flow: c.table.Index(e.entry()), port: port, path: p.Fabric.Path}
	e.V.queue = uint16(i) + 1
	e.entry().Pin()
	u := &c.ports[port]
	u.Queues++
	u.QueuesPeak = max(u.QueuesPeak, u.Queues)
	c.stats.Queues++
	c.stats.InUse++
	c.stats.InUsePeak = max(c.stats.InUsePeak, c.stats.InUse)
	c.stats.QueuesDepth.Add(uint64(c.stats.InUse))
	c.charge(q, p.Len)
	if e.V.flags&flowOld == 0 {
		c.stats.Defaults++
	}
	c.resume(e, uint16(i))
	c.timers.add(c.queues, uint16(i))
	return true
}

// resume sets T_resume of the flow's queue (Appendix A).
func (c *ConWeave) resume(e *flow, i uint16) {
	q := &c.queues[i]
	if e.V.flags&flowOld != 0 {
		q.estimate, q.measured = e.resume(), true
		q.deadline = q.estimate.Add(c.params.ResumeExtra)
	} else {
		q.estimate = q.since.Add(c.params.ResumeDefault)
		q.deadline = q.estimate
	}
	if last := q.since.Add(c.params.MaxHold); q.deadline > last {
		c.stats.Capped++
		q.deadline = last
	}
}

// resume is when the TAIL should arrive: after the flow's last packet of the OLD
// path by as much as it left after it. Packets between them may be lost, so that it
// can be more than a pause of θ_inactive.
func (e *flow) resume() mono.Time {
	return e.Time.Add(time.Duration(e.V.tail-e.V.tx) * time.Microsecond)
}

// drain takes a queue from its flow. It is free again at once: the driver sends on
// what it held before it looks at anything else.
func (c *ConWeave) drain(now mono.Time, i uint16) uint16 {
	q := &c.queues[i]
	e := c.table.At(q.flow)
	e.V.queue = 0
	e.Unpin()
	c.timers.remove(c.queues, i)
	c.stats.Hold.Add(now.Sub(q.since))
	u, s := &c.ports[q.port], &c.stats
	u.Packets -= int(q.packets)
	u.Bytes -= q.bytes
	u.Queues--
	s.Waiting -= int(q.packets)
	s.WaitingBytes -= q.bytes
	s.InUse--
	q.next = c.free
	c.free = int32(i)
	return i
}

// room reports whether a packet more may wait for a port.
func (c *ConWeave) room(port int32, bytes uint32) bool {
	if uint(port) >= uint(len(c.ports)) {
		return false
	}
	u := &c.ports[port]
	return u.Packets < c.params.PortPackets && u.Bytes+uint64(bytes) <= uint64(c.params.PortBytes) &&
		c.stats.Waiting < c.params.Packets && c.stats.WaitingBytes+uint64(bytes) <= uint64(c.params.Bytes)
}

// charge notes that a packet waits in a queue.
func (c *ConWeave) charge(q *queue, bytes uint32) {
	u, s := &c.ports[q.port], &c.stats
	q.packets++
	q.bytes += uint64(bytes)
	u.Packets++
	u.Bytes += uint64(bytes)
	u.PacketsPeak, u.BytesPeak = max(u.PacketsPeak, u.Packets), max(u.BytesPeak, u.Bytes)
	s.Held++
	s.HeldBytes += uint64(bytes)
	s.Waiting++
	s.WaitingBytes += uint64(bytes)
	s.WaitingPeak, s.WaitingBytesPeak = max(s.WaitingPeak, s.Waiting), max(s.WaitingBytesPeak, s.WaitingBytes)
	u.BytesDepth.Add(u.Bytes)
	s.WaitingDepth.Add(uint64(s.Waiting))
	s.BytesDepth.Add(s.WaitingBytes)
}

// notify tells a source of a congested path, unless it was told just now (§3.2.2).
func (c *ConWeave) notify(now mono.Time, p *Arrival) {
	leaf, f := p.Leaf, &p.Fabric
	if int(leaf) >= c.params.Leaves {
		c.stats.BadLeaf++
		return
	}
	last := &c.notified[int(leaf)*paths+int(f.Path)]
	if d := mono.Time(c.params.NotifyInterval); d > 0 && !now.Apart(*last, d-1) {
		c.stats.NotifiesSuppressed++
		return
	}
	*last = now
	c.stats.Notifies++
	c.say(overlay.OpNotify, leaf, p.Hash, f.Epoch, f.Path, 0, int(p.Port))
}

// say puts a message into the outbox (ConWeave Table 2). RTT_REPLY and CLEAR have a
// shim with an echo: the TX_TSTAMP of the request, or the TAIL_TX_TSTAMP of the
// reroute that is over. Round trips go through two bits of epoch within
// microseconds; by the echo the source tells an answer from a copy, or from one
// that is four epochs late. Rerouted asks for no more rerouted packets (§5).
func (c *ConWeave) say(op overlay.Opcode, leaf uint16, hash uint32, epoch overlay.Epoch, path overlay.PathID, echo overlay.Tstamp, port int) {
	refuse := c.params.Admission > 0 && c.short(port)
	if refuse {
		c.stats.Refusals++
	}
	c.out = append(c.out, overlay.Message{
		Leaf: leaf, Link: overlay.AnyLink, Cause: c.cause, Hash: hash,
		Fabric: overlay.Fabric{
			Capable: true, Scheme: SchemeID, Opcode: op, Epoch: epoch, Path: path, Rerouted: refuse,
			Shim: op != overlay.OpNotify, Arg: echo,
		},
	})
}

// short reports whether there is little room for what a source might reroute.
func (c *ConWeave) short(port int) bool {
	p, s := &c.params, &c.stats
	at := func(used, limit uint64) bool { return used*100 >= limit*uint64(p.Admission) }
	if at(uint64(s.InUse), uint64(p.Queues)) || at(uint64(s.Waiting), uint64(p.Packets)) || at(s.WaitingBytes, uint64(p.Bytes)) {
		return true
	}
	if uint(port) >= uint(len(c.ports)) {
		return false
	}
	u := &c.ports[port]
	return at(uint64(u.Queues), uint64(p.PortQueues)) || at(uint64(u.Packets), uint64(p.PortPackets)) || at(u.Bytes, uint64(p.PortBytes))
}
