package tcp

import (
	"testing"

	"github.com/loomfabric/loom/sim/engine"
	"github.com/loomfabric/loom/sim/network"
)

const (
	us   = engine.Microsecond
	ms   = engine.Millisecond
	gbit = 1_000_000_000
)

// TestIdleFCT holds completion times in an idle network against a recurrence
// over segments: no packets, queues or events.
//
// Both links have the same rate, so the box stores and forwards without
// queueing. With L the time that a full segment takes on a link, A that of an
// ACK and D the delay of a link, segment i (from 1) that leaves at x is there at
// x + 2L + 2D and its ACK is back after another 2A + 2D. In slow start k
// acknowledged segments open the window to 10 + k, so segment i needs the ACK of
// k = ⌈(i-10)/2⌉, of the next even k where ACKs come for every other segment.
func TestIdleFCT(t *testing.T) {
	const rate = 10 * gbit
	wire := func(bytes uint64) engine.Time { return engine.Time(bytes * 8 * 100) } // ps at 10 Gbit/s
	for _, tc := range []struct {
		name      string
		delay     engine.Time
		quick     uint32
		handshake bool
		mss       uint32
	}{
		{"long wire", 50 * us, 1000, false, 1460},
		{"short wire", 1 * us, 1000, false, 1460},
		{"handshake", 20 * us, 1000, true, 1460},
		{"delayed ACKs", 50 * us, 0, false, 1460},
		{"jumbo frames", 50 * us, 1000, false, 8960},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for n := 1; n <= 100; n++ {
				for _, rest := range []uint64{0, 1, 700} { // of the last segment; 0: full
					cfg := Defaults()
					cfg.MSS, cfg.QuickAcks, cfg.Handshake, cfg.Defer = tc.mss, tc.quick, tc.handshake, false
					payload := uint64(tc.mss) - 12
					last := payload
					if rest > 0 {
						last = rest
					}
					bytes := uint64(n-1)*payload + last

					L, A := wire(payload+66), wire(66)
					turn := 2*L + 2*A + 4*tc.delay
					leave := make([]engine.Time, n+1)
					leave[1] = 0
					if tc.handshake {
						leave[1] = 4*wire(74) + 4*tc.delay
					}
					for i := 2; i <= n; i++ {
						leave[i] = leave[i-1] + L
						if i > 10 {
							k := (i - 10 + 1) / 2
							if tc.quick == 0 {
								k += k % 2
							}
							leave[i] = max(leave[i], leave[k]+turn)
						}
					}
					want := leave[n] + 2*wire(last+66) + 2*tc.delay

					r := newRig(t, cfg, link{rate, tc.delay, 0}, link{rate, tc.delay, 0})
					r.stack.Start(0, r.flow(0, 0, 1, bytes))
					r.finish()
					// A short last segment does not overtake the one before it at
					// the second link.
					if n > 1 {
						want = max(want, leave[n-1]+2*L+wire(last+66)+2*tc.delay)
					}
					if got := r.at[0]; got != want {
						t.Fatalf("%d segments, the last of %d bytes: done after %v, want %v", n, last, got, want)
					}
				}
			}
		})
	}
}

// TestNumbers checks what segments say of themselves.
func TestNumbers(t *testing.T) {
	cfg := Defaults()
	r := newRig(t, cfg, link{10 * gbit, us, 0}, link{10 * gbit, us, 0})
	var next, number uint64
	r.box.filter = func(_ engine.Time, p *network.Packet) verdict {
		switch {
		case p.Kind == network.Ack:
			if p.Hash != ^uint32(7) || p.Src != 1 || p.Dst != 0 || p.Size != 66 && p.Size != 74 {
				t.Errorf("ACK from %d to %d, hash %x, %d bytes", p.Src, p.Dst, p.Hash, p.Size)
			}
		case p.Number != number:
			t.Errorf("packet %d has number %d", number, p.Number)
		case number == 0:
			if p.Len != 0 || p.Size != 74 {
				t.Errorf("a SYN of %d bytes, %d on the wire", p.Len, p.Size)
			}
		case p.Seq != next || p.Size != p.Len+66 || p.Hash != 7 || p.Last != (p.Seq+uint64(p.Len) == 100_000) || p.ECT:
			t.Errorf("after %d bytes: %+v", next, p)
		}
		if p.Kind == network.Data {
			number++
			next += uint64(p.Len)
		}
		return verdict{}
	}
	r.stack.Start(0, r.flow(7, 0, 1, 100_000))
	r.finish()
	if next != 100_000 {
		t.Errorf("%d bytes were sent", next)
	}
	c := r.closed[7]
	if c.Goodput != 100_000 || c.Bytes != 100_000 || c.SYNs != 1 || c.Retransmits+c.Timeouts+c.Duplicates+c.Reordered != 0 {
		t.Errorf("counters: %+v", c)
	}
}
