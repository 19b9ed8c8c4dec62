package tcp

import (
	"fmt"

	"github.com/loomfabric/loom/sim/engine"
	"github.com/loomfabric/loom/sim/network"
)

// Receive is the host's to call: an ACK has come.
func (c *Conn) Receive(now engine.Time, p *network.Packet) {
	if c.state == closed { // in this window
		c.near.net.Pool.Put(p)
		return
	}
	switch c.state {
	case synSent:
		c.state = established
		c.rto.Off()
		c.sample(now - p.Sent)
		if c.multi != nil {
			c.wake(now) // data goes before the SYNs of others
			c.multi.join(now)
		}
	case established:
		c.acknowledged(now, p)
	}
	c.near.net.Pool.Put(p)
	if c.closing && c.una == c.end {
		c.stack.release(now, c)
		return
	}
	if m := c.multi; m != nil && m.over() {
		m.release(now)
		return
	}
	c.wake(now)
}

// acknowledged takes in what an ACK says (RFC 5681 §3, RFC 6675 §5).
func (c *Conn) acknowledged(now engine.Time, p *network.Packet) {
	if p.Seq > c.nxt {
		panic(fmt.Sprintf("tcp: an ACK of flow %d says that %d bytes arrived, and %d were sent: the flow's number was used before, and packets are still on their way", c.flow, p.Seq, c.nxt))
	}
	advance := p.Seq > c.una
	delivered, news := c.score(p)
	if advance {
		bytes := p.Seq - c.una
		c.una = p.Seq
		c.sample(now - p.Sent)
		if c.una == c.nxt {
			c.rto.Off()
		} else {
			c.setRTO(now)
		}
		c.stack.control.acked(c, bytes, p.Echo)
		if c.multi != nil {
			c.multi.acknowledged(now, c)
		}
	}
	if p.Echo && c.phase == open && c.una > c.cutEnd {
		c.mark(now)
	}
	switch {
	case c.phase == open:
		if advance {
			c.dupAcks = 0
			c.grow(now, delivered)
		}
		c.suspect(now, advance, news)
	case c.una >= c.recover:
		c.settle()
	case c.phase == loss && advance:
		c.grow(now, delivered)
	}
	c.setPipe()
}

// score puts an ACK into the scoreboard. It returns how many bytes are newly
// known to have arrived, and whether SACK blocks said so.
func (c *Conn) score(p *network.Packet) (delivered uint64, news bool) {
	una := max(c.una, p.Seq)
	delivered = una - c.una
	if len(c.sacked.blocks) > 0 {
		delivered -= c.sacked.cut(una)
	}
	for i := range p.NBlocks {
		b := p.Blocks[i]
		if b.From = max(b.From, una); b.From >= b.To {
			continue
		}
		if n := c.sacked.add(b); n > 0 {
			delivered += n
			news = true
		}
	}
	return delivered, news
}

// suspect counts duplicate ACKs, those that bring SACK news only, and begins
// recovery when there are enough of them or the scoreboard says so.
func (c *Conn) suspect(now engine.Time, advance, news bool) {
	if len(c.sacked.blocks) == 0 {
		return
	}
	if news && !advance {
		c.dupAcks++
	}
	if c.dupAcks >= c.stack.cfg.DupThresh || c.edge() > c.una {
		c.recoverFast(now)
	}
}

// grow opens the window for delivered bytes: by as many in slow start, as the
// congestion control says beyond it. Appropriate byte counting (RFC 3465)
// without its limit of two segments, which Linux does not have either: an ACK
// that covers much is what offload leads to.
func (c *Conn) grow(now engine.Time, delivered uint64) {
	if !c.mayGrow() || c.una < c.cutEnd && c.phase == open {
		return
	}
	bytes := float64(delivered)
	if c.cwnd < c.ssthresh {
		step := min(bytes, c.ssthresh-c.cwnd)
		c.cwnd += step
		bytes -= step
	}
	if bytes > 0 {
		c.stack.control.avoid(c, now, bytes)
	}
}

// mark cuts the window for a mark, at most once for each window of data.
func (c *Conn) mark(now engine.Time) {
	c.counters.ECNCuts++
	c.cutEnd = c.nxt
	c.ssthresh = c.stack.control.marked(c, now)
	c.cwnd = c.ssthresh
	c.burst = 0
}
