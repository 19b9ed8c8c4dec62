package tcp

import (
	"github.com/loomfabric/loom/sim/engine"
	"github.com/loomfabric/loom/sim/network"
)

// remembered is how many places of out-of-order arrivals a receiver remembers,
// newest first. Some of them grow together, and an ACK reports three blocks (RFC
// 2018 §3 and §4, with room for timestamps).
const remembered = 4

// receiver is a connection's receiving end.
type receiver struct {
	conn *Conn

	next    uint64 // first byte that is missing
	ooo     ranges // what is there beyond it
	recent  [remembered]uint64
	nRecent uint8

	timer   engine.Timer // of a delayed ACK
	acked   uint64       // what the last ACK said
	quick   uint32       // segments that are acknowledged at once
	ce      bool         // of the last segment (DCTCP.CE, RFC 8257 §3.2)
	waiting bool         // a segment is not acknowledged yet
	retrans bool         // the last segment was a retransmission
	stamp   engine.Time  // TS.Recent (RFC 7323 §4.3)
	last    engine.Time  // when a segment last came
	number  uint64       // after the highest Number seen
}

// Receive is the host's to call: a segment has come.
func (r *receiver) Receive(now engine.Time, p *network.Packet) {
	c := r.conn
	r.order(p)
	if p.Len == 0 { // a SYN: each is answered
		r.stamp, r.last = p.Sent, now
		r.send(now, synSize)
		c.far.net.Pool.Put(p)
		return
	}
	atOnce := r.congestion(now, p)
	if now-r.last > c.stack.cfg.MinRTO && r.next > 0 {
		r.quick = c.stack.cfg.QuickAcks
	}
	r.last = now
	r.retrans = p.Retrans
	if p.Seq <= r.acked && p.Sent >= r.stamp {
		r.stamp = p.Sent
	}
	before := r.next
	if !r.take(p) {
		atOnce = true
	}
	if r.next > before {
		c.counters.Goodput += c.arrived(before)
	}
	r.waiting = true
	if r.quick > 0 {
		r.quick--
		atOnce = true
	}
	cfg := &c.stack.cfg
	// More than all but one of the full segments that may wait (RFC 5681 §4.2,
	// counted as Linux does).
	if atOnce || p.Last || r.next-r.acked > uint64(cfg.AckEvery-1)*uint64(cfg.Segment()) {
		r.ack(now)
	} else if _, on := r.timer.On(); !on {
		r.timer.Set(c.far.engine, now+cfg.delayedAck(), c.far.id, timerArg(c.index, timerAck))
	}
	c.far.net.Pool.Put(p)
	if r.next > before {
		c.delivered(now)
	}
}

// order counts segments that others have overtaken.
func (r *receiver) order(p *network.Packet) {
	if p.Number >= r.number {
		r.number = p.Number + 1
		return
	}
	n := &r.conn.counters
	places := r.number - 1 - p.Number
	n.Reordered++
	if places >= 3 {
		n.Reordered3++
	}
	n.MaxDistance = max(n.MaxDistance, places)
}

// congestion notes a segment's mark. When marks begin or end, what came before
// is acknowledged for itself, so that the sender can count marked bytes though
// ACKs are delayed (RFC 8257 §3.2); the new segment then is acknowledged at once.
func (r *receiver) congestion(now engine.Time, p *network.Packet) (atOnce bool) {
	if p.CE == r.ce {
		return false
	}
	if r.waiting {
		r.ack(now)
	}
	r.ce = p.CE
	return true
}

// take puts a segment where it belongs. It returns false for what has to be
// acknowledged at once: a duplicate, what is out of order, and what fills a hole
// (RFC 5681 §4.2).
func (r *receiver) take(p *network.Packet) (inOrder bool) {
	b := network.Block{From: p.Seq, To: p.Seq + uint64(p.Len)}
	switch {
	case b.To <= r.next || len(r.ooo.blocks) > 0 && r.ooo.has(b):
		r.conn.counters.Duplicates++
		return false
	case b.From > r.next:
		r.ooo.add(b)
		r.remember(b.From)
		return false
	}
	r.next = b.To
	if len(r.ooo.blocks) == 0 {
		return true
	}
	if o := r.ooo.blocks[0]; o.From <= r.next {
		r.next = max(r.next, o.To)
	}
	r.ooo.cut(r.next)
	return false
}

// remember puts a place before those that are remembered.
func (r *receiver) remember(at uint64) {
	copy(r.recent[1:], r.recent[:])
	r.recent[0] = at
	r.nRecent = min(r.nRecent+1, remembered)
}

// ack sends an ACK.
func (r *receiver) ack(now engine.Time) { r.send(now, r.conn.stack.cfg.Header) }

func (r *receiver) send(now engine.Time, size uint32) {
	c := r.conn
	p := c.far.net.Pool.Get()
	p.Flow, p.Src, p.Dst, p.Hash = c.flow, c.dst.ID, c.src.ID, c.reverse
	p.Kind = network.Ack
	p.Seq = r.next
	p.Echo = r.ce
	p.Retrans = r.retrans
	p.Sent = r.stamp
	p.Size = size
	// DCTCP's ACKs are sent as ECN-capable (RFC 8257 §4.4: what is not is
	// dropped first).
	p.ECT = c.stack.cfg.Control == DCTCP
	if len(r.ooo.blocks) > 0 {
		r.report(p)
	}
	r.acked = r.next
	r.waiting = false
	r.timer.Off()
	c.counters.Acks++
	c.dst.Send(now, p, network.DataClass)
}

// report writes the SACK blocks: those that grew last come first (RFC 2018 §4).
func (r *receiver) report(p *network.Packet) {
	kept := uint8(0)
	for i := range r.nRecent {
		at := r.recent[i]
		if at < r.next {
			continue // in order by now
		}
		r.recent[kept] = at
		kept++
		if p.NBlocks == uint8(len(p.Blocks)) {
			continue
		}
		// Places below r.next are gone, so some block has this one.
		b := r.ooo.blocks[r.ooo.find(at+1)]
		known := false
		for _, k := range p.Blocks[:p.NBlocks] {
			known = known || k == b
		}
		if !known {
			p.Blocks[p.NBlocks] = b
			p.NBlocks++
		}
	}
	r.nRecent = kept
	p.Size += sackOption + 8*uint32(p.NBlocks)
}
