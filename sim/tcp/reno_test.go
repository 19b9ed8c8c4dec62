package tcp

import (
	"math"
	"testing"

	"github.com/loomfabric/loom/sim/engine"
	"github.com/loomfabric/loom/sim/network"
)

// frame is a full segment on the wire.
const frame = 1514

// within fails the test unless got is want but for a share of it.
func within(t *testing.T, what string, got, want, share float64) {
	t.Helper()
	if math.Abs(got-want) > share*math.Abs(want) || math.IsNaN(got) {
		t.Errorf("%s is %.5g, want %.5g to %g %%", what, got, want, 100*share)
	} else {
		t.Logf("%s is %.5g, theory says %.5g", what, got, want)
	}
}

// bottleneck is a path of 100 Mbit/s with a round-trip time of about 10 ms and
// room for so many full segments before the slow link. It returns what the path
// holds without a queue, in segments: rate times round-trip time.
func bottleneck(t *testing.T, cfg Config, room float64) (r *rig, bdp float64) {
	t.Helper()
	const rate = 100_000_000
	r = newRig(t, cfg, link{gbit, 2500 * us, 0}, link{rate, 2500 * us, uint64(room * frame)})
	rtt := 10 * ms.Seconds()
	for _, l := range []float64{gbit, rate} {
		rtt += (frame + 66) * 8 / l
	}
	return r, rate * rtt / 8 / frame
}

// cycles samples a lone flow's window and returns what it was before and after
// each loss, in segments, the mean time between losses in seconds, and the
// goodput in bit/s, all without the first two losses: slow start's overshoot.
func cycles(r *rig, until engine.Time) (peaks, troughs []float64, period, goodput float64) {
	c := r.conn()
	seg := float64(r.stack.cfg.Segment())
	var first, last engine.Time
	var bytes, seen uint64
	cwnd := c.cwnd
	for at := engine.Time(0); at < until; at += ms / 2 {
		before := cwnd
		r.run(at)
		cwnd = c.cwnd
		n := c.Counters()
		if n.Recoveries == seen {
			continue
		}
		seen = n.Recoveries
		switch {
		case seen == 2:
			first, bytes = at, n.Goodput
		case seen > 2:
			peaks, troughs = append(peaks, before/seg), append(troughs, cwnd/seg)
			last, goodput = at, float64(n.Goodput-bytes)
		}
	}
	span := (last - first).Seconds()
	return peaks, troughs, span / float64(len(peaks)), 8 * goodput / span
}

// TestSawtooth holds a lone NewReno flow to the textbook: it loses a segment
// when the window has filled the path and the buffer, W = BDP+B, learns it a
// round trip later with one segment more, goes on from half of that, and grows
// by a segment a round trip. With B = BDP the queue never runs dry, and a round
// trip lasts for as long as the slow link takes for a window: the time between
// losses is the sum of w·L for w from W/2 to W+1, and one for the recovery.
func TestSawtooth(t *testing.T) {
	cfg := Defaults()
	cfg.Control, cfg.Window, cfg.Defer = NewReno, 64<<20, false
	_, bdp := bottleneck(t, cfg, 1)
	B := math.Ceil(bdp)
	r, _ := bottleneck(t, cfg, B)
	r.stack.Start(0, r.flow(0, 0, 1, Endless))
	peaks, troughs, period, goodput := cycles(r, 20*engine.Second)

	W, L := bdp+B, frame*8/100e6
	want := W * L
	for w := W / 2; w < W+1; w++ {
		want += w * L
	}
	if len(peaks) < 10 {
		t.Fatalf("%d losses", len(peaks))
	}
	for i := range peaks {
		within(t, "the window before a loss", peaks[i], W+1, 0.01)
		within(t, "the window after it", troughs[i], (W+1)/2, 0.01)
	}
	within(t, "the time between losses", period, want, 0.02)
	within(t, "the goodput", goodput, 100e6*1448/frame, 0.005)
	if n := r.conn().Counters(); n.Timeouts > 0 {
		t.Errorf("%d timeouts", n.Timeouts)
	}
}

// TestTinyBuffer: with a buffer of a few segments the path is full only when the
// window is at its largest, and half empty at its smallest: three quarters.
func TestTinyBuffer(t *testing.T) {
	cfg := Defaults()
	cfg.Control, cfg.Window, cfg.Defer, cfg.AckEvery = NewReno, 64<<20, false, 1
	const B = 2
	r, bdp := bottleneck(t, cfg, B)
	r.stack.Start(0, r.flow(0, 0, 1, Endless))
	_, _, _, goodput := cycles(r, 20*engine.Second)
	within(t, "the goodput", goodput, 0.75*(bdp+B)/bdp*100e6*1448/frame, 0.03)
}

// TestLossLaw: with every 1/p-th segment lost, and nothing else to limit it,
// NewReno's throughput is sqrt(3/2)·MSS/(RTT·sqrt(p)) (Mathis et al., 1997);
// with independent losses the factor is 1.31 (Ott, Kemperman and Mathis, 1996).
// Both are limits for small p: the window is a whole number of segments, and a
// recovery takes a round trip without growth.
func TestLossLaw(t *testing.T) {
	const delay = 2 * ms
	rtt := (4 * delay).Seconds() + 4*2*790*8/(10*gbit)
	for _, tc := range []struct {
		name   string
		random bool
		every  int // 1/p
		factor float64
		share  float64
	}{
		{"periodic", false, 12800, math.Sqrt(1.5), 0.03},
		{"independent", true, 800, 1.31, 0.06},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cfg := Defaults()
			cfg.Control, cfg.Window, cfg.Defer = NewReno, 64<<20, false
			r := newRig(t, cfg, link{10 * gbit, delay, 0}, link{10 * gbit, delay, 0})
			rnd, n := seeded(1), 0
			r.box.filter = func(_ engine.Time, k *network.Packet) verdict {
				if k.Kind != network.Data {
					return verdict{}
				}
				n++
				return verdict{drop: !tc.random && n%tc.every == 0 || tc.random && rnd.IntN(tc.every) == 0}
			}
			r.stack.Start(0, r.flow(0, 0, 1, Endless))
			r.run(5 * engine.Second)
			before := r.conn().Counters().Goodput
			r.run(35 * engine.Second)
			rate := float64(r.conn().Counters().Goodput-before) / 30
			within(t, "the throughput", rate, tc.factor*1448/rtt*math.Sqrt(float64(tc.every)), tc.share)
		})
	}
}
