package tcp

import (
	"math"

	"github.com/loomfabric/loom/sim/engine"
)

// control is a congestion control. It has no state: a connection's is in the
// connection.
type control interface {
	// acked is called for each ACK of new data, before anything else happens.
	acked(c *Conn, bytes uint64, echo bool)
	// avoid opens the window in congestion avoidance.
	avoid(c *Conn, now engine.Time, bytes float64)
	// cut returns the window after a loss found by duplicate ACKs, of one that
	// was used up to window.
	cut(c *Conn, now engine.Time, window float64) float64
	// timeout returns the slow start threshold after a timeout.
	timeout(c *Conn, now engine.Time, window float64) float64
	// marked returns the window after a mark.
	marked(c *Conn, now engine.Time) float64
}

var controls = map[Control]control{NewReno: newReno{}, Cubic: cubic{}, DCTCP: dctcp{}, LIA: lia{}}

// least is the smallest window after a cut: two segments (RFC 5681 §3.1).
func (c *Conn) least(window float64) float64 {
	return max(window, float64(2*c.stack.cfg.Segment()))
}

// newReno is RFC 5681: a segment more each round trip, half after a loss.
type newReno struct{}

func (newReno) acked(*Conn, uint64, bool) {}

func (newReno) avoid(c *Conn, _ engine.Time, bytes float64) {
	c.cwnd += float64(c.stack.cfg.Segment()) * bytes / c.cwnd
}

func (newReno) cut(c *Conn, _ engine.Time, window float64) float64 { return c.least(window / 2) }

func (newReno) timeout(c *Conn, _ engine.Time, window float64) float64 { return c.least(window / 2) }

func (newReno) marked(c *Conn, _ engine.Time) float64 { return c.least(c.inUse() / 2) }

// lia is RFC 6356, MPTCP's Linked Increases Algorithm: losses halve a subflow's window,
// and the increases of all subflows of a connection are coupled, so that together they
// take as much as one TCP would on the best of their paths, and each no more than one.
type lia struct{ newReno }

// avoid opens the window as RFC 6356 §3 has it. Its alpha is cwnd_total max(cwnd_i/rtt_i²)
// / (Σ cwnd_i/rtt_i)², of which the total cancels out in alpha bytes MSS / cwnd_total.
func (lia) avoid(c *Conn, now engine.Time, bytes float64) {
	if c.multi == nil {
		newReno{}.avoid(c, now, bytes)
		return
	}
	var most, sum float64
	for _, s := range c.multi.subs {
		if rtt := s.srtt.Seconds(); rtt > 0 {
			most = max(most, s.cwnd/(rtt*rtt))
			sum += s.cwnd / rtt
		}
	}
	per := 1 / c.cwnd
	if sum > 0 {
		per = min(per, most/(sum*sum))
	}
	c.cwnd += float64(float64(c.stack.cfg.Segment()) * bytes * per)
}

// CUBIC's constants (RFC 9438 §4.1, §4.6): segments per second cubed, and what
// is left of the window after a loss. alpha makes Reno with such a cut as
// aggressive as Reno (§4.3).
const (
	cubicC     = 0.4
	cubicBeta  = 0.7
	cubicAlpha = 3 * (1 - cubicBeta) / (1 + cubicBeta)
)

// cubicState is a connection's, in segments and seconds.
type cubicState struct {
	wmax  float64 // the window before the last cut, or less (fast convergence)
	k     float64 // after this time the curve is at wmax again
	est   float64 // what Reno's window would be
	prior float64 // the window before the last cut
	epoch engine.Time
	on    bool // epoch, k and est belong to this stage of congestion avoidance
}

// pause keeps a time in which nothing was sent out of the curve (RFC 9438 §5.8).
func (q *cubicState) pause(d engine.Time) {
	if q.on {
		q.epoch += d
	}
}

// cubic is RFC 9438: the window is a cubic function of the time since the last
// cut, or Reno's where that is more.
type cubic struct{ newReno }

func (cubic) avoid(c *Conn, now engine.Time, bytes float64) {
	q := &c.cubic
	mss := float64(c.stack.cfg.Segment())
	cwnd, segments := c.cwnd/mss, bytes/mss
	if !q.on {
		q.on, q.epoch, q.est = true, now, cwnd
		if q.k = 0; q.wmax > cwnd {
			q.k = math.Cbrt((q.wmax - cwnd) / cubicC)
		} else {
			q.wmax = cwnd
		}
	}
	// Conversions keep the compiler from fusing products into sums, which would
	// round differently on other machines.
	alpha := cubicAlpha
	if q.est >= q.prior {
		alpha = 1
	}
	q.est += float64(alpha * segments / cwnd)
	t := (now - q.epoch).Seconds()
	if q.at(t) < q.est {
		c.cwnd = max(c.cwnd, float64(q.est*mss))
		return
	}
	target := min(max(q.at(t+c.srtt.Seconds()), cwnd), 1.5*cwnd)
	c.cwnd += float64((target - cwnd) / cwnd * bytes)
}

// at is W_cubic (RFC 9438 §4.2).
func (q *cubicState) at(t float64) float64 {
	d := t - q.k
	return float64(cubicC*d*d*d) + q.wmax
}

func (cubic) cut(c *Conn, _ engine.Time, window float64) float64 {
	q := &c.cubic
	w := window / float64(c.stack.cfg.Segment())
	q.on, q.prior = false, w
	if w < q.wmax {
		q.wmax = w * (1 + cubicBeta) / 2 // §4.7: leave room for others
	} else {
		q.wmax = w
	}
	return c.least(window * cubicBeta)
}

// timeout begins without a past (RFC 9438 §4.8).
func (cubic) timeout(c *Conn, _ engine.Time, window float64) float64 {
	c.cubic = cubicState{}
	return c.least(window * cubicBeta)
}

func (q cubic) marked(c *Conn, now engine.Time) float64 { return q.cut(c, now, c.inUse()) }

// dctcpState is a connection's (RFC 8257 §3.3).
type dctcpState struct {
	alpha         float64 // estimate of the share of bytes that are marked
	bytes, marked uint64  // acknowledged in this window
	windowEnd     uint64
}

// dctcp is RFC 8257: Reno whose answer to marks is as strong as they are many.
type dctcp struct{ newReno }

func (dctcp) acked(c *Conn, bytes uint64, echo bool) {
	d := &c.dctcp
	d.bytes += bytes
	if echo {
		d.marked += bytes
	}
	if c.una < d.windowEnd {
		return
	}
	m := float64(d.marked) / float64(d.bytes)
	d.alpha += float64(c.stack.cfg.G * (m - d.alpha))
	d.bytes, d.marked, d.windowEnd = 0, 0, c.nxt
}

func (dctcp) marked(c *Conn, _ engine.Time) float64 {
	return c.least(c.cwnd * (1 - c.dctcp.alpha/2))
}
