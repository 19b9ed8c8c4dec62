package balance

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/loomfabric/loom/internal/flowtable"
	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/overlay"
	"github.com/loomfabric/loom/reorder"
)

// way is a source of a scheme with a shim, paths that are FIFOs, and the scheme's
// receiver with what it holds. Whatever the scheme is, the test knows no more of it
// than its descriptor.
type way struct {
	t      *testing.T
	rng    *rand.Rand
	scheme *Scheme
	now    mono.Time

	source   Policy
	view     *View
	receiver Receiver
	holds    *reorder.Holds[parcel]

	inFlight []parcel // by arrival
	answers  []answer
	last     [MaxPaths]mono.Time // arrival by uplink
	lose     float64
	slowest  time.Duration // that an answer takes

	arrived, discarded int
	seen               map[[2]int]bool
	highest            map[int]int
	disorder           int
}

type parcel struct {
	flow, seq int
	at        mono.Time
	header    overlay.Fabric
}

type answer struct {
	at mono.Time
	m  overlay.Message
}

func newWay(t *testing.T, s *Scheme, seed uint64, section Params) *way {
	t.Helper()
	o := Options{Seed: seed, Section: section, Leaves: 2, Ports: 1}
	source, err := New(s.Name, o)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Complete(&o); err != nil {
		t.Fatal(err)
	}
	var receiving *Scheme
	for _, r := range Schemes() {
		if r.Wire == s.Wire && r.Receiver != nil {
			receiving = r
		}
	}
	r, err := receiving.Receiver(&o)
	if err != nil {
		t.Fatal(err)
	}
	queues, perQueue, packets := r.Queues()
	return &way{
		t: t, rng: rand.New(rand.NewPCG(seed, 1)), scheme: s, now: mono.Time(time.Hour),
		source: source, view: newView(firstPaths(0), firstPaths(4)), receiver: r, holds: reorder.NewHolds[parcel](queues, packets, perQueue),
		seen: map[[2]int]bool{}, highest: map[int]int{}, slowest: max(4*time.Duration(r.Grace()), time.Microsecond),
	}
}

// send puts a packet of a flow on its way, for as long as its path takes at most.
func (w *way) send(flow, seq int, longest time.Duration) {
	pkts := []Packet{{Hash: uint32(flow+1) * 0x9E3779B1, Leaf: 1, Len: 1500}}
	w.source.Choose(w.now, w.view, pkts)
	uplink := w.view.Paths[1].Uplink[pkts[0].Path]
	p := parcel{flow: flow, seq: seq, at: max(w.last[uplink], w.now.Add(time.Duration(w.rng.Int64N(int64(longest)))))}
	if w.view.Capable == nil || w.view.Capable.Capable(1, w.now) {
		p.header.Capable = true
		pkts[0].Stamp(w.now, w.scheme.Wire, uplink, &p.header)
	}
	if w.rng.Float64() < w.lose {
		w.discarded++
		return
	}
	w.last[uplink] = p.at
	i, _ := slices.BinarySearchFunc(w.inFlight, p.at+1, func(a parcel, at mono.Time) int { return int(a.at - at) })
	w.inFlight = slices.Insert(w.inFlight, i, p)
}

// pass lets time pass until all that is due by then has happened, in bursts of what
// comes within some microseconds.
func (w *way) pass(until mono.Time) {
	for {
		next := until
		if len(w.inFlight) > 0 {
			next = min(next, w.inFlight[0].at)
		}
		if d := w.receiver.Deadline(); d < next {
			next = d
		}
		w.now = max(w.now, next)
		for len(w.answers) > 0 && w.answers[0].at <= w.now {
			w.source.(Messenger).Handle(w.now, w.view, &w.answers[0].m)
			w.answers = w.answers[1:]
		}
		w.expire()
		n := 0
		for n < len(w.inFlight) && w.inFlight[n].at <= w.now && n < 64 {
			n++
		}
		if n > 0 {
			w.accept(w.inFlight[:n])
			w.inFlight = slices.Delete(w.inFlight, 0, n)
		} else if w.now >= until {
			return
		}
	}
}

// accept takes in a burst as a leaf does: what has no shim goes on as it comes.
func (w *way) accept(burst []parcel) {
	for len(burst) > 0 {
		n := 1
		for n < len(burst) && burst[n].header.Shim == burst[0].header.Shim {
			n++
		}
		if burst[0].header.Shim {
			w.receive(burst[:n])
		} else {
			for _, p := range burst[:n] {
				w.deliver(p)
			}
		}
		burst = burst[n:]
	}
}

func (w *way) receive(burst []parcel) {
	pkts := make([]reorder.Arrival, len(burst))
	for i, p := range burst {
		pkts[i] = reorder.Arrival{Hash: uint32(p.flow+1) * 0x9E3779B1, Len: 1500, Leaf: 1, Fabric: p.header}
	}
	w.receiver.Receive(w.now, pkts)
	w.answer()
	for i := range pkts {
		p := &pkts[i]
		drain := func() {
			for _, q := range append([]uint16{p.Drain}, p.Also...) {
				w.drain(int(q))
			}
		}
		if p.Verdict.DrainBefore() {
			drain()
		}
		switch {
		case p.Verdict == reorder.Discard:
			w.discarded++
		case !p.Verdict.Held():
			w.deliver(burst[i])
		case !w.receiver.MayHold(p):
			w.t.Fatalf("a packet is held that might not be: %+v", p)
		case !w.holds.Push(int(p.Hold), burst[i]):
			w.t.Fatalf("queue %d has no room for what it is to hold", p.Hold)
		}
		if p.Verdict.DrainAfter() {
			drain()
		}
	}
	if (w.holds.Total() > 0) != (w.receiver.Deadline() != reorder.Never) {
		w.t.Fatalf("%d packets are held until %d", w.holds.Total(), w.receiver.Deadline())
	}
}

func (w *way) expire() {
	due := w.receiver.Deadline() <= w.now
	for q, ok := w.receiver.Expire(w.now); ok; q, ok = w.receiver.Expire(w.now) {
		w.answer()
		w.drain(q)
	}
	if due && w.receiver.Deadline() <= w.now {
		w.t.Fatal("something is held beyond its deadline")
	}
}

func (w *way) drain(q int) {
	if w.holds.Len(q) == 0 {
		w.t.Fatalf("queue %d is empty, and is to be sent on", q)
	}
	for p, ok := w.holds.Pop(q); ok; p, ok = w.holds.Pop(q) {
		w.deliver(p)
	}
}

func (w *way) deliver(p parcel) {
	if w.seen[[2]int{p.flow, p.seq}] {
		w.t.Fatalf("packet %d of flow %d is sent on twice", p.seq, p.flow)
	}
	w.seen[[2]int{p.flow, p.seq}] = true
	w.arrived++
	if p.seq < w.highest[p.flow] {
		w.disorder++
	}
	w.highest[p.flow] = max(w.highest[p.flow], p.seq)
}

// answer sends messages back, now and then so slowly that a source thinks ill of a path.
func (w *way) answer() {
	for _, m := range w.receiver.Outbox() {
		if f := &m.Fabric; f.Scheme != w.scheme.Wire || !f.Opcode.Control() || m.Leaf != 1 {
			w.t.Fatalf("said %+v", m)
		}
		a := answer{w.now.Add(time.Duration(w.rng.Int64N(int64(w.slowest)))), m}
		i, _ := slices.BinarySearchFunc(w.answers, a.at+1, func(b answer, at mono.Time) int { return int(b.at - at) })
		w.answers = slices.Insert(w.answers, i, a)
	}
}

// The first flowcells of a flow are put in order as all others are, however small they
// are: one that comes first is not taken for the flow's first.
func TestPrestoStartsInOrder(t *testing.T) {
	for seed := range uint64(20) {
		p := newPrestoParams(Lab).(*PrestoParams)
		p.Cell = 3000
		w := newWay(t, Find("presto"), seed, p)
		longest := p.Flush / 4
		for seq := 1; seq <= 300; seq++ {
			for flow := range 5 {
				w.send(flow, seq, longest)
				w.pass(w.now.Add(time.Duration(w.rng.Int64N(int64(longest) / 50))))
			}
		}
		w.pass(w.now.Add(time.Second))
		st := w.receiver.Stats().(*PrestoReceiverStats)
		if w.disorder != 0 || st.Late != 0 || st.Flushes != 0 || w.arrived != 5*300 {
			t.Errorf("seed %d: %d of %d came out, %d behind a later one: %+v", seed, w.arrived, 5*300, w.disorder, st)
		}
	}
	// A destination that begins in the middle of a flow waits for what may be missing,
	// but not for ever.
	w := newWay(t, Find("presto"), 1, newPrestoParams(Lab))
	for seq := 1; seq <= 100; seq++ { // into the third flowcell
		w.send(0, seq, 1)
	}
	w.inFlight = w.inFlight[60:]
	w.pass(w.now.Add(time.Microsecond))
	if w.arrived != 0 {
		t.Errorf("%d of 40 came out at once", w.arrived)
	}
	w.pass(w.now.Add(10 * time.Millisecond))
	if w.arrived != 40 || w.disorder != 0 {
		t.Errorf("%d of 40 came out, %d behind a later one", w.arrived, w.disorder)
	}
	w.now = w.now.Add(time.Hour) // however long it pauses, what follows is in order
	w.send(0, 101, 1)
	w.pass(w.now.Add(time.Microsecond))
	if w.arrived != 41 {
		t.Error("it waits after a pause")
	}
}

// forReceivers runs f for each scheme whose receiver holds packets, and each profile
// that its section has.
func forReceivers(t *testing.T, f func(t *testing.T, s *Scheme, section Params, seed uint64)) {
	for _, s := range Schemes() {
		if !s.Shim || s.Section == nil {
			continue
		}
		if _, holds := s.Section.New(Datacenter).(Holder); !holds {
			continue
		}
		for _, profile := range s.Section.Profiles {
			for seed := range uint64(10) {
				t.Run(fmt.Sprintf("%s/%v/%d", s.Name, profile, seed), func(t *testing.T) { f(t, s, s.Section.New(profile), seed) })
			}
		}
	}
}

// Whatever a scheme does with packets, its receiver sends on in order what came out of
// order, as long as paths differ by less than its timers allow for: a good deal less
// than Grace.
func TestReceiversPutInOrder(t *testing.T) {
	forReceivers(t, func(t *testing.T, s *Scheme, section Params, seed uint64) {
		w := newWay(t, s, seed, section)
		longest := time.Duration(w.receiver.Grace()) / 2
		const flows, packets = 5, 1500
		early := 0 // packets that overtook others on their way
		for seq := 1; seq <= packets; seq++ {
			for flow := range flows {
				w.send(flow, seq, longest)
				w.pass(w.now.Add(time.Duration(w.rng.Int64N(int64(longest) / 50))))
			}
			if w.holds.Total() > 0 {
				early++
			}
		}
		w.pass(w.now.Add(2 * time.Second))
		if w.arrived != flows*packets || w.disorder != 0 || w.holds.Total() != 0 {
			t.Errorf("%d of %d came out, %d behind a later one; %d are held", w.arrived, flows*packets, w.disorder, w.holds.Total())
		}
		if early == 0 {
			t.Error("nothing ever had to wait")
		}
	})
}

// Packets get lost, paths take longer than any timer and go away: nothing else is
// lost, nothing comes twice, and nothing is held for ever.
func TestReceiversLoseNothing(t *testing.T) {
	forReceivers(t, func(t *testing.T, s *Scheme, section Params, seed uint64) {
		w := newWay(t, s, seed, section)
		w.lose = 0.02
		if h, ok := section.(Holder); ok && seed%2 == 0 {
			w = newWay(t, s, seed, h.Limit(5))
			w.lose = 0.02
		}
		longest := 20 * time.Duration(w.receiver.Grace())
		const flows, packets = 5, 600
		for seq := 1; seq <= packets; seq++ {
			for flow := range flows {
				w.send(flow, seq, longest)
				w.pass(w.now.Add(time.Duration(w.rng.Int64N(int64(longest) / 50))))
			}
			if w.rng.IntN(100) == 0 {
				w.view.Paths[1] = MakePaths([]uint8{0, 1, 2, 3}[w.rng.IntN(3):]...)
			}
		}
		w.pass(w.now.Add(2 * time.Second))
		if w.arrived+w.discarded != flows*packets || w.holds.Total() != 0 || w.receiver.Deadline() != reorder.Never {
			t.Errorf("%d of %d came out, %d were dropped; %d are held", w.arrived, flows*packets, w.discarded, w.holds.Total())
		}
		// What is held when a driver stops comes out, too.
		for seq := packets + 1; seq < packets+50; seq++ {
			w.send(0, seq, longest)
		}
		w.pass(w.now.Add(longest / 10))
		held := w.holds.Total()
		for q, ok := w.receiver.Flush(w.now); ok; q, ok = w.receiver.Flush(w.now) {
			w.drain(q)
		}
		if w.holds.Total() != 0 || w.receiver.Deadline() != reorder.Never {
			t.Errorf("%d of %d are held after a flush", w.holds.Total(), held)
		}
	})
}

// Explain says what Presto's next packet of a flow does, and why.
func TestPrestoExplains(t *testing.T) {
	for _, tt := range []struct {
		name  string
		state func(w *way)
		want  string
	}{
		{"new", func(*way) {}, "drawn at random"},
		{"under way", func(w *way) { w.send(0, 1, 1) }, "under way"},
		{"full", func(w *way) { w.send(0, 1, 1); w.send(0, 2, 1) }, "next path's turn"},
		{"path gone", func(w *way) {
			w.send(0, 1, 1)
			w.view.Paths[1] = MakePaths(without([]uint8{0, 1, 2, 3}, w.inFlight[0].header.Path.Uplink())...)
		}, "is gone"},
		{"no room", func(w *way) {
			for flow := 1; flow <= flowtable.Ways; flow++ {
				w.send(flow, 1, 1)
			}
		}, "no room"},
		{"plain", func(w *way) { w.view.Capable = overlay.NewCapability(2) }, "does not read"},
	} {
		p := newPrestoParams(Datacenter).(*PrestoParams)
		p.Cell, p.Flows = 3000, flowtable.Ways
		w := newWay(t, Find("presto"), 1, p)
		tt.state(w)
		pkts := []Packet{{Hash: 0x9E3779B1, Leaf: 1, Len: 1500}}
		x := Explain(w.source, w.now, w.view, &pkts[0])
		w.source.Choose(w.now, w.view, pkts)
		if !strings.Contains(x.Reason, tt.want) || x.Path >= 0 && x.Path != int(pkts[0].Path) || (x.Path < 0) != (tt.name == "new") {
			t.Errorf("%s: took path %d, explained was %+v", tt.name, pkts[0].Path, x)
		}
	}
}
