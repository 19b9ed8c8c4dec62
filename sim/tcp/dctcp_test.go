package tcp

import (
	"math"
	"testing"

	"github.com/loomfabric/loom/sim/engine"
	"github.com/loomfabric/loom/sim/network"
)

// TestDCTCPQueue holds a lone flow and two to the analysis of Alizadeh et al.
// (SIGCOMM 2010, §3.3): with N flows, W* = (C·RTT+K)/N is the window at which
// marking begins, α²·(1-α/4) = (2W*+1)/(W*+1)², the queue's peak is K+N
// segments, and it swings by N·(W*+1)·α/2. Its fluid has no delayed ACKs. Two
// flows share the link evenly, and none is lost.
func TestDCTCPQueue(t *testing.T) {
	const rate, K = 10 * gbit, 65
	const delay = 20 * us
	rtt := (4 * delay).Seconds() + 4*2*(1514+66)*8/float64(4*rate)
	for _, flows := range []int{1, 2} {
		cfg := Defaults()
		cfg.Control, cfg.Defer, cfg.Window, cfg.AckEvery = DCTCP, false, 64<<20, 1
		links := []link{{rate, delay, 4 << 20}}
		for range flows {
			links = append(links, link{4 * rate, delay, 0})
		}
		r := newRig(t, cfg, links...)
		r.box.mark = K * frame
		for i := range flows {
			r.stack.Start(0, r.flow(network.FlowID(i), i+1, 0, Endless))
		}
		const from, to = 50 * ms, 150 * ms
		r.run(from)
		var sent uint64
		before := make([]uint64, flows)
		for i, c := range r.stack.conns {
			before[i] = c.counters.Goodput
		}
		port := r.box.ports[0]
		var alphas float64
		lo, hi, n := math.Inf(1), 0.0, 0
		for at := from; at < to; at += 2 * us {
			r.run(at)
			q := float64(port.Queued()) / frame
			lo, hi = min(lo, q), max(hi, q)
			for _, c := range r.stack.conns {
				alphas += c.dctcp.alpha
				n++
			}
		}
		N := float64(flows)
		W := (rate*rtt/8/frame + K) / N
		alpha := 0.0
		for alpha*alpha*(1-alpha/4) < (2*W+1)/((W+1)*(W+1)) {
			alpha += 1e-5
		}
		t.Logf("%d flows", flows)
		within(t, "alpha", alphas/float64(n), alpha, 0.05)
		within(t, "the queue's peak", hi, K+N, 0.02)
		within(t, "the queue's least", lo, K+N-N*(W+1)*alpha/2, 0.03)
		for i, c := range r.stack.conns {
			within(t, "a flow's share", float64(c.counters.Goodput-before[i]), (to-from).Seconds()*rate/8*1448/frame/N, 0.03)
			sent += c.counters.Retransmits
		}
		if sent != 0 {
			t.Errorf("%d retransmissions", sent)
		}
	}
}

// TestDCTCPDelayedAcks: with ACKs for every other segment the estimate still is
// of bytes, and the queue stays at K.
func TestDCTCPDelayedAcks(t *testing.T) {
	const K = 65
	cfg := Defaults()
	cfg.Control, cfg.Defer = DCTCP, false
	r := newRig(t, cfg, link{10 * gbit, 20 * us, 4 << 20}, link{40 * gbit, 20 * us, 0})
	r.box.mark = K * frame
	r.stack.Start(0, r.flow(0, 1, 0, Endless))
	c := r.conn()
	r.run(20 * ms)
	lo, hi := math.Inf(1), 0.0
	for at := 20 * ms; at < 60*ms; at += us {
		r.run(at)
		q := float64(r.box.ports[0].Queued()) / frame
		lo, hi = min(lo, q), max(hi, q)
	}
	// Pairs of segments find the queue now above K, now below: fewer marks.
	if lo < K-12 || hi > K+3 || c.dctcp.alpha < 0.06 || c.dctcp.alpha > 0.13 {
		t.Errorf("the queue is %.0f to %.0f segments, alpha %.3f", lo, hi, c.dctcp.alpha)
	}
}

// TestCEChange checks RFC 8257 §3.2: when marks begin or end, what is waiting
// for an ACK gets one with the old state, and the new segment gets its own.
func TestCEChange(t *testing.T) {
	cfg := Defaults()
	cfg.Control, cfg.QuickAcks, cfg.Handshake = DCTCP, 0, false
	r := newRig(t, cfg, link{gbit, us, 0}, link{gbit, us, 0})
	type ack struct {
		segment uint64
		echo    bool
	}
	var got []ack
	n := 0
	r.box.filter = func(_ engine.Time, p *network.Packet) verdict {
		if p.Kind == network.Data {
			// Segments 0 to 9; 3 and 4 and 8 are marked.
			p.CE = n == 3 || n == 4 || n == 8
			if !p.ECT {
				t.Error("data without ECT")
			}
			n++
		} else {
			got = append(got, ack{p.Seq / 1448, p.Echo})
		}
		return verdict{}
	}
	r.stack.Start(0, r.flow(0, 0, 1, 10*1448))
	r.finish()
	want := []ack{{2, false}, {3, false}, {4, true}, {5, true}, {6, false}, {8, false}, {9, true}, {10, false}}
	// Segment 4 waits alone when 5 comes unmarked: it is acknowledged with its
	// own state first. Segments 6 and 7 are acknowledged together.
	if len(got) != len(want) {
		t.Fatalf("ACKs: %v, want %v", got, want)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("ACK %d is %v, want %v", i, got[i], want[i])
		}
	}
}

// TestFirstMark: with classic ECN a mark is a loss without the loss, once a
// window (RFC 3168 §6.1.2). DCTCP's first mark does the same (RFC 8257 §4.2).
func TestFirstMark(t *testing.T) {
	for control, left := range map[Control]float64{NewReno: 0.5, Cubic: 0.7, DCTCP: 0.5} {
		cfg := Defaults()
		cfg.Control, cfg.ECN, cfg.Handshake, cfg.G = control, true, false, 1e-6
		r := newRig(t, cfg, link{10 * gbit, 100 * us, 0}, link{10 * gbit, 100 * us, 0})
		n := 0
		r.box.filter = func(_ engine.Time, p *network.Packet) verdict {
			if p.Kind == network.Data {
				n++
				p.CE = n > 90 && n <= 95
			}
			return verdict{}
		}
		r.stack.Start(0, r.flow(0, 0, 1, Endless))
		c := r.conn()
		at := engine.Time(0)
		before := 0.0
		for c.counters.ECNCuts == 0 {
			before = c.cwnd
			at += us
			r.run(at)
		}
		within(t, "the window after a mark", c.cwnd, left*before, 0.03)
		if c.ssthresh != c.cwnd {
			t.Errorf("%s: the threshold is %g, the window %g", control, c.ssthresh, c.cwnd)
		}
		r.run(at + 5*ms)
		if c.counters.ECNCuts != 1 || c.counters.Retransmits != 0 {
			t.Errorf("%s: %+v", control, c.counters)
		}
	}
}
