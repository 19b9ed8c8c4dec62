package tcp

import "github.com/loomfabric/loom/sim/engine"

// edge returns where what is lost ends: of the bytes below it those that are not
// SACKed are lost, because DupThresh blocks above them, or more than DupThresh-1
// segments' bytes, have arrived (IsLost of RFC 6675 §4). After a timeout
// everything that was sent before is.
func (c *Conn) edge() uint64 {
	var floor uint64
	if c.phase == loss {
		floor = c.recover
	}
	var n uint32
	var bytes uint64
	cfg := &c.stack.cfg
	enough := uint64(cfg.DupThresh-1) * uint64(cfg.Segment())
	for i := len(c.sacked.blocks) - 1; i >= 0; i-- {
		b := c.sacked.blocks[i]
		n++
		bytes += b.To - b.From
		if n >= cfg.DupThresh || bytes > enough {
			return max(floor, b.From)
		}
	}
	return max(floor, c.una)
}

// setPipe estimates what is in flight (RFC 6675 §4, SetPipe): what is neither
// SACKed nor lost, and what was sent again.
func (c *Conn) setPipe() {
	switch {
	case c.phase != open:
		c.pipe = c.sacked.missing(c.edge(), c.nxt) + c.sacked.missing(c.una, c.highRxt)
	case c.stack.cfg.LimitedTransmit:
		// Each SACKed segment makes room for a new one, before it is known
		// whether something is lost.
		c.pipe = c.nxt - c.una - c.sacked.bytes
	default:
		c.pipe = c.nxt - c.una
	}
}

// nextInRecovery is NextSeg of RFC 6675 §4.
func (c *Conn) nextInRecovery() (seq, n uint64, m move) {
	segment := uint64(c.stack.cfg.Segment())
	if !c.force && c.pipe+segment > uint64(c.cwnd) {
		return 0, 0, blocked
	}
	// Rule 1: what is lost. The first segment of fast recovery goes out whatever
	// the scoreboard says (§5 step 4.3).
	edge := c.edge()
	from, to := c.sacked.hole(max(c.una, c.highRxt), c.nxt)
	if from < to && (c.force || from < edge) {
		return from, min(segment, to-from), sendAgain
	}
	// Rule 2: what was never sent.
	if n = c.unsent(); n > 0 {
		return c.nxt, n, sendNew
	}
	// Rule 3: what is not known to be lost, with something SACKed above it.
	if from < to && from < c.sacked.top() {
		return from, min(segment, to-from), sendAgain
	}
	// Rule 4: the end of what is outstanding, once, for the ACK that it brings.
	// The RFC would send it a third time if it was sent again already; we do not.
	if c.phase == recovery && c.una > c.rescueRxt && c.una < c.nxt {
		if seq, n = c.tail(segment); n > 0 && seq >= c.highRxt {
			return seq, n, sendTail
		}
	}
	return 0, 0, nothing
}

// tail returns the last segment that is not SACKed.
func (c *Conn) tail(segment uint64) (seq, n uint64) {
	end, start := c.nxt, c.una
	for i := len(c.sacked.blocks) - 1; i >= 0; i-- {
		b := c.sacked.blocks[i]
		if b.To < end {
			start = b.To
			break
		}
		end = b.From
	}
	if end <= start {
		return 0, 0
	}
	start = max(start, end-min(segment, end))
	return start, end - start
}

// recoverFast begins fast recovery (RFC 6675 §5 step 4).
func (c *Conn) recoverFast(now engine.Time) {
	c.counters.Recoveries++
	c.phase = recovery
	c.recover = c.nxt
	c.ssthresh = c.stack.control.cut(c, now, c.inUse())
	c.cwnd = c.ssthresh
	c.highRxt, c.rescueRxt = c.una, c.una
	c.force = true
	c.burst = 0
}

// inUse returns the window that was used, which is what a loss says something
// about: all of it if it was what kept the sender back, else what is outstanding
// (RFC 5681 §3.1).
func (c *Conn) inUse() float64 {
	if c.limited {
		return c.cwnd
	}
	return min(c.cwnd, float64(max(c.nxt-c.una, c.maxFlight)))
}

// settle ends recovery.
func (c *Conn) settle() {
	c.phase = open
	c.dupAcks = 0
	c.force = false
	c.resent = false
}
