package rdma

import (
	"testing"

	"github.com/loomfabric/loom/sim/engine"
	"github.com/loomfabric/loom/sim/network"
)

// late has one packet, sent for the first time, come later by a time.
func late(psn uint64, by engine.Time) func(engine.Time, *network.Packet) (bool, engine.Time) {
	return func(_ engine.Time, p *network.Packet) (bool, engine.Time) {
		if p.Kind == network.Data && p.Seq == psn && !p.Retrans {
			return false, by
		}
		return false, 0
	}
}

// lose drops the first so many packets of a kind and number.
func lose(kind network.Kind, psn uint64, times int) func(engine.Time, *network.Packet) (bool, engine.Time) {
	return func(_ engine.Time, p *network.Packet) (bool, engine.Time) {
		if p.Kind == kind && p.Seq == psn && times > 0 {
			times--
			return true, 0
		}
		return false, 0
	}
}

// ConWeave §2: "when an RNIC receives a packet out-of-order, it treats it as an
// indication of packet loss". Go-Back-N sends again all that is under way when
// one packet comes a microsecond late; this is what spraying costs.
//
// A packet takes 84.64 ns on each of two links of 1 µs, an ACK 4.96 ns. Packet
// 100 is late; 101 leaves a gap and is dropped. Its NACK comes when the sender
// has sent packet 150: (101+2)·84.64 ns + 4009.92 ns = 150.4 packets. The sender
// goes back to 100, and sends 12 packets, to 111, until the second NACK: 100 had
// come behind 111 after all, so now 112 left a gap at 101. The sender goes back
// to 101, and sends 101 to 150 again: 50 packets, an RTT's worth, and the 12.
func TestOneLatePacketCostsGoBackNAllThatIsUnderWay(t *testing.T) {
	c := quiet(GoBackN)
	c.NackInterval = 0
	l := newLab(t, c, 100*gig, 100*gig)
	l.sw.meddle = late(100, usec)
	q := l.open(0, 1)
	q.Post(0, 1_000_000, 0)
	l.run()
	got := q.Counters()
	want := Counters{
		Packets: 1062, Bytes: 1062 * 1058, Retransmitted: 62, Nacks: 2, Messages: 1,
		Received: 1062, Delivered: 1_000_000,
		Duplicates: 12,                                                  // 100 of the first time back, 101 to 111 of the second
		OutOfOrder: 50, Discarded: 50, Distance: 11*12/2 + (11+49)*39/2, // 101 to 111 before 100 came, 112 to 150 after
		MaxDistance: 49, Reordered: 1, Extent: 11, MaxExtent: 11,
	}
	if got != want {
		t.Errorf("counters are\n%+v, want\n%+v", got, want)
	}
	// The wire is never idle: the message takes 62 packets longer, and one more,
	// the queue at the switch since 100 joined a stream without gaps there.
	_, base := l.base(q, 1_000_000)
	if over := l.done[0].fct() - base; over != 63*84_640 {
		t.Errorf("the message took %v longer than %v; want 63 packets, %v", over, base, 63*84_640*engine.Picosecond)
	}
}

// With the defaults the NACK is repeated each 4 µs, less than the round trip,
// and each NACK is a reason to halve the rate (ConWeave §2, Figure 3).
func TestOneLatePacketHalvesTheRate(t *testing.T) {
	for _, tc := range []struct {
		recovery Recovery
		again    [2]uint64 // packets sent again, bounds
	}{{GoBackN, [2]uint64{50, 150}}, {IRN, [2]uint64{1, 1}}} {
		c := Defaults()
		c.Recovery = tc.recovery
		l := newLab(t, c, 100*gig, 100*gig)
		l.sw.meddle = late(100, usec)
		q := l.open(0, 1)
		q.Post(0, 1_000_000, 0)
		l.run()
		n := q.Counters()
		if n.Retransmitted < tc.again[0] || n.Retransmitted > tc.again[1] {
			t.Errorf("%s: %d packets were sent again; want %d to %d", tc.recovery, n.Retransmitted, tc.again[0], tc.again[1])
		}
		_, base := l.base(q, 1_000_000)
		slowdown := float64(l.done[0].fct()) / float64(base)
		t.Logf("%s: slowdown %.3f of a megabyte, %d sent again, %d cuts", tc.recovery, slowdown, n.Retransmitted, n.Cuts)
		if n.Cuts == 0 || n.CNPs == 0 || slowdown < 1.2 {
			t.Errorf("%s: %d cuts, %d CNPs, slowdown %.2f; one late packet should have cost half of the rate for the rest", tc.recovery, n.Cuts, n.CNPs, slowdown)
		}

		c.OutOfOrderCNP = false
		l = newLab(t, c, 100*gig, 100*gig)
		l.sw.meddle = late(100, usec)
		q = l.open(0, 1)
		q.Post(0, 1_000_000, 0)
		l.run()
		if n := q.Counters(); n.Cuts != 0 || n.CNPs != 0 || n.Nacks == 0 {
			t.Errorf("%s: without CNPs for reordering there are %d cuts, %d CNPs, %d NACKs", tc.recovery, n.Cuts, n.CNPs, n.Nacks)
		}
	}
}

// IRN keeps what comes early: one late packet costs one packet, or none if that
// many NACKs are not believed (IRN §3.1, §7). 11 packets overtake it.
func TestOneLatePacketCostsIRNOnePacket(t *testing.T) {
	for _, tc := range []struct {
		threshold uint32
		again     uint64
	}{{1, 1}, {11, 1}, {12, 0}} {
		c := quiet(IRN)
		c.NackThreshold = tc.threshold
		l := newLab(t, c, 100*gig, 100*gig)
		l.sw.meddle = late(100, usec)
		q := l.open(0, 1)
		q.Post(0, 1_000_000, 0)
		l.run()
		want := Counters{
			Packets: 1000 + tc.again, Bytes: (1000 + tc.again) * 1058, Retransmitted: tc.again, Nacks: 11, Messages: 1,
			Received: 1000 + tc.again, Delivered: 1_000_000, Duplicates: tc.again,
			OutOfOrder: 11, Distance: 11 * 12 / 2, MaxDistance: 11, Reordered: 1, Extent: 11, MaxExtent: 11,
		}
		if got := q.Counters(); got != want {
			t.Errorf("threshold %d: counters are\n%+v, want\n%+v", tc.threshold, got, want)
		}
	}
}

// NACKs that are not believed are forgotten when the packet comes after all.
func TestNacksAreForgotten(t *testing.T) {
	c := quiet(IRN)
	c.NackThreshold = 12
	l := newLab(t, c, 100*gig, 100*gig)
	l.sw.meddle = func(_ engine.Time, p *network.Packet) (bool, engine.Time) {
		if p.Kind == network.Data && (p.Seq == 100 || p.Seq == 200) {
			return false, usec
		}
		return false, 0
	}
	q := l.open(0, 1)
	q.Post(0, 1_000_000, 0)
	l.run()
	if n := q.Counters(); n.Nacks != 22 || n.Retransmitted != 0 {
		t.Errorf("%d NACKs, %d sent again; want two times 11, none", n.Nacks, n.Retransmitted)
	}
}

// One loss each, of everything that can be lost. wait is for how long nothing
// happens because of it.
func TestOneLoss(t *testing.T) {
	gbn, irn := quiet(GoBackN), quiet(IRN)
	once := gbn
	once.NackInterval = 0
	for _, tc := range []struct {
		name   string
		c      Config
		bytes  uint64
		meddle func(engine.Time, *network.Packet) (bool, engine.Time)
		wait   engine.Time
		want   func(n Counters) bool
	}{
		{"data, gbn", once, 1_000_000, lose(network.Data, 100, 1), 0,
			func(n Counters) bool { return n.Nacks == 1 && n.Retransmitted == 51 && n.Timeouts == 0 }},
		// The gap's NACK again after 4 µs, 120 ns before 100 comes again: the sender
		// goes back two times.
		{"data, gbn that repeats NACKs", gbn, 1_000_000, lose(network.Data, 100, 1), 0,
			func(n Counters) bool { return n.Nacks == 2 && n.Retransmitted > 51+40 && n.Timeouts == 0 }},
		{"data twice, gbn", once, 1_000_000, lose(network.Data, 100, 2), 4 * engine.Millisecond,
			func(n Counters) bool { return n.Nacks == 1 && n.Timeouts == 1 }},
		{"data twice, gbn that repeats NACKs", gbn, 1_000_000, lose(network.Data, 100, 2), 0,
			func(n Counters) bool { return n.Nacks > 1 && n.Timeouts == 0 }},
		{"last packet, gbn", gbn, 1_000_000, lose(network.Data, 999, 1), 4 * engine.Millisecond,
			func(n Counters) bool { return n.Retransmitted == 1 && n.Timeouts == 1 }},
		{"only packet, gbn", gbn, 10, lose(network.Data, 0, 1), 4 * engine.Millisecond,
			func(n Counters) bool { return n.Retransmitted == 1 && n.Timeouts == 1 }},
		{"last ACK, gbn", gbn, 1_000_000, lose(network.Ack, 1000, 1), 4 * engine.Millisecond,
			func(n Counters) bool { return n.Retransmitted == 1 && n.Duplicates == 1 && n.Timeouts == 1 }},
		{"an ACK, gbn", gbn, 1_000_000, lose(network.Ack, 500, 1), 0,
			func(n Counters) bool { return n.Retransmitted+n.Timeouts == 0 }},
		{"data, irn", irn, 1_000_000, lose(network.Data, 100, 1), 0,
			func(n Counters) bool {
				return n.Retransmitted == 1 && n.Duplicates == 0 && n.Timeouts == 0 && n.Nacks == 50
			}},
		{"data twice, irn", irn, 1_000_000, lose(network.Data, 100, 2), 320 * usec,
			func(n Counters) bool { return n.Timeouts == 1 && n.Retransmitted == 2 && n.Duplicates == 0 }},
		{"last packet, irn", irn, 1_000_000, lose(network.Data, 999, 1), 100 * usec,
			func(n Counters) bool { return n.Retransmitted == 1 && n.Timeouts == 1 }},
		{"only packet, irn", irn, 10, lose(network.Data, 0, 1), 100 * usec,
			func(n Counters) bool { return n.Retransmitted == 1 && n.Timeouts == 1 }},
		{"last ACK, irn", irn, 1_000_000, lose(network.Ack, 1000, 1), 100 * usec,
			func(n Counters) bool { return n.Retransmitted == 1 && n.Duplicates == 1 && n.Timeouts == 1 }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := newLab(t, tc.c, 100*gig, 100*gig)
			l.sw.meddle = tc.meddle
			q := l.open(0, 1)
			q.Post(0, tc.bytes, 0)
			l.run()
			n := q.Counters()
			if !tc.want(n) || n.Delivered != tc.bytes || n.Messages != 1 {
				t.Errorf("unexpected: %+v", n)
			}
			_, base := l.base(q, tc.bytes)
			// After a timeout of Go-Back-N most of the message may be sent again.
			if over := l.done[0].fct() - base; over < tc.wait || over > tc.wait+20*usec && (tc.wait == 0 || over > tc.wait+base) {
				t.Errorf("the message took %v longer than %v; want %v and a few round trips", over, base, tc.wait)
			}
		})
	}
}

// IRN's timeout is the low one for at most three packets in flight (IRN §3.1).
func TestTimeoutByPacketsInFlight(t *testing.T) {
	for packets, want := range map[uint64]engine.Time{1: 100 * usec, 3: 100 * usec, 4: 320 * usec, 50: 320 * usec} {
		l := newLab(t, quiet(IRN), 100*gig, 100*gig)
		l.sw.meddle = func(now engine.Time, p *network.Packet) (bool, engine.Time) { return now < 50*usec, 0 }
		q := l.open(0, 1)
		q.Post(0, packets*1000, 0)
		sent := engine.Time(packets-1) * 84_640
		l.e.Run(sent + want - 1)
		if n := q.Counters(); n.Timeouts != 0 {
			t.Errorf("%d packets: a timeout before %v", packets, want)
		}
		l.e.Run(sent + want)
		if n := q.Counters(); n.Timeouts != 1 {
			t.Errorf("%d packets: %d timeouts at %v; want 1", packets, n.Timeouts, want)
		}
		l.run()
		if n := q.Counters(); n.Timeouts != 1 || n.Retransmitted != packets || n.Messages != 1 {
			t.Errorf("%d packets: %+v; want all sent again once", packets, n)
		}
	}
}
