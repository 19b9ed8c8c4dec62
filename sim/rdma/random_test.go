package rdma

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/loomfabric/loom/sim/engine"
	"github.com/loomfabric/loom/sim/network"
)

// witness stands before a receiver and does its work in the simplest way: a set
// of what came, or the one number that Go-Back-N needs.
type witness struct {
	t        *testing.T
	q        *QP
	inner    network.Endpoint
	recovery Recovery
	came     map[uint64]uint32 // packet: payload
	expected uint64
	bytes    uint64
}

func (w *witness) Receive(now engine.Time, p *network.Packet) {
	if w.recovery == IRN || p.Seq == w.expected {
		if l, twice := w.came[p.Seq]; twice && l != p.Len {
			w.t.Fatalf("packet %d came with %d bytes, and now with %d", p.Seq, l, p.Len)
		}
		w.came[p.Seq] = p.Len
	}
	for {
		l, ok := w.came[w.expected]
		if !ok {
			break
		}
		w.expected++
		w.bytes += uint64(l)
	}
	w.inner.Receive(now, p)
	if w.q.expected != w.expected || w.q.n.Delivered != w.bytes {
		w.t.Fatalf("at %v the receiver expects %d and has delivered %d bytes in order; want %d and %d", now, w.q.expected, w.q.n.Delivered, w.expected, w.bytes)
	}
	if w.q.stack.window > 0 && w.q.next-w.q.una > w.q.stack.window {
		w.t.Fatalf("%d packets are in flight; the BDP is %d", w.q.next-w.q.una, w.q.stack.window)
	}
}

func (l *lab) witness(t *testing.T, q *QP) *witness {
	w := &witness{t: t, q: q, inner: (*receiver)(q), recovery: l.s.c.Recovery, came: make(map[uint64]uint32)}
	l.n.Bind(q.flow.ID, q, w)
	return w
}

// Whatever is lost, late or marked: every byte arrives once and in order, every
// message is complete once and in its turn, and nothing remains.
func TestEverythingArrivesWhateverHappens(t *testing.T) {
	for _, recovery := range []Recovery{GoBackN, IRN} {
		for seed := range uint64(250) {
			t.Run(fmt.Sprintf("%s/%d", recovery, seed), func(t *testing.T) { survive(t, recovery, seed) })
		}
	}
}

func survive(t *testing.T, recovery Recovery, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 77))
	c := Defaults()
	c.Recovery = recovery
	c.Payload = []uint32{1, 100, 1000}[r.IntN(3)]
	c.AckEvery = []uint32{1, 1, 4}[r.IntN(3)]
	c.NackInterval = []engine.Time{0, 4 * usec}[r.IntN(2)]
	c.NackThreshold = []uint32{1, 3}[r.IntN(2)]
	c.BDP = uint64(c.Payload) * (4 + r.Uint64N(200))
	switch r.IntN(3) {
	case 0:
		c.Control = Uncontrolled
	case 1:
		c.CNPInterval, c.Rates = 50*usec, paperRates()
	}
	l := newLab(t, c, 100*gig, 25*gig, 100*gig)
	l.sw.kmin, l.sw.kmax, l.sw.pmax = 10_000, 40_000, 0.2
	if r.IntN(2) == 0 {
		for _, p := range l.sw.ports {
			p.Limit = 30_000 // and real loss
		}
	}
	var loss [network.Control + 1]float64
	for k := range loss {
		loss[k] = []float64{0, 0.001, 0.03, 0.3}[r.IntN(4)]
	}
	lateness, by := []float64{0, 0.01, 0.2}[r.IntN(3)], 1+r.IntN(30_000)
	l.sw.meddle = func(_ engine.Time, p *network.Packet) (bool, engine.Time) {
		if r.Float64() < loss[p.Kind] {
			return true, 0
		}
		if r.Float64() < lateness {
			return false, engine.Time(1+r.IntN(by)) * nsec
		}
		return false, 0
	}

	// Messages on two queue pairs to one host, some posted when others complete.
	var total [3]uint64
	var tags [3]uint64
	var seen []*witness
	more := 4
	post := func(now engine.Time, q *QP) {
		bytes := r.Uint64N(60 * uint64(c.Payload))
		if r.IntN(8) == 0 {
			bytes = 0
		}
		f := q.flow.ID
		total[f] += bytes
		q.Post(now, bytes, tags[f])
		tags[f]++
	}
	for _, src := range []int{0, 2} {
		q := l.open(src, 1)
		seen = append(seen, l.witness(t, q))
		for range 1 + r.IntN(6) {
			post(0, q)
		}
	}
	var completed [3]uint64
	l.after = func(now engine.Time, q *QP, m Message) {
		f := q.flow.ID
		if uint64(m.ID) != completed[f] || m.Acked != now || m.Received > now || m.Received <= m.Posted {
			t.Fatalf("message %+v of flow %d is complete at %v, after %d others", m, f, now, completed[f])
		}
		completed[f]++
		if more > 0 {
			more--
			post(now, q)
		}
	}
	for l.e.Pending() > 0 {
		l.e.Run(l.e.Now() + engine.Millisecond)
		if l.e.Now() > 20*engine.Second {
			t.Fatalf("stuck: %+v", l.s.Counters())
		}
		// At most a packet on each of the wires and kept, and the timers' events.
		if bound := 40 + len(l.sw.kept); l.e.Pending() > bound {
			t.Fatalf("%d events are pending; want at most %d", l.e.Pending(), bound)
		}
	}
	l.run()
	for i, w := range seen {
		f := w.q.flow.ID
		if w.bytes != total[f] || completed[f] != tags[f] || w.q.pending() != 0 || w.q.inFlight() != 0 {
			t.Errorf("queue pair %d: %d of %d bytes arrived, %d of %d messages are complete, %d packets in flight",
				i, w.bytes, total[f], completed[f], tags[f], w.q.inFlight())
		}
		if _, on := w.q.timer.On(); on {
			t.Errorf("queue pair %d: the timer runs although all is acknowledged", i)
		}
	}
	n := l.s.Counters()
	if n.Received > n.Packets || n.Delivered != total[1]+total[2] {
		t.Errorf("counters: %+v of %d bytes", n, total[1]+total[2])
	}
}
