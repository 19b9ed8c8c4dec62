package rdma

import (
	"testing"

	"github.com/loomfabric/loom/sim/engine"
	"github.com/loomfabric/loom/sim/network"
)

// busy has n hosts send to the last one for ever, message by message: on
// connections, or on a new queue pair each time.
func busy(t testing.TB, c Config, n int, again bool) *lab {
	rates := make([]uint64, n+1)
	for i := range rates {
		rates[i] = 100 * gig
	}
	l := newLab(t, c, rates...)
	l.sw.kmin, l.sw.kmax, l.sw.pmax = 100_000, 400_000, 0.2
	lost := uint64(0)
	l.sw.meddle = func(_ engine.Time, p *network.Packet) (bool, engine.Time) {
		lost++
		return lost%5000 == 0, 0
	}
	l.after = func(now engine.Time, q *QP, m Message) {
		l.done = l.done[:0]
		if again {
			f := q.flow
			l.s.Close(q)
			q = l.s.Open(f)
		}
		q.Post(now, m.Bytes, 0)
	}
	for i := range n {
		q := l.open(i, n)
		q.Post(0, uint64(50_000*(i+1)), 0)
		if !again {
			q.Post(0, 700, 0)
		}
	}
	return l
}

func TestNoAllocations(t *testing.T) {
	for _, recovery := range []Recovery{GoBackN, IRN} {
		for _, again := range []bool{false, true} {
			c := Defaults()
			c.Recovery = recovery
			l := busy(t, c, 4, again)
			l.e.Run(10 * engine.Millisecond)
			before := l.s.Counters()
			if got := testing.AllocsPerRun(10, func() { l.e.Run(l.e.Now() + 200*usec) }); got != 0 {
				t.Errorf("%s: %.0f allocations in 200 µs", recovery, got)
			}
			after := l.s.Counters()
			if after.Packets < before.Packets+10_000 || after.Retransmitted == before.Retransmitted || after.Cuts == before.Cuts || after.Messages == before.Messages {
				t.Errorf("%s: little happened: from %+v to %+v", recovery, before, after)
			}
		}
	}
}

// A queue pair has at most a few events in the engine, however much happens.
func TestTimersAreBounded(t *testing.T) {
	for _, recovery := range []Recovery{GoBackN, IRN} {
		c := Defaults()
		c.Recovery = recovery
		l := busy(t, c, 8, true)
		most := 0
		for l.e.Now() < 20*engine.Millisecond {
			l.e.Run(l.e.Now() + 10*usec)
			most = max(most, l.e.Pending())
		}
		// Two events a port, one a host for pacing, and for the timers: what
		// moves an IRN timer to an earlier time leaves the event of the later one,
		// which is at most the high timeout away; each lasts at least the low one.
		if bound := 9*3 + 9*2 + 8*(1+4); most > bound {
			t.Errorf("%s: up to %d events are pending; want at most %d", recovery, most, bound)
		}
	}
}

// Events of the engine are packets and little else: DCQCN's slots have none.
func TestNoEventsPerSlot(t *testing.T) {
	l := newLab(t, Defaults(), 100*gig, 100*gig)
	l.sw.meddle = func(_ engine.Time, p *network.Packet) (bool, engine.Time) {
		p.CE = p.Kind == network.Data && p.Seq%100 == 0
		return false, 0
	}
	q := l.open(0, 1)
	q.Post(0, 10_000_000, 0)
	l.run()
	if n := q.Counters(); n.Cuts < 50 {
		t.Fatalf("%d cuts", n.Cuts)
	}
	// 10000 packets and as many ACKs over two links each: an arrival, and at most
	// a free transmitter, on each; one for pacing.
	if got := l.e.Handled(); got > 10_000*(4*2+1)+1000 {
		t.Errorf("%d events for 10000 packets", got)
	}
}

func BenchmarkPackets(b *testing.B) {
	for _, recovery := range []Recovery{GoBackN, IRN} {
		b.Run(string(recovery), func(b *testing.B) {
			c := Defaults()
			c.Recovery = recovery
			l := busy(b, c, 8, false)
			l.e.Run(engine.Millisecond)
			b.ReportAllocs()
			b.ResetTimer()
			start := l.s.Counters().Packets
			for l.s.Counters().Packets-start < uint64(b.N) {
				l.e.Run(l.e.Now() + 100*usec)
			}
		})
	}
}
