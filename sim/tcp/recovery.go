package tcp

import (
	"github.com/loomfabric/loom/sim/engine"
	"github.com/loomfabric/loom/sim/network"
)

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
	enough := uint64(c.dupThresh-1) * uint64(c.stack.cfg.Segment())
	for i := len(c.sacked.blocks) - 1; i >= 0; i-- {
		b := c.sacked.blocks[i]
		n++
		bytes += b.To - b.From
		if n >= c.dupThresh || bytes > enough {
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
	c.save()
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

// save keeps what [Config.Undo] goes back to.
func (c *Conn) save() {
	c.prior = saved{c.cwnd, c.ssthresh, c.cubic}
	c.undoAt = engine.Never
}

// settle ends recovery.
func (c *Conn) settle() {
	c.phase = open
	c.dupAcks = 0
	c.force = false
	c.undoAt = engine.Never
}

// spurious reports whether an ACK of new data shows that nothing was lost: what
// filled the first hole had left before the hole was first retransmitted (RFC
// 3522 §3.2).
func (c *Conn) spurious(p *network.Packet) bool {
	return c.phase != open && p.Sent < c.undoAt
}

// undo takes the phase's cut back (RFC 4015 §3).
func (c *Conn) undo() {
	c.counters.Undone++
	c.cwnd = max(c.cwnd, c.prior.cwnd)
	c.ssthresh = c.prior.ssthresh
	c.cubic = c.prior.cubic
	c.settle()
}

// reordered notes that a segment arrived after others that reach so many bytes
// beyond its start: one more duplicate ACK than it caused is a loss from now on.
func (c *Conn) reordered(bytes uint64) {
	cfg := &c.stack.cfg
	segment := uint64(cfg.Segment())
	places := (bytes + segment - 1) / segment
	c.dupThresh = max(c.dupThresh, uint32(min(places, uint64(cfg.MaxReordering))))
}
