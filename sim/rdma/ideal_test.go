package rdma

import (
	"testing"

	"github.com/loomfabric/loom/sim/engine"
)

// The values are worked out by hand: a byte takes 80 ps at 100 Gbit/s, 320 ps
// at 25 Gbit/s; there are two links of 1 µs; a full packet has 1058 bytes, an
// ACK 62.
func TestLoneMessageTakesWhatItMust(t *testing.T) {
	for _, tc := range []struct {
		name            string
		src, dst        uint64
		bytes           uint64
		received, acked engine.Time // ps
	}{
		// 84640 + 1000000 + 84640 + 1000000; 2 × (4960 + 1000000) more.
		{"one packet", 100 * gig, 100 * gig, 1000, 2_169_280, 4_179_200},
		// 10 packets leave in 846400, the last one once more 84640.
		{"ten packets", 100 * gig, 100 * gig, 10_000, 2_931_040, 4_940_960},
		// The last packet has 1 byte, 59 with headers, 4720 ps a link: it waits at
		// the switch for the full one before it, until 1000000 + 3 × 84640, and
		// arrives 4720 after it. Its ACK waits 240 for the one before …
		{"a small last packet", 100 * gig, 100 * gig, 2001, 2_258_640, 4_268_800},
		// … and 1 byte alone waits for nothing.
		{"one byte", 100 * gig, 100 * gig, 1, 2_009_440, 4_019_360},
		{"nothing", 100 * gig, 100 * gig, 0, 2_009_280, 4_019_200},
		// 1058 bytes take 338560 ps on the slow link: 84640 + 3 × 338560 + 2 µs;
		// back 19840 + 4960 + 2 µs.
		{"into a slower link", 100 * gig, 25 * gig, 3000, 3_100_320, 5_125_120},
		// 3 × 338560 + 84640 + 2 µs.
		{"into a faster link", 25 * gig, 100 * gig, 3000, 3_100_320, 5_125_120},
		// 1001 packets, the last of 1 byte: 1000 full ones and the last on the
		// slow link. 84640 + 1000 × 338560 + 59 × 320 + 2 µs. The ACK before the
		// last one takes 19840, 960 longer than the last packet.
		{"a megabyte and a byte", 100 * gig, 25 * gig, 1_000_001, 340_663_520, 342_689_280},
	} {
		for _, r := range []Recovery{GoBackN, IRN} {
			t.Run(tc.name+"/"+string(r), func(t *testing.T) {
				c := Defaults()
				c.Recovery = r
				c.BDP = 10_000_000
				l := newLab(t, c, tc.src, tc.dst)
				q := l.open(0, 1)
				l.e.At(7*usec, l.e.Register(handle(func(now engine.Time) { q.Post(now, tc.bytes, 5) })), 0)
				l.run()
				if len(l.done) != 1 {
					t.Fatalf("%d messages are complete; want 1", len(l.done))
				}
				m := l.done[0]
				if m.Posted != 7*usec || m.Received-m.Posted != tc.received || m.fct() != tc.acked {
					t.Errorf("posted at %v, received after %v, complete after %v; want %v, %v, %v",
						m.Posted, m.Received-m.Posted, m.fct(), 7*usec, tc.received, tc.acked)
				}
				out := []hop{{Rate: tc.src, Delay: usec}, {Rate: tc.dst, Delay: usec}}
				back := []hop{{Rate: tc.dst, Delay: usec}, {Rate: tc.src, Delay: usec}}
				if rx, ack := c.ideal(tc.bytes, out, back); rx != tc.received || ack != tc.acked {
					t.Errorf("the model says %v and %v; want %v and %v", rx, ack, tc.received, tc.acked)
				}
				if n := q.Counters(); n.Delivered != tc.bytes || n.Retransmitted+n.Nacks+n.Timeouts+n.CNPs+n.OutOfOrder+n.Duplicates != 0 {
					t.Errorf("counters of an undisturbed message: %+v", n)
				}
			})
		}
	}
}

type handle func(now engine.Time)

func (f handle) Handle(now engine.Time, _ uint64) { f(now) }
