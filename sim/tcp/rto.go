package tcp

import (
	"github.com/loomfabric/loom/sim/engine"
)

// sample takes a round-trip time into the estimate (RFC 6298 §2). Timestamps
// give one for every ACK of new data, so each weighs less: by the number that a
// window brings (RFC 7323 appendix G).
func (c *Conn) sample(rtt engine.Time) {
	cfg := &c.stack.cfg
	if !c.sampled {
		c.sampled = true
		c.srtt, c.rttvar = rtt, rtt/2
	} else {
		per := max(1, engine.Time((c.nxt-c.una)/(2*uint64(cfg.Segment()))))
		diff := rtt - c.srtt
		c.rttvar += (max(diff, -diff) - c.rttvar) / (4 * per)
		c.srtt += diff / (8 * per)
	}
	c.timeoutAfter = min(max(c.srtt+4*c.rttvar, cfg.MinRTO), cfg.MaxRTO)
	c.backoff = 0
}

// currentRTO is the timeout with its backoff (RFC 6298 §5.5).
func (c *Conn) currentRTO() engine.Time {
	limit := c.stack.cfg.MaxRTO
	if c.timeoutAfter > limit>>c.backoff {
		return limit
	}
	return c.timeoutAfter << c.backoff
}

func (c *Conn) setRTO(now engine.Time) {
	c.rto.Set(c.near.engine, now+c.currentRTO(), c.near.id, timerArg(c.index, timerRTO))
}

// timeout is the retransmission timer's.
func (c *Conn) timeout(now engine.Time) {
	c.counters.Timeouts++
	c.backoff = min(c.backoff+1, 30)
	if c.state == synSent {
		// RFC 5681 §3.1: after a lost SYN the first window is one segment.
		c.cwnd = float64(c.stack.cfg.Segment())
		c.state = synDue
		c.wake(now)
		return
	}
	if c.phase != loss {
		// RFC 5681 §3.1: when the timer of a retransmission expires the
		// threshold stays.
		c.ssthresh = c.stack.control.timeout(c, now, c.inUse())
	}
	first := c.phase != loss
	c.phase = loss
	c.recover = c.nxt
	c.highRxt = c.una
	c.cwnd = float64(c.stack.cfg.Segment())
	c.dupAcks, c.force, c.burst = 0, false, 0
	c.setPipe()
	c.setRTO(now)
	c.wake(now)
	if first && c.multi != nil {
		c.multi.reinject(now, c)
	}
}
