package tcp

import (
	"math"
	"testing"

	"github.com/loomfabric/loom/sim/engine"
	"github.com/loomfabric/loom/sim/network"
)

// TestCubicCurve drops one segment and compares the window from then on with
// RFC 9438's formula, computed from the window before the loss alone:
// W(t) = 0.4·(t-K)³ + W_max, K = cbrt(W_max·0.3/0.4), 0.7·W_max at t = 0.
func TestCubicCurve(t *testing.T) {
	cfg := Defaults()
	cfg.Window = 64 << 20
	const delay = 10 * ms // 40 ms round trips: Reno would be slower
	r := newRig(t, cfg, link{10 * gbit, delay, 0}, link{10 * gbit, delay, 0})
	var drop bool
	r.box.filter = func(_ engine.Time, p *network.Packet) verdict {
		if p.Kind == network.Data && drop {
			drop = false
			return verdict{drop: true}
		}
		return verdict{}
	}
	r.stack.Start(0, r.flow(0, 0, 1, Endless))
	c := r.conn()
	seg := float64(cfg.Segment())
	at := engine.Time(0)
	for c.cwnd < 400*seg {
		at += ms
		r.run(at)
	}
	drop = true
	var wmax float64
	for c.counters.Recoveries == 0 || c.phase != open {
		if c.phase == open {
			wmax = c.cwnd / seg
		}
		at += ms
		r.run(at)
	}
	if c.counters.Recoveries != 1 || c.counters.Timeouts != 0 || c.counters.Retransmits != 1 {
		t.Fatalf("%+v", c.counters)
	}
	within(t, "the window after the loss", c.cwnd/seg, 0.7*wmax, 0.01)
	k := math.Cbrt(wmax * 0.3 / 0.4)
	start := at
	for at < start+engine.Of(1500*1e6*10) {
		at += 250 * ms
		r.run(at)
		since := (at - start).Seconds()
		want := 0.4*math.Pow(since-k, 3) + wmax
		if math.Abs(c.cwnd/seg-want) > 0.02*want {
			t.Errorf("%.2f s after the loss the window is %.1f segments, want %.1f (W_max %.1f, K %.2f s)", since, c.cwnd/seg, want, wmax, k)
		}
	}
	if c.cwnd/seg < 1.1*wmax {
		t.Errorf("the window is %.1f segments at the end: it was to be beyond W_max, %.1f", c.cwnd/seg, wmax)
	}
}

// TestCubicFriendly: where the cubic curve is slower than Reno, CUBIC grows as
// fast as Reno would with a cut to 0.7: by 0.53 segments a round trip until it
// is where it was, then by one (RFC 9438 §4.3).
func TestCubicFriendly(t *testing.T) {
	cfg := Defaults()
	cfg.Defer = false
	r := newRig(t, cfg, link{10 * gbit, 100 * us, 0}, link{10 * gbit, 100 * us, 0})
	n := 0
	r.box.filter = func(_ engine.Time, p *network.Packet) verdict {
		if p.Kind != network.Data {
			return verdict{}
		}
		n++
		return verdict{drop: n == 200}
	}
	r.stack.Start(0, r.flow(0, 0, 1, Endless))
	c := r.conn()
	at := engine.Time(0)
	for c.counters.Recoveries == 0 || c.phase != open {
		at += 10 * us
		r.run(at)
	}
	seg := float64(cfg.Segment())
	rtt := 403 * us // links, two segments and two ACKs
	prior := c.cubic.prior
	seen := map[float64]bool{}
	for _, rounds := range []float64{20, 80, 80, 40} {
		from := c.cwnd / seg
		r.run(at + engine.Time(rounds)*rtt)
		at += engine.Time(rounds) * rtt
		slope := 3 * 0.3 / 1.7
		if from >= prior {
			slope = 1
		}
		seen[slope] = true
		if to := from + slope*rounds; from < prior && to > prior {
			continue // both
		}
		within(t, "growth a round trip", (c.cwnd/seg-from)/rounds, slope, 0.05)
	}
	if len(seen) != 2 {
		t.Errorf("slopes %v", seen)
	}
}

// TestCubicFastConvergence: a flow that loses below its last maximum aims lower
// (RFC 9438 §4.7).
func TestCubicFastConvergence(t *testing.T) {
	var s Stack
	s.cfg = Defaults()
	c := &Conn{stack: &s}
	seg := float64(s.cfg.Segment())
	if w := (cubic{}).cut(c, 0, 100*seg); w != 70*seg || c.cubic.wmax != 100 {
		t.Errorf("after 100 segments: window %g, W_max %g", w/seg, c.cubic.wmax)
	}
	if w := (cubic{}).cut(c, 0, 80*seg); math.Abs(w-56*seg) > 1e-6 || math.Abs(c.cubic.wmax-68) > 1e-9 {
		t.Errorf("after 80 segments: window %g, W_max %g", w/seg, c.cubic.wmax)
	}
	if (cubic{}).timeout(c, 0, 50*seg); c.cubic.wmax != 0 {
		t.Errorf("after a timeout: W_max %g", c.cubic.wmax)
	}
}
