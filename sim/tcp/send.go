package tcp

import (
	"github.com/loomfabric/loom/sim/engine"
	"github.com/loomfabric/loom/sim/network"
)

// move is what a sender may do next.
type move uint8

const (
	nothing   move = iota // there is nothing, or the receive window is full
	blocked               // the congestion window keeps it back
	sendNew               // send what was never sent
	sendAgain             // retransmit
	sendTail              // retransmit the end: RFC 6675's rescue
)

// wake tells the interface that there is something to send, if there is.
func (c *Conn) wake(now engine.Time) {
	if c.asked {
		return
	}
	switch c.state {
	case synDue:
	case established:
		switch _, _, m := c.next(); m {
		case nothing:
			return
		case blocked:
			c.validate(true)
			return
		}
	default:
		return
	}
	c.asked = true
	c.src.Ready(now, c)
}

// Pull is the interface's to call: it returns the next packet that may be sent.
func (c *Conn) Pull(now engine.Time) (*network.Packet, engine.Time) {
	switch c.state {
	case synDue:
		return c.syn(now), engine.Never
	case established:
	default:
		c.asked = false
		return nil, engine.Never
	}
	seq, n, m := c.next()
	switch m {
	case nothing, blocked:
		c.validate(m == blocked)
		c.asked, c.burst = false, 0
		return nil, engine.Never
	case sendNew:
		if c.multi != nil {
			c.multi.take(c, n)
		}
		c.nxt = seq + n
		c.takeBurst(n)
		c.validate(false)
	case sendAgain:
		c.highRxt = seq + n
		if c.force {
			c.rescueRxt = c.highRxt
		}
	case sendTail:
		c.rescueRxt = c.recover
	}
	again := m != sendNew
	c.pipe += n
	if again {
		c.counters.Retransmits++
		c.force = false
		if !c.resent {
			c.resent = true
			// What is sent again gets the whole timeout, as Linux does it; the
			// timer must not cut recovery short.
			c.rto.Off()
		}
	}
	if _, on := c.rto.On(); !on {
		c.setRTO(now)
	}
	c.counters.Segments++
	c.counters.Bytes += n
	return c.segment(now, seq, n, again), engine.Never
}

// takeBurst counts n bytes against the burst that is being sent, or begins one.
func (c *Conn) takeBurst(n uint64) {
	if c.burst < n {
		c.burst = uint64(c.stack.cfg.Burst)
	}
	c.burst -= min(n, c.burst)
}

// segment makes a Data packet.
func (c *Conn) segment(now engine.Time, seq, n uint64, again bool) *network.Packet {
	cfg := &c.stack.cfg
	p := c.near.net.Pool.Get()
	p.Flow, p.Src, p.Dst, p.Hash = c.flow, c.src.ID, c.dst.ID, c.hash
	p.Kind = network.Data
	p.Seq, p.Len = seq, uint32(n)
	p.Size = uint32(n) + cfg.Header
	p.ECT = cfg.ECN || cfg.Control == DCTCP
	// Linux sets PSH where a write ends, and the receiver acknowledges that at
	// once; where the write ends is where the flow does.
	p.Last = seq+n == c.end && (c.multi == nil || c.multi.nxt == c.multi.end)
	p.Retrans = again
	p.Sent = now
	p.Number = c.number
	c.number++
	c.lastSent = now
	return p
}

// syn makes a SYN: a Data packet without data.
func (c *Conn) syn(now engine.Time) *network.Packet {
	p := c.segment(now, 0, 0, c.counters.SYNs > 0)
	p.Size = synSize
	p.Last = false
	c.state, c.asked = synSent, false
	c.counters.SYNs++
	c.setRTO(now)
	return p
}

// next decides what is sent next: n bytes from seq.
func (c *Conn) next() (seq, n uint64, m move) {
	if c.phase == open {
		return c.nextNew()
	}
	return c.nextInRecovery()
}

// rest returns how much there is that was never sent.
func (c *Conn) rest() uint64 {
	if c.multi != nil {
		return c.multi.rest(c)
	}
	return c.end - c.nxt
}

// unsent returns how much of what was never sent may go into one segment, as far
// as the application and the receive window are concerned.
func (c *Conn) unsent() uint64 {
	n := min(c.rest(), uint64(c.stack.cfg.Segment()))
	if c.nxt+n > c.una+c.stack.cfg.Window {
		return 0
	}
	return n
}

func (c *Conn) nextNew() (seq, n uint64, m move) {
	if n = c.unsent(); n == 0 {
		return 0, 0, nothing
	}
	window := uint64(c.cwnd)
	if c.pipe+n > window || c.burst < n && c.wait(window-c.pipe) {
		return 0, 0, blocked
	}
	return c.nxt, n, sendNew
}

// wait reports whether a burst had better wait until the congestion window has
// more room. With nothing in flight it has enough.
func (c *Conn) wait(room uint64) bool {
	cfg := &c.stack.cfg
	if !cfg.Defer || len(c.sacked.blocks) > 0 {
		return false
	}
	worth := min(uint64(cfg.Burst), min(uint64(c.cwnd), cfg.Window)/3, c.rest())
	return room < worth
}

// validate notes at the end of each burst whether the window was used: one that
// is not does not grow (RFC 7661 §4.3, by the means of Linux's
// tcp_cwnd_validate).
func (c *Conn) validate(limited bool) {
	flight := c.nxt - c.una
	if c.una >= c.usageEnd || limited || !c.limited && flight > c.maxFlight {
		c.limited, c.maxFlight, c.usageEnd = limited, flight, c.nxt
	}
}

// mayGrow reports whether the window was used: in slow start, which doubles it,
// half of it is enough.
func (c *Conn) mayGrow() bool {
	if c.limited {
		return true
	}
	return c.cwnd < c.ssthresh && c.cwnd < float64(2*c.maxFlight)
}
