package rdma

import (
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/loomfabric/loom/internal/stat"
	"github.com/loomfabric/loom/sim/engine"
	"github.com/loomfabric/loom/sim/network"
)

// ConWeave §4.2: "Each client-server pair maintains 2 persistent connections":
// the messages of one go out in the order in which they were posted, one behind
// the other, and wait for each other.
func TestMessagesOfAConnectionWaitForEachOther(t *testing.T) {
	l := newLab(t, Defaults(), 100*gig, 100*gig)
	var last []uint64
	l.sw.meddle = func(_ engine.Time, p *network.Packet) (bool, engine.Time) {
		if p.Last {
			last = append(last, p.Seq)
		}
		return false, 0
	}
	q := l.open(0, 1)
	for tag, bytes := range []uint64{5000, 1, 20_000} {
		q.Post(0, bytes, uint64(tag))
	}
	if q.pending() != 3 {
		t.Errorf("%d messages are pending; want 3", q.pending())
	}
	l.run()
	// Leaving: 5 × 1058 bytes, then 59, then 20 × 1058, 80 ps each; the last
	// packet of each once more at the switch, behind a full one there for the
	// small one; then 2 µs.
	want := []engine.Time{
		6*84_640 + 2_000_000,
		6*84_640 + 4_720 + 2_000_000,
		26*84_640 + 4_720 + 2_000_000,
	}
	for i, m := range l.done {
		if m.ID != network.FlowID(i) || m.Posted != 0 || m.Received != want[i] {
			t.Errorf("message %d is %+v; want it received at %v", i, m, want[i])
		}
	}
	if len(l.done) != 3 {
		t.Fatalf("%d messages are complete; want 3", len(l.done))
	}
	if !slices.Equal(last, []uint64{4, 5, 25}) {
		t.Errorf("packets %d say that they are a message's last; want 4, 5 and 25", last)
	}
	if n := q.Counters(); n.Packets != 26 || n.Messages != 3 || n.Delivered != 25_001 {
		t.Errorf("counters: %+v", n)
	}
}

// A connection keeps its rate from one message to the next; a new one starts at
// the line rate.
func TestAConnectionKeepsItsRate(t *testing.T) {
	l := newLab(t, Defaults(), 100*gig, 100*gig)
	l.sw.meddle = func(_ engine.Time, p *network.Packet) (bool, engine.Time) {
		p.CE = p.Kind == network.Data && p.Seq < 10
		return false, 0
	}
	q := l.open(0, 1)
	q.Post(0, 100_000, 0)
	l.e.Run(20 * usec)
	if got := q.rate(l.e.Now()); got > 60*gig {
		t.Errorf("after ten marks the rate is %d", got)
	}
	l.e.Run(50 * usec)
	if got := q.rate(l.e.Now()); got > 60*gig || q.pending() != 0 {
		t.Errorf("after the message the rate is %d, %d messages are pending", got, q.pending())
	}
	at := l.e.Now()
	q.Post(at, 100_000, 1)
	fresh := l.open(1, 0)
	if got := fresh.rate(at); got != 100*gig {
		t.Errorf("a new connection's rate is %d", got)
	}
	l.run()
	_, base := l.base(q, 100_000)
	if s := float64(l.done[1].fct()) / float64(base); s < 1.4 {
		t.Errorf("the second message's slowdown is %.2f; want about 1.6, half of the rate", s)
	}
}

// Marks do nothing to a sender that nothing controls, and its packets say that
// they are not to be marked.
func TestUncontrolled(t *testing.T) {
	l := newLab(t, quiet(GoBackN), 100*gig, 100*gig)
	l.sw.meddle = func(_ engine.Time, p *network.Packet) (bool, engine.Time) {
		if p.ECT {
			t.Error("a packet has ECT")
		}
		p.CE = true
		return false, 0
	}
	q := l.open(0, 1)
	q.Post(0, 1_000_000, 0)
	l.run()
	if n := q.Counters(); n.CNPs != 0 || n.Cuts != 0 || q.rate(l.e.Now()) != 100*gig {
		t.Errorf("rate %d, %+v", q.rate(l.e.Now()), n)
	}
}

// DCQCN §3.1: "If a marked packet arrives for a flow, and no CNP has been sent
// for the flow in last N microseconds, a CNP is sent immediately. NP generates
// at most one CNP packet every N microseconds for the flow".
func TestCNPsAreAtLeastTheIntervalApart(t *testing.T) {
	c := Defaults()
	c.CNPInterval, c.Rates = 50*usec, paperRates()
	c.Rates.Min = 5 * gig // a packet each 1.7 µs
	l := newLab(t, c, 10*gig, 10*gig)
	var at []engine.Time
	l.sw.meddle = func(now engine.Time, p *network.Packet) (bool, engine.Time) {
		switch p.Kind {
		case network.Data:
			p.CE = p.Seq != 0
		case network.CNP:
			if p.Size != 74 || p.Class != network.ControlClass {
				t.Errorf("a CNP of %d bytes in class %d", p.Size, p.Class)
			}
			at = append(at, now)
		case network.Ack:
			if p.Echo {
				t.Error("an ACK says that packets were marked, where CNPs do")
			}
		}
		return false, 0
	}
	q := l.open(0, 1)
	q.Post(0, 300_000, 0)
	l.run()
	if len(at) < 5 || q.n.CNPs != uint64(len(at)) || q.Counters().Cuts != uint64(len(at)) {
		t.Fatalf("%d CNPs, %d received, %d cuts", len(at), q.n.CNPs, q.Counters().Cuts)
	}
	// Packet 1 is received after 3 packets and 2 µs, and its CNP is at the switch
	// after the ACK's 49.6 ns of packet 0 at most, its own 59.2 ns and 1 µs.
	if first := engine.Time(3*846_400 + 2_000_000 + 59_200 + 1_000_000); at[0] != first {
		t.Errorf("the first CNP is at the switch at %v; want %v", at[0], first)
	}
	for i := range at[1:] {
		if d := at[i+1] - at[i]; d < 50*usec-100*nsec || d > 52*usec {
			t.Errorf("CNPs at %v and %v", at[i], at[i+1])
		}
	}
}

// Without CNPs of their own, the ACK of a marked packet says so and no other.
func TestAcksEchoMarks(t *testing.T) {
	for _, each := range []uint32{1, 4} {
		c := Defaults()
		c.AckEvery = each
		l := newLab(t, c, 10*gig, 10*gig)
		acks := 0
		l.sw.meddle = func(_ engine.Time, p *network.Packet) (bool, engine.Time) {
			switch p.Kind {
			case network.Data:
				p.CE = p.Seq == 9 || p.Seq == 33
			case network.Ack:
				acks++
				covers := func(psn uint64) bool { return p.Seq > psn && p.Seq <= psn+uint64(each) }
				if want := covers(9) || covers(33); p.Echo != want {
					t.Errorf("the ACK up to %d echoes %v", p.Seq, p.Echo)
				}
			}
			return false, 0
		}
		q := l.open(0, 1)
		q.Post(0, 38_000, 0)
		l.run()
		if want := (38 + int(each) - 1) / int(each); acks != want || q.n.CNPs != 2 {
			t.Errorf("ACKs every %d packets: %d of them, want %d; %d marks, want 2", each, acks, want, q.n.CNPs)
		}
	}
}

// A paced sender's packets leave as far apart as its rate has them.
func TestPacketsArePaced(t *testing.T) {
	l := newLab(t, Defaults(), 100*gig, 100*gig)
	var before engine.Time
	gaps := 0
	l.sw.meddle = func(now engine.Time, p *network.Packet) (bool, engine.Time) {
		if p.Kind != network.Data {
			return false, 0
		}
		p.CE = p.Seq == 0
		if now > 20*usec && now < 290*usec { // after the cut, before any increase
			// Of the first cut: 1058·8 bits / (100 Gbit/s · (1 − (255/256)⁴/2)).
			const want = 166_691 // ps
			if d := now - before; before > 20*usec && (d != want) {
				t.Errorf("packet %d comes %v after the one before; want %v", p.Seq, d, engine.Time(want))
			}
			gaps++
		}
		before = now
		return false, 0
	}
	q := l.open(0, 1)
	q.Post(0, 2_000_000, 0)
	l.run()
	if gaps < 1500 {
		t.Errorf("only %d packets were looked at", gaps)
	}
}

// Queue pairs of one host have equal turns.
func TestQueuePairsOfAHostTakeTurns(t *testing.T) {
	l := newLab(t, quiet(GoBackN), 100*gig, 100*gig, 100*gig, 100*gig)
	for dst := 1; dst < 4; dst++ {
		l.open(0, dst).Post(0, 1_000_000, 0)
	}
	l.run()
	for _, m := range l.done {
		// 3000 packets in all. The first queue pair sends two before the others are
		// there: its last packet is number 2996, then that of the second is 2999.
		want := 3000*84_640 + 84_640 + 2*(1*usec) + 2*(4_960+1*usec)
		if d := want - m.fct(); d < 0 || d > 4*84_640 {
			t.Errorf("flow %d took %v; want %v or up to four packets less", m.flow, m.fct(), want)
		}
	}
}

// Closed queue pairs are used again, at other hosts and with events of their
// timers still to come, and do not remember.
func TestQueuePairsAreUsedAgain(t *testing.T) {
	for _, recovery := range []Recovery{GoBackN, IRN} {
		c := Defaults()
		c.Recovery = recovery
		l := newLab(t, c, 100*gig, 100*gig, 100*gig)
		l.sw.kmin, l.sw.kmax, l.sw.pmax = 5_000, 20_000, 1
		r := rand.New(rand.NewPCG(8, 8))
		open := func(now engine.Time) {
			src := r.IntN(3)
			q := l.open(src, (src+1+r.IntN(2))%3)
			if got := q.rate(now); got != 100*gig {
				t.Fatalf("a queue pair starts at %d bit/s", got)
			}
			if n := q.Counters(); n != (Counters{}) {
				t.Fatalf("a queue pair starts with %+v", n)
			}
			q.Post(now, r.Uint64N(200_000), uint64(q.flow.ID))
		}
		left := 400
		var total uint64
		l.after = func(now engine.Time, q *QP, m Message) {
			if m.ID != q.flow.ID || q.n.Delivered != m.Bytes {
				t.Fatalf("message %+v of flow %d: %+v", m, q.flow.ID, q.n)
			}
			total += m.Bytes
			l.s.Close(q)
			l.s.Close(q) // does nothing
			if left > 0 {
				left--
				open(now)
			}
		}
		for range 6 {
			open(0)
		}
		l.run()
		if len(l.done) != 406 || len(l.s.qps) != 6 {
			t.Errorf("%s: %d flows are complete, with %d queue pairs; want 406 with 6", recovery, len(l.done), len(l.s.qps))
		}
		if n := l.s.Counters(); n.Delivered != total || n.Messages != 406 || n.Cuts == 0 || n.Timeouts != 0 {
			t.Errorf("%s: the sums are %+v; %d bytes were posted", recovery, n, total)
		}
	}
}

// One that is closed with everything under way, and in the middle of a
// recovery, ends there; what comes after it is as if it had never been.
func TestClosedInTheMiddle(t *testing.T) {
	for _, recovery := range []Recovery{GoBackN, IRN} {
		c := Defaults()
		c.Recovery = recovery
		c.BDP = 10_000_000
		c.OutOfOrderCNP = false // or hardly anything would be under way
		l := newLab(t, c, 100*gig, 25*gig)
		l.sw.meddle = func(now engine.Time, p *network.Packet) (bool, engine.Time) {
			p.CE = p.Kind == network.Data && p.Seq < 5 && now < 50*usec
			return p.Kind == network.Data && now < 50*usec && p.Seq%7 == 3, 0
		}
		q := l.open(0, 1)
		for tag := range uint64(3) {
			q.Post(0, 1_000_000, tag)
		}
		l.e.Run(50 * usec)
		l.s.Close(q)
		before := l.s.Counters()
		if recovery == GoBackN && !q.nacked || recovery == IRN && !q.loss.on {
			t.Errorf("%s: not in the middle of a recovery", recovery)
		}
		l.run()
		if before.Nacks == 0 || before.Cuts == 0 || before.Delivered == 0 {
			t.Errorf("%s: little had happened: %+v", recovery, before)
		}
		if n := l.s.Counters(); n != before || len(l.done) != 0 {
			t.Errorf("%s: after it was closed the counters went from %+v to %+v", recovery, before, n)
		}
		if g := l.n.Ledger(); g.Dropped[network.NoFlow] == 0 {
			t.Errorf("%s: nothing was under way", recovery)
		}
		if l.e.Now() > 10*engine.Millisecond {
			t.Errorf("%s: events until %v", recovery, l.e.Now())
		}
		func() {
			defer func() {
				if recover() == nil {
					t.Error("a message could be posted to a closed queue pair")
				}
			}()
			q.Post(0, 1, 1)
		}()

		again := l.open(0, 1)
		if again != q {
			t.Errorf("%s: the queue pair is not used again", recovery)
		}
		fresh := &QP{stack: l.s, src: again.src, dst: again.dst, number: again.number, timer: again.timer}
		fresh.open(again.flow)
		// Memory without meaning.
		fresh.messages.list, fresh.incoming.list, fresh.announced.list = again.messages.list, again.incoming.list, again.announced.list
		fresh.spare = again.spare
		if fresh.Turn = again.Turn; !reflect.DeepEqual(fresh, again) {
			t.Errorf("%s: the queue pair remembers: it is\n%+v, a new one is\n%+v", recovery, again, fresh)
		}
		start := l.e.Now()
		again.Post(start, 1_000_000, 9)
		l.run()
		received, acked := l.base(again, 1_000_000)
		if len(l.done) != 1 || l.done[0].Received-start != received || l.done[0].fct() != acked {
			t.Errorf("%s: complete are %+v; want one, received after %v and acknowledged after %v", recovery, l.done, received, acked)
		}
		want := Counters{Packets: 1000, Bytes: 1_058_000, Messages: 1, Received: 1000, Delivered: 1_000_000}
		if n := again.Counters(); n != want {
			t.Errorf("%s: counters of its second life are %+v", recovery, n)
		}
	}
}

func TestResultsHaveTheCounters(t *testing.T) {
	names := slices.Sorted(maps.Keys(maps.Collect(stat.Counters(&Counters{}))))
	if want := []string{
		"bytes", "cnps", "discarded", "duplicates", "goodput_bytes", "max_gap", "max_reordered_distance", "messages",
		"nacks", "out_of_order", "packets", "rate_cuts", "reordered", "retransmits", "timeouts",
	}; !slices.Equal(names, want) {
		t.Errorf("results have %v, want %v", names, want)
	}
}

func TestAddHasEveryCounter(t *testing.T) {
	c := Counters{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18}
	sum, want := c, c
	sum.Add(&c)
	if stat.Add(&want, &c); sum != want {
		t.Errorf("%+v, want %+v", sum, want)
	}
}
