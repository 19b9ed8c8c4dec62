package tcp

import (
	"testing"

	"github.com/loomfabric/loom/sim/engine"
	"github.com/loomfabric/loom/sim/network"
)

// lossy returns a rig for tests that look at single segments: 10 Gbit/s, round
// trips of 100 µs, an initial window of 50, no handshake.
func lossy(t *testing.T, change func(*Config)) *rig {
	t.Helper()
	cfg := Defaults()
	cfg.Control, cfg.Handshake, cfg.Defer, cfg.InitialWindow = NewReno, false, false, 50
	if change != nil {
		change(&cfg)
	}
	return newRig(t, cfg, link{10 * gbit, 25 * us, 0}, link{10 * gbit, 25 * us, 0})
}

const segment = 1448

// TestSACKRecovery: several losses in one window are mended in one round trip,
// without a timeout, and nothing is sent twice that arrived (RFC 6675).
func TestSACKRecovery(t *testing.T) {
	for _, lost := range [][]uint64{{5}, {5, 6, 7}, {0, 1}, {3, 9, 15, 21, 27}, {0, 2, 4, 6, 8, 10, 12, 14, 16, 18}} {
		r := lossy(t, nil)
		r.box.filter = dropData(lost...)
		r.stack.Start(0, r.flow(0, 0, 1, 50*segment))
		r.finish()
		c := r.closed[0]
		if c.Recoveries != 1 || c.Timeouts != 0 || c.Retransmits != uint64(len(lost)) || c.Duplicates != 0 || c.Goodput != 50*segment {
			t.Errorf("lost %v: %+v", lost, c)
		}
		// All 50 segments are out after 61 µs, and would be there after 112.
		// The last hole is known when its three dupacks are back, one round trip
		// after it was sent; retransmitted with half the window in flight, it is
		// there half a round trip later.
		if at := r.at[0]; at < 150*us || at > 300*us {
			t.Errorf("lost %v: done after %v", lost, at)
		}
	}
}

// TestHalfWindow: a recovery halves the window, whatever is lost in it, and
// keeps in flight what the new window allows.
func TestHalfWindow(t *testing.T) {
	r := lossy(t, nil)
	r.box.filter = dropData(10, 11, 30)
	r.stack.Start(0, r.flow(0, 0, 1, 200*segment))
	c := r.conn()
	var before float64
	at := engine.Time(0)
	for c.phase == open {
		before = c.cwnd
		at += us / 10
		r.run(at)
	}
	if c.cwnd < before/2-segment || c.cwnd > before/2+segment || c.ssthresh != c.cwnd {
		t.Errorf("a window of %g became %g", before/segment, c.cwnd/segment)
	}
	for c.phase == recovery {
		if pipe := c.nxt - c.una; c.pipe > pipe {
			t.Fatalf("%d bytes in flight, %d outstanding", c.pipe, pipe)
		}
		at += us / 10
		r.run(at)
	}
	if c.phase != open || c.counters.Recoveries != 1 {
		t.Errorf("%+v", c.counters)
	}
	r.finish()
}

// TestTailLoss: the last segment has nobody to send duplicate ACKs for it: its
// timer expires exactly MinRTO after the last ACK, or after its transmission if
// there was none, and doubles each time.
func TestTailLoss(t *testing.T) {
	const there = 50*us + 2*1514*800*engine.Picosecond // a full segment, at 10 Gbit/s
	const back = 50*us + 2*66*800*engine.Picosecond
	for _, minRTO := range []engine.Time{200 * ms, ms} {
		for _, tc := range []struct {
			segments uint64
			lost     []uint64
			want     engine.Time
		}{
			{1, []uint64{0}, minRTO + there},
			{1, []uint64{0, 1}, 3*minRTO + there},
			{1, []uint64{0, 1, 2, 3}, 15*minRTO + there},
			// The ACK of the 4th of 5 restarts the timer.
			{5, []uint64{4}, 3*1514*800 + there + back + minRTO + there},
			// Two lost: the window is one segment after a timeout.
			{5, []uint64{3, 4}, 2*1514*800 + there + back + minRTO + there + back + there},
		} {
			r := lossy(t, func(c *Config) { c.MinRTO = minRTO })
			r.box.filter = dropData(tc.lost...)
			r.stack.Start(0, r.flow(0, 0, 1, tc.segments*segment))
			r.finish()
			if got := r.at[0]; got != tc.want {
				t.Errorf("%d segments, lost %v: done after %v, want %v", tc.segments, tc.lost, got, tc.want)
			}
			c := r.closed[0]
			if n := uint64(len(tc.lost)); c.Retransmits != n || c.Timeouts != min(n, c.Timeouts) || c.Timeouts == 0 || c.Duplicates != 0 {
				t.Errorf("%d segments, lost %v: %+v", tc.segments, tc.lost, c)
			}
		}
	}
}

// TestMaxRTO bounds the backoff.
func TestMaxRTO(t *testing.T) {
	r := lossy(t, func(c *Config) { c.MaxRTO = 800 * ms })
	n := 0
	var sent []engine.Time
	r.box.filter = func(_ engine.Time, p *network.Packet) verdict {
		if p.Kind == network.Data {
			sent = append(sent, p.Sent)
			n++
		}
		return verdict{drop: p.Kind == network.Data && n <= 6}
	}
	r.stack.Start(0, r.flow(0, 0, 1, segment))
	r.finish()
	want := []engine.Time{0, 200 * ms, 600 * ms, 1400 * ms, 2200 * ms, 3000 * ms, 3800 * ms}
	for i := range want {
		if sent[i] != want[i] {
			t.Fatalf("sent at %v, want %v", sent, want)
		}
	}
}

// TestTimeoutKeepsScoreboard: after a timeout only what the receiver has not is
// sent again, though everything outstanding counts as lost.
func TestTimeoutKeepsScoreboard(t *testing.T) {
	r := lossy(t, func(c *Config) { c.DupThresh = 100 }) // no fast recovery
	r.box.filter = dropData(3, 17, 18, 40)
	r.stack.Start(0, r.flow(0, 0, 1, 50*segment))
	r.finish()
	c := r.closed[0]
	if c.Timeouts != 1 || c.Recoveries != 0 || c.Retransmits != 4 || c.Duplicates != 0 {
		t.Errorf("%+v", c)
	}
}

// TestLostRetransmission: nobody tells of a lost retransmission but the timer.
func TestLostRetransmission(t *testing.T) {
	r := lossy(t, nil)
	var again []engine.Time
	drop := dropData(10, 50)
	r.box.filter = func(now engine.Time, p *network.Packet) verdict {
		if p.Kind == network.Data && p.Retrans {
			again = append(again, p.Sent)
		}
		return drop(now, p)
	}
	r.stack.Start(0, r.flow(0, 0, 1, 50*segment))
	r.finish()
	// Sending it again restarted the timer.
	if len(again) != 2 || again[1]-again[0] != 200*ms {
		t.Errorf("sent again at %v", again)
	}
	c := r.closed[0]
	if c.Recoveries != 1 || c.Timeouts != 1 || c.Retransmits != 2 || r.at[0] < 200*ms || r.at[0] > 201*ms {
		t.Errorf("done after %v: %+v", r.at[0], c)
	}
}

// TestLostHandshake: a lost SYN costs a second (RFC 6298 §2.1), and the window
// is one segment then (RFC 5681 §3.1); so does a lost SYN-ACK.
func TestLostHandshake(t *testing.T) {
	for _, kind := range []network.Kind{network.Data, network.Ack} {
		r := lossy(t, func(c *Config) { c.Handshake = true })
		first, inFirst := true, 0
		r.box.filter = func(now engine.Time, p *network.Packet) verdict {
			if p.Kind == kind && first {
				first = false
				return verdict{drop: true}
			}
			if p.Len > 0 && now < engine.Second+200*us {
				inFirst++
			}
			return verdict{}
		}
		r.stack.Start(0, r.flow(0, 0, 1, 3*segment))
		r.finish()
		if at := r.at[0]; at < engine.Second+200*us || at > engine.Second+400*us {
			t.Errorf("done after %v", at)
		}
		if c := r.closed[0]; c.SYNs != 2 || c.Timeouts != 1 || c.Retransmits != 0 || inFirst != 1 {
			t.Errorf("%d segments in the first window: %+v", inFirst, c)
		}
	}
}

// TestReordering holds back one segment until so many others have overtaken it.
// Three are a loss to TCP, two are not (RFC 5681 §3.2), and what is sent again
// then is there already.
func TestReordering(t *testing.T) {
	for places := uint64(1); places <= 6; places++ {
		r := lossy(t, nil)
		n := 0
		r.box.filter = func(_ engine.Time, p *network.Packet) verdict {
			if p.Kind != network.Data {
				return verdict{}
			}
			if n++; n != 20 {
				return verdict{}
			}
			// Between the last one that overtakes it and the next.
			return verdict{hold: engine.Time(places)*1514*800 + 600*engine.Nanosecond}
		}
		r.stack.Start(0, r.flow(0, 0, 1, 400*segment))
		c := r.conn()
		r.run(180 * us)
		cwnd := c.cwnd
		r.finish()
		got := r.closed[0]
		if got.Reordered != 1 || got.MaxDistance != places {
			t.Fatalf("%d places: %+v", places, got)
		}
		spurious := uint64(0)
		if places >= 3 {
			spurious = 1
		}
		if got.Recoveries != spurious || got.Retransmits != spurious || got.Duplicates != spurious || got.Reordered3 != spurious || got.Timeouts != 0 {
			t.Errorf("%d places: %+v", places, got)
		}
		if cut := cwnd < 50*segment; cut != (spurious == 1) {
			t.Errorf("%d places: the window is %.1f segments", places, cwnd/segment)
		}
	}
}

// TestLimitedTransmit: of a window of three segments one is lost. Two duplicate
// ACKs do not start a recovery; the new segments that they let out bring the
// third (RFC 3042). Without, the timer must expire.
func TestLimitedTransmit(t *testing.T) {
	for _, limited := range []bool{false, true} {
		r := lossy(t, func(c *Config) { c.LimitedTransmit, c.InitialWindow = limited, 3 })
		r.box.filter = dropData(0)
		r.stack.Start(0, r.flow(0, 0, 1, 10*segment))
		r.finish()
		if c := r.closed[0]; (c.Timeouts == 0) != limited || (c.Recoveries == 1) != limited {
			t.Errorf("limited transmit %v: %+v", limited, c)
		}
	}
}

// TestRescue: the first and the last segments of a window are lost. Nothing
// comes after the last, so no SACK makes it a loss; but the ACK that the first
// one's retransmission brings allows a rescue (RFC 6675 §4, NextSeg rule 4).
func TestRescue(t *testing.T) {
	for _, lost := range [][]uint64{{3, 49}, {3, 48, 49}} {
		r := lossy(t, nil)
		r.box.filter = dropData(lost...)
		r.stack.Start(0, r.flow(0, 0, 1, 50*segment))
		r.finish()
		c := r.closed[0]
		if c.Timeouts != 0 || c.Recoveries != 1 || c.Retransmits != uint64(len(lost)) {
			t.Errorf("lost %v: done after %v, %+v", lost, r.at[0], c)
		}
	}
}

// TestSlowStartAfterTimeout: a whole window is lost. After the timeout it is
// sent again in slow start: 1, 2, 4, 8, 16 and the other 19 segments.
func TestSlowStartAfterTimeout(t *testing.T) {
	r := lossy(t, nil)
	n := 0
	r.box.filter = func(_ engine.Time, p *network.Packet) verdict {
		if p.Kind != network.Data {
			return verdict{}
		}
		n++
		return verdict{drop: n <= 50}
	}
	r.stack.Start(0, r.flow(0, 0, 1, 50*segment))
	r.finish()
	const rtt = 100*us + (2*1514+2*66)*800*engine.Picosecond
	const L = 1514 * 800 * engine.Picosecond
	// A round is what a segment and its ACK take, and lasts until the ACK of the
	// round's last segment but for the next round's first ones. So the last
	// segment of the sixth round leaves 18 segments after the first.
	want := 200*ms + 5*rtt + 18*L + 50*us + 2*L
	if got := r.at[0]; got < want-2*L || got > want+2*L {
		t.Errorf("done after %v, want %v", got, want)
	}
	if c := r.closed[0]; c.Timeouts != 1 || c.Retransmits != 50 || c.Duplicates != 0 {
		t.Errorf("%+v", c)
	}
}

// TestShortSegments: three duplicate ACKs are a loss however few bytes they
// bring (RFC 6675 §5 step 2).
func TestShortSegments(t *testing.T) {
	r := lossy(t, nil)
	r.box.filter = dropData(1)
	c := r.stack.Open(r.flow(0, 0, 1, 0))
	for i := range engine.Time(5) {
		c.Send(i*us, network.FlowID(i), 100)
		r.run((i + 1) * us)
	}
	c.close(5 * us)
	r.finish()
	if n := r.closed[0]; n.Segments != 6 || n.Recoveries != 1 || n.Timeouts != 0 {
		t.Errorf("%+v", n)
	}
}
