package tcp

import (
	"fmt"
	"math"
	"testing"

	"github.com/loomfabric/loom/sim/engine"
	"github.com/loomfabric/loom/sim/network"
)

// These tests hold coupled congestion control to RFC 6356 (Raiciu, Handley, Wischik; NSDI
// 2011), whose sections they name. We differ in one thing: windows are counted in bytes of
// fractions, so that alpha is not rounded as §4 proposes for integers.

// TestMPTCPTakesAllPaths: "Goal 1 (Improve Throughput) A multipath flow should perform at
// least as well as a single path flow would on the best of the paths available to it."
// Where nobody else is, it has the capacity of all of them, of unequal rates, too.
func TestMPTCPTakesAllPaths(t *testing.T) {
	const mbit = 1_000_000
	for _, tc := range []struct{ a, b uint64 }{{100, 100}, {100, 300}, {50, 500}} {
		cfg := multipath(LIA)
		cfg.Window = 16 << 20
		f := newFork(t, cfg, link{gbit, 100 * us, 0}, link{tc.a * mbit, 500 * us, 100 * frame}, link{tc.b * mbit, 500 * us, 100 * frame})
		m := f.stack.OpenMulti(f.subflows(0, 2, 0, 1))
		m.Send(0, 0, Endless)
		f.run(engine.Second)
		before := m.Goodput()
		f.run(3 * engine.Second)
		got := float64(m.Goodput()-before) * 8 / 2
		most := float64(tc.a+tc.b) * mbit * float64(cfg.Segment()) / frame
		t.Logf("%d and %d Mbit/s: %.0f Mbit/s, %.1f %% of what fits", tc.a, tc.b, got/1e6, 100*got/most)
		if got < 0.9*most || got > most*1.01 {
			t.Errorf("%d and %d Mbit/s: %.1f Mbit/s arrive, and %.1f fit", tc.a, tc.b, got/1e6, most/1e6)
		}
		m.Abort(f.net.Engine.Now())
		f.finish()
	}
}

// TestMPTCPSharesALink: "Goal 2 (Do no harm) A multipath flow should not take up more
// capacity from any of the resources shared by its different paths than if it were a single
// flow using only one of these paths." Without the coupling eight subflows take eight shares.
//
// On a shared queue ours take 0.66 beside one TCP, which is more than half: a full queue drops
// a few packets in a row, and the one subflow that they belong to halves an eighth of the
// window.
func TestMPTCPSharesALink(t *testing.T) {
	share := func(control Control, subflows int) float64 {
		cfg := multipath(control)
		cfg.Window, cfg.Defer = 16<<20, false
		r := newRig(t, cfg, link{gbit, ms, 0}, link{gbit, ms, 0}, link{200_000_000, 4 * ms, 300 * frame})
		m := r.stack.OpenMulti(r.subflows(0, subflows, 0, 2))
		m.Send(0, 0, Endless)
		single := r.stack.OpenMulti(r.subflows(100, 1, 1, 2))
		single.Send(0, 100, Endless)
		r.run(5 * engine.Second)
		a, b := m.Goodput(), single.Goodput()
		r.run(25 * engine.Second)
		a, b = m.Goodput()-a, single.Goodput()-b
		t.Logf("%s, %d subflows: %.1f Mbit/s beside %.1f", control, subflows, float64(a)*8/20e6, float64(b)*8/20e6)
		return float64(a) / float64(a+b)
	}
	if got := share(LIA, 8); got < 0.4 || got > 0.7 {
		t.Errorf("eight coupled subflows take %.2f of the link, want about half", got)
	}
	if got := share(NewReno, 8); got < 0.8 {
		t.Errorf("eight subflows without coupling take %.2f of the link, want some 8/9: nothing is tested", got)
	}
}

// TestMPTCPAvoidsLosses: "Goal 3 (Balance congestion) A multipath flow should move as much
// traffic as possible off its most congested paths, subject to meeting the first two goals."
// Windows are as the inverse of the losses, where those of two TCPs are as its root: of two paths,
// one of which loses four times as many packets, that one has a fifth of the traffic, not a third.
func TestMPTCPAvoidsLosses(t *testing.T) {
	share := func(control Control) float64 {
		cfg := multipath(control)
		cfg.Window, cfg.Defer, cfg.Handshake = 64<<20, false, false
		f := newFork(t, cfg, link{10 * gbit, us, 0}, link{gbit, 5 * ms, 0}, link{gbit, 5 * ms, 0})
		rnd := seeded(2)
		f.lost = func(p *network.Packet, path int) bool {
			return p.Kind == network.Data && rnd.IntN([]int{500, 2000}[path]) == 0
		}
		m := f.stack.OpenMulti(f.subflows(0, 2, 0, 1))
		m.Send(0, 0, Endless)
		f.run(50 * engine.Second)
		a, b := float64(m.subs[0].Counters().Segments), float64(m.subs[1].Counters().Segments)
		return a / (a + b)
	}
	within(t, "share of the worse path", share(LIA), 1./5, 0.25)
	within(t, "share of the worse path without coupling", share(NewReno), 1./3, 0.15)
}

// TestMPTCPLossLaw: "aggressiveness [...] is chosen such that [it] is equal to the throughput
// a TCP flow would get if it ran on the best path" (§3). So where packets get lost at random,
// as many on each path, the subflows together send as much as one TCP by one of the paths,
// however many they are; without the coupling each sends as much.
//
// We find 12 % more with two subflows and 17 % with four, also at a sixteenth of the losses:
// the equilibrium is of mean windows, and alpha goes by the largest one of the moment, while
// they swing by half.
func TestMPTCPLossLaw(t *testing.T) {
	rate := func(control Control, subflows int) (segments float64) {
		cfg := multipath(control)
		cfg.Window, cfg.Defer, cfg.Handshake = 64<<20, false, false
		paths := make([]link, 8)
		for i := range paths {
			paths[i] = link{gbit, 5 * ms, 0}
		}
		f := newFork(t, cfg, link{10 * gbit, us, 0}, paths...)
		rnd := seeded(1)
		f.lost = func(p *network.Packet, _ int) bool { return p.Kind == network.Data && rnd.IntN(500) == 0 }
		m := f.stack.OpenMulti(f.subflows(0, subflows, 0, 1))
		m.Send(0, 0, Endless)
		f.run(5 * engine.Second)
		before := m.Goodput()
		f.run(45 * engine.Second)
		return float64(m.Goodput()-before) / float64(cfg.Segment()) / 40
	}
	one := rate(NewReno, 1)
	for _, n := range []int{2, 4} {
		within(t, fmt.Sprintf("segments a second of %d subflows", n), rate(LIA, n), one, 0.2)
	}
	within(t, "segments a second without coupling", rate(NewReno, 4), 4*one, 0.1)
}

// TestLIA is §3 by hand, "min ( alpha * bytes_acked * MSS_i / cwnd_total , bytes_acked * MSS_i / cwnd_i )": what one ACK of a segment adds to a subflow's window.
func TestLIA(t *testing.T) {
	type sub struct {
		cwnd float64 // segments
		rtt  engine.Time
	}
	for _, tc := range []struct {
		name string
		subs []sub
		want float64 // segments, of the first one
	}{
		{"alone: NewReno", []sub{{20, ms}}, 1. / 20},
		{"four alike: alpha is 1/4, of 1/80", []sub{{20, ms}, {20, ms}, {20, ms}, {20, ms}}, 1. / 320},
		// alpha = 50 (10/1)/(10/1+40/2)² = 50·10/900; of 40/4 and 10/1 the latter is no less.
		{"unequal", []sub{{10, ms}, {40, 2 * ms}}, 10. / 900},
		{"the best path is another one", []sub{{10, 10 * ms}, {10, ms}}, (10 / 1.) / (11 * 11)},
		{"never more than NewReno", []sub{{1000, engine.Second}, {2, ms}}, 1. / 1000},
		{"one without a round trip yet", []sub{{20, ms}, {10, 0}}, 1. / 20},
	} {
		s := Stack{cfg: Defaults(), control: lia{}}
		m := &Multi{stack: &s}
		for _, x := range tc.subs {
			m.subs = append(m.subs, &Conn{stack: &s, multi: m, cwnd: x.cwnd * segment, srtt: x.rtt})
		}
		c := m.subs[0]
		before := c.cwnd
		s.control.avoid(c, 0, segment)
		if got := (c.cwnd - before) / segment; math.Abs(got-tc.want) > 1e-9 {
			t.Errorf("%s: %g segments, want %g", tc.name, got, tc.want)
		}
	}
}
