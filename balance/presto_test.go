package balance

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/overlay"
	"github.com/loomfabric/loom/reorder"
)

// model is the receiver as one would write it without limits, memory or speed in mind.
type model struct {
	flush, idle mono.Time
	flows       map[uint32]*modelFlow
}

type modelFlow struct {
	cell  uint16
	epoch overlay.Epoch
	ended bool
	last  mono.Time
	wait  map[uint16]*modelCell
}

type modelCell struct {
	since mono.Time
	names []string
	ended bool
}

// upTo sends on all that waits of flowcells up to one, in their order.
func (f *modelFlow) upTo(cell uint16) (out []string) {
	for len(f.wait) > 0 {
		first, found := uint16(0), false
		for c := range f.wait {
			if !found || int16(c-first) < 0 {
				first, found = c, true
			}
		}
		if int16(first-cell) > 0 {
			break
		}
		out = append(out, f.wait[first].names...)
		f.ended = first == cell && f.wait[first].ended
		delete(f.wait, first)
	}
	f.cell = cell
	return out
}

// follow sends on flowcells for as long as the one before is complete.
func (f *modelFlow) follow() (out []string) {
	for f.ended && f.wait[f.cell+1] != nil {
		c := f.wait[f.cell+1]
		delete(f.wait, f.cell+1)
		f.cell, f.ended = f.cell+1, c.ended
		out = append(out, c.names...)
	}
	return out
}

func (m *model) get(now mono.Time, hash uint32, name string, h overlay.Fabric) (out []string) {
	cell, early := uint16(h.Arg), h.Rerouted || uint16(h.Arg) < MaxPaths
	f, known := m.flows[hash]
	paused := known && now-f.last > m.idle
	switch {
	case !known:
		f = &modelFlow{wait: map[uint16]*modelCell{}}
		m.flows[hash] = f
	case paused && (h.Epoch != f.epoch || int16(cell-f.cell) < 0), !paused && h.Epoch != f.epoch && early:
		out = f.upTo(f.cell + 1<<15 - 1)
		known = false
	}
	if !known {
		f.cell, f.epoch, f.ended = cell, h.Epoch, false
		if !h.Rerouted && cell < MaxPaths {
			f.cell = 0
		}
	}
	f.last = now
	ahead := int16(cell - f.cell)
	switch {
	case h.Epoch != f.epoch || ahead < 0:
		return append(out, name)
	case ahead > 0 && !h.Rerouted && !(ahead == 1 && f.ended):
		c := f.wait[cell]
		if c == nil {
			c = &modelCell{since: now}
			f.wait[cell] = c
		}
		c.names, c.ended = append(c.names, name), c.ended || h.Tail
		return out
	case ahead > 0:
		f.ended = false
		out = append(out, f.upTo(cell)...)
	}
	before := len(out) > 0
	out = append(out, name)
	f.ended = f.ended || h.Tail
	if !before {
		out = append(out, f.follow()...)
	}
	return out
}

// expire sends on what has waited for too long; flows are independent of each other, so
// what is sent on is told by flow.
func (m *model) expire(now mono.Time) map[uint32][]string {
	out := map[uint32][]string{}
	for hash, f := range m.flows {
		for {
			last, found := uint16(0), false
			for c, w := range f.wait {
				if now-w.since >= m.flush && (!found || int16(c-last) > 0) {
					last, found = c, true
				}
			}
			if !found {
				break
			}
			f.ended = false
			out[hash] = append(append(out[hash], f.upTo(last)...), f.follow()...)
		}
	}
	return out
}

// Whatever headers come, the receiver does what the model does. Flows of one place in
// the table are independent of each other.
func TestPrestoReceiverIsTheModel(t *testing.T) {
	for seed := range uint64(30) {
		rng := rand.New(rand.NewPCG(seed, 1))
		d := newFar(t, nil)
		m := &model{flush: d.r.flush, idle: d.r.idle, flows: map[uint32]*modelFlow{}}
		cells := [4]uint16{0, 65530, 40, uint16(rng.Uint32())}
		for i := range 4000 {
			step := time.Duration(rng.Int64N(int64(d.r.flush) / 4))
			if rng.IntN(300) == 0 {
				step = 2 * time.Duration(d.r.idle)
			}
			for step > 0 { // no further than to the next deadline: ties are another test's
				by := min(step, time.Duration(max(d.r.Deadline()-d.now, 1)))
				got, want := d.pass(by), m.expire(d.now)
				for _, name := range got {
					q := want[uint32(name[0]-'a')]
					if len(q) == 0 || q[0] != name {
						t.Fatalf("seed %d, packet %d: %q expired, the model says %v", seed, i, got, want)
					}
					want[uint32(name[0]-'a')] = q[1:]
				}
				for _, q := range want {
					if len(q) > 0 {
						t.Fatalf("seed %d, packet %d: %q expired, the model has %v besides", seed, i, got, want)
					}
				}
				step -= by
			}
			flow := uint32(rng.IntN(4))
			cells[flow] += uint16(rng.IntN(5) / 4)
			h := cellArrival(cells[flow]-1+uint16(rng.IntN(4)), "")
			h.Tail, h.Rerouted = rng.IntN(4) == 0, rng.IntN(40) == 0
			if rng.IntN(200) == 0 {
				h.Epoch, h.Arg = overlay.Epoch(rng.IntN(4)), overlay.Tstamp(rng.IntN(4))
				cells[flow] = uint16(h.Arg)
			} else if f := m.flows[flow]; f != nil {
				h.Epoch = f.epoch
			}
			name := fmt.Sprintf("%c%d", 'a'+flow, i)
			got, want := d.get(flow, name, h), m.get(d.now, flow, name, h)
			if !slices.Equal(got, want) {
				t.Fatalf("seed %d, packet %d of flow %d, %+v: sent on %q, the model %q", seed, i, flow, h, got, want)
			}
		}
		if s := d.r.stats; s.Flushes == 0 || s.Late == 0 || s.Held == 0 || s.Exhausted+s.NoFlow != 0 {
			t.Errorf("seed %d: %+v: nothing was tested", seed, s)
		}
		d.pass(time.Second)
		if s := d.r.stats; s.Waiting != 0 || s.InUse != 0 {
			t.Errorf("seed %d: in the end %+v", seed, s)
		}
	}
}

// Source and destination together: paths of random delay that differ by less than Flush
// bring all in order, and the wrap of their numbers is nothing special.
func TestPrestoEndToEnd(t *testing.T) {
	const flows, packets = 3, 3000
	for seed := range uint64(12) {
		w := newWay(t, Find("presto"), seed, prestoParams(func(p *PrestoParams) { p.Cell = 3000 }))
		s, r := w.source.(*presto), w.receiver.(*prestoReceiver)
		longest := r.flush * 9 / 10
		for seq := 1; seq <= packets; seq++ {
			for flow := range flows {
				w.send(flow, seq, time.Duration(longest))
				w.pass(w.now.Add(time.Duration(w.rng.Int64N(int64(longest) / 30))))
			}
			if seq == packets/2 { // on both sides the wrap is near
				w.pass(w.now.Add(time.Duration(longest)))
				for flow := range flows {
					hash := uint32(flow+1) * 0x9E3779B1
					e, f := s.flows.Find(hash, 1), r.flows.Find(hash, 1)
					e.V.cell, f.V.cell = e.V.cell+64_500, f.V.cell+64_500
				}
			}
		}
		w.pass(w.now.Add(time.Second))
		st := w.receiver.Stats().(*PrestoReceiverStats)
		if w.arrived != flows*packets || w.disorder != 0 || st.Flushes+st.Late+st.Exhausted+st.NoFlow != 0 || st.Held < packets {
			t.Errorf("seed %d: %d of %d came out, %d behind a later one: %+v", seed, w.arrived, flows*packets, w.disorder, st)
		}
		if st.Waiting != 0 || st.InUse != 0 {
			t.Errorf("seed %d: in the end %+v", seed, st)
		}
	}
}

// Losses cost as much as Flush, and no more: whatever came is sent on once, and flows go
// on in order after each of them.
func TestPrestoGoesOnAfterLosses(t *testing.T) {
	const flows, packets = 3, 3000
	for seed := range uint64(12) {
		w := newWay(t, Find("presto"), seed, prestoParams(func(p *PrestoParams) { p.Cell = 6000 }))
		w.lose = 0.03
		flush := time.Duration(w.receiver.(*prestoReceiver).flush)
		for seq := 1; seq <= packets; seq++ {
			for flow := range flows {
				w.send(flow, seq, flush/2)
				w.pass(w.now.Add(time.Duration(w.rng.Int64N(int64(flush) / 60))))
			}
		}
		w.lose = 0
		w.pass(w.now.Add(2 * flush))
		before, st := w.disorder, *w.receiver.Stats().(*PrestoReceiverStats)
		// Without loss inside of Flush nothing is late; a loss at a boundary may be waited
		// for in vain, and only that.
		if w.arrived+w.discarded != flows*packets || before != 0 || st.Late != 0 || st.Flushes == 0 || st.Waiting+st.InUse != 0 {
			t.Errorf("seed %d: %d of %d came out, %d were lost, %d behind a later one: %+v", seed, w.arrived, flows*packets, w.discarded, before, st)
		}
		for seq := packets + 1; seq <= packets+500; seq++ {
			w.send(0, seq, flush/2)
			w.pass(w.now.Add(flush / 100))
		}
		w.pass(w.now.Add(2 * flush))
		if after := w.receiver.Stats().(*PrestoReceiverStats); w.disorder != 0 || after.Flushes > st.Flushes+1 {
			t.Errorf("seed %d: %d behind a later one; %d flushes more", seed, w.disorder, after.Flushes-st.Flushes)
		}
	}
}

// A source that has forgotten its flows, as when classes are configured anew, begins them
// anew: their order is restored from the first flowcell on.
func TestPrestoSourceThatBeginsAnew(t *testing.T) {
	again := 0
	for seed := range uint64(40) {
		w := newWay(t, Find("presto"), seed, prestoParams(func(p *PrestoParams) { p.Cell = 3000 }))
		flush := time.Duration(w.receiver.(*prestoReceiver).flush)
		run := func(from, to int) {
			for seq := from; seq < to; seq++ {
				w.send(0, seq, flush/4)
				w.pass(w.now.Add(flush / 100))
			}
		}
		run(1, 400)
		epoch := w.inFlight[0].header.Epoch
		w.pass(w.now.Add(flush)) // a reload takes longer
		w.source = newPrestoSource(t, seed+1000, func(p *PrestoParams) { p.Cell = 3000 })
		run(400, 800)
		if w.inFlight[0].header.Epoch == epoch {
			continue // one in four cannot be told from what it was before, until it pauses
		}
		again++
		w.pass(w.now.Add(time.Second))
		if st := w.receiver.Stats().(*PrestoReceiverStats); w.disorder != 0 || w.arrived != 799 || st.Late != 0 {
			t.Errorf("seed %d: %d of 799 came out, %d behind a later one: %+v", seed, w.arrived, w.disorder, st)
		}
	}
	if again < 20 {
		t.Errorf("%d of 40 had another epoch", again)
	}
}

// After a pause a flow begins anew, where it was or in another one's place: nothing of it
// waits for what was before.
func TestPrestoFlowThatPauses(t *testing.T) {
	for _, evicted := range []bool{false, true} {
		w := newWay(t, Find("presto"), 1, prestoParams(func(p *PrestoParams) { p.Cell, p.Flows = 3000, 4 }))
		for seq := 1; seq <= 101; seq++ { // the last flowcell is half full
			w.send(0, seq, 1)
		}
		epoch := w.inFlight[0].header.Epoch
		w.pass(w.now.Add(3 * time.Millisecond))
		if evicted {
			for flow := 1; flow <= 4; flow++ {
				w.send(flow, 1, 1)
			}
			w.pass(w.now.Add(3 * time.Millisecond))
		}
		w.send(0, 102, 1)
		if h := w.inFlight[0].header; !h.Rerouted || h.Arg != 0 || !evicted && h.Epoch != epoch.Next() {
			t.Errorf("evicted %v: it goes on with %+v", evicted, h)
		}
		w.pass(w.now.Add(time.Microsecond))
		if !w.seen[[2]int{0, 102}] || w.holds.Total() != 0 {
			t.Errorf("evicted %v: what comes after the pause has to wait", evicted)
		}
	}
}

// A path that goes away ends its flowcell: the next one does not wait for the rest.
func TestPrestoPathThatGoesAway(t *testing.T) {
	w := newWay(t, Find("presto"), 1, prestoParams(nil))
	for seq := 1; seq <= 60; seq++ { // into the second flowcell
		w.send(0, seq, 1)
	}
	w.pass(w.now.Add(time.Microsecond))
	w.send(0, 61, 1)
	gone := w.inFlight[0].header.Path.Uplink()
	w.inFlight = nil // lost with the link
	w.view.Paths[1] = MakePaths(without([]uint8{0, 1, 2, 3}, gone)...)
	for seq := 62; seq <= 200; seq++ {
		w.send(0, seq, 1)
		if u := w.inFlight[0].header.Path.Uplink(); u == gone {
			t.Fatalf("packet %d goes by uplink %d, which has gone", seq, gone)
		}
		w.pass(w.now.Add(time.Microsecond))
	}
	st, own := w.receiver.Stats().(*PrestoReceiverStats), w.source.Stats().Own.(*PrestoStats)
	if w.arrived != 199 || w.disorder != 0 || st.Held != 0 || st.Flushes != 0 || own.Cut != 1 {
		t.Errorf("%d of 199 came out, %d behind a later one: %+v, %+v", w.arrived, w.disorder, st, own)
	}
}

// Flows that find no place in the tables go as under ecmp, and as they come.
func TestPrestoTablesThatAreFull(t *testing.T) {
	s, v := newPrestoSource(t, 1, func(p *PrestoParams) { p.Flows = 4 }), newView(firstPaths(4))
	for hash := range uint32(4) {
		s.next(0, v, hash<<8, 1500)
	}
	p := s.next(0, v, 9<<8, 1500)
	for i := range 100 {
		if q := s.next(mono.Time(i), v, 9<<8, 1500); q.Shim || q.Tail || q.Path != p.Path {
			t.Fatalf("a flow without a place: %+v, then %+v", p, q)
		}
	}
	if st := s.stats; st.Overflow != 101 || st.Flows != 4 {
		t.Errorf("%+v", st)
	}
	if q := s.next(mono.Time(2*time.Second), v, 9<<8, 1500); !q.Shim || !q.Rerouted {
		t.Errorf("others have paused, and it still has no place: %+v", q)
	}

	d := newFar(t, func(p *PrestoParams) { p.Flows = 4 })
	for hash := range uint32(4) {
		want(t, d.get(hash<<8, "a", cellArrival(0, "R")), "a")
	}
	want(t, d.get(0, "c", cellArrival(1, "")), "")
	want(t, d.get(9<<8, "x", cellArrival(3, "")), "x")
	if st := d.r.stats; st.NoFlow != 1 {
		t.Errorf("%+v", st)
	}
	want(t, d.pass(time.Duration(d.r.flush)), "c")
	d.pass(time.Duration(d.r.idle))
	want(t, d.get(9<<8, "x", cellArrival(3, "")), "")
	want(t, d.get(9<<8, "y", cellArrival(0, "R")), "y")
}

// What has no room is sent on as it comes, behind what waits of its own flowcell and
// those before; the others of the flow, and other flows, wait on.
func TestPrestoLimits(t *testing.T) {
	for name, change := range map[string]func(p *PrestoParams){
		"packets": func(p *PrestoParams) { p.Packets = 4 },
		"queues":  func(p *PrestoParams) { p.Queues = 3 },
	} {
		d := newFar(t, change)
		want(t, d.get(1, "a", cellArrival(0, "R")), "a")
		want(t, d.get(2, "A", cellArrival(0, "R")), "A")
		want(t, d.get(1, "c", cellArrival(2, "")), "")
		want(t, d.get(2, "B", cellArrival(1, "")), "")
		want(t, d.get(1, "e", cellArrival(4, "")), "")
		if name == "packets" {
			want(t, d.get(1, "d", cellArrival(2, "T")), "")
			want(t, d.get(1, "x", cellArrival(2, "")), "cdx") // its flowcell's come first
			want(t, d.get(1, "y", cellArrival(3, "")), "y")   // follows on 2
			want(t, d.get(1, "z", cellArrival(3, "T")), "ze")
		} else {
			want(t, d.get(1, "d", cellArrival(3, "T")), "cd") // 4 waits on
			want(t, d.get(1, "f", cellArrival(4, "")), "ef")
		}
		if st := d.r.stats; st.Exhausted != 1 || st.Waiting != 1 || st.InUse != 1 {
			t.Errorf("%s: %+v", name, st)
		}
		want(t, d.pass(time.Duration(d.r.flush)), "B")
		if st := d.r.stats; st.Waiting != 0 || st.InUse != 0 {
			t.Errorf("%s: in the end %+v", name, st)
		}
	}
}

// A clock that jumps holds nothing for long: what waits counts from the new time.
func TestPrestoClockThatJumps(t *testing.T) {
	for _, by := range []time.Duration{-time.Minute, time.Minute} {
		d := newFar(t, nil)
		want(t, d.get(1, "a", cellArrival(0, "R")), "a")
		want(t, d.get(1, "c", cellArrival(2, "")), "")
		want(t, d.get(2, "x", cellArrival(0, "R")), "x")
		d.now = d.now.Add(by)
		if by < 0 {
			want(t, d.get(2, "y", cellArrival(0, "R")), "y")
			if wait := d.r.Deadline() - d.now; wait != d.r.flush {
				t.Errorf("by %v: what waits is due in %v", by, wait)
			}
			want(t, d.get(1, "b", cellArrival(1, "T")), "")
			want(t, d.pass(time.Duration(d.r.flush)), "bc")
		} else {
			want(t, d.pass(0), "c")
		}
		want(t, d.get(1, "d", cellArrival(2, "T")), "d")
		// Nor does the jump make a flow's entry stay or go for ever.
		want(t, d.get(1, "e", cellArrival(3, "")), "e")
	}
	d := newFar(t, nil)
	want(t, d.get(1, "a", cellArrival(0, "R")), "a")
	want(t, d.get(1, "c", cellArrival(2, "")), "")
	d.now = d.now.Add(-time.Minute)
	if q, ok := d.r.Expire(d.now); !ok {
		t.Error("with the clock set back nothing expires until it is where it was")
	} else {
		d.drain(q)
	}
}

// Neither side allocates, whatever comes.
func TestPrestoDoesNotAllocate(t *testing.T) {
	s, v := newPrestoSource(t, 1, func(p *PrestoParams) { p.Cell = 3000 }), newView(firstPaths(4))
	d := newFar(t, func(p *PrestoParams) { p.Flows, p.Queues, p.Packets = 64, 8, 10 })
	rng := rand.New(rand.NewPCG(1, 1))
	pkts, in := make([]Packet, 64), make([]reorder.Arrival, 64)
	now := mono.Time(0)
	if n := testing.AllocsPerRun(500, func() {
		for i := range pkts {
			pkts[i] = Packet{Hash: rng.Uint32N(90) * 0x9E3779B1, Len: 1500}
		}
		s.Choose(now, v, pkts)
		for i := range pkts {
			in[i] = reorder.Arrival{Hash: pkts[i].Hash, Fabric: cellArrival(uint16(pkts[i].Arg), "")}
			in[i].Fabric.Tail, in[i].Fabric.Rerouted, in[i].Fabric.Epoch = pkts[i].Tail, pkts[i].Rerouted, pkts[i].Epoch
		}
		rng.Shuffle(len(in), func(i, j int) { in[i], in[j] = in[j], in[i] })
		d.r.Receive(now, in)
		now += mono.Time(rng.Int64N(300_000))
		for _, ok := d.r.Expire(now); ok; _, ok = d.r.Expire(now) {
		}
	}); n != 0 {
		t.Errorf("%v allocations a vector", n)
	}
	if st := d.r.stats; st.Exhausted == 0 || st.NoFlow == 0 || st.Flushes == 0 || st.Held == 0 {
		t.Errorf("%+v: nothing was tested", st)
	}
}

func TestPrestoParams(t *testing.T) {
	for key, change := range map[string]func(p *PrestoParams){
		"cell":     func(p *PrestoParams) { p.Cell = 1499 },
		"inactive": func(p *PrestoParams) { p.Inactive = 0 },
		"flush":    func(p *PrestoParams) { p.Flush = p.Inactive/2 + 1 },
		"flows":    func(p *PrestoParams) { p.Flows = 100 },
		"queues":   func(p *PrestoParams) { p.Queues = 0 },
		"packets":  func(p *PrestoParams) { p.Packets = 0 },
	} {
		err, ok := prestoParams(change).Validate().(*FieldError)
		if !ok || err.Key != key {
			t.Errorf("%s: %v", key, err)
		}
	}
	for _, profile := range prestoSection.Profiles {
		if err := newPrestoParams(profile).Validate(); err != nil {
			t.Errorf("%v: %v", profile, err)
		}
	}
}

// FuzzPrestoReceive feeds a destination whatever headers the wire can bring, at whatever
// times: nothing gets lost or comes twice, nothing is held beyond Flush or above the
// limits, and counters agree with what is held.
func FuzzPrestoReceive(f *testing.F) {
	f.Add([]byte{0x20, 0, 1, 0, 2, 1, 0x10, 1, 1, 0x10, 0, 1})
	f.Add([]byte{0x21, 0, 1, 0, 3, 200, 0x30, 255, 1, 0x5, 2, 9, 0x10, 1, 255, 0x44, 7, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		d := newFar(t, func(p *PrestoParams) { p.Flows, p.Queues, p.Packets = 4, 3, 6 })
		in, out := 0, map[string]bool{}
		count := func(names []string) {
			for _, n := range names {
				if out[n] {
					t.Fatalf("packet %s is sent on twice", n)
				}
				out[n] = true
			}
		}
		for ; len(b) >= 3; b = b[3:] {
			if step := time.Duration(b[2]) * time.Duration(d.r.flush) / 64; b[2] != 255 {
				count(d.pass(step))
			} else {
				d.now = d.now.Add(-time.Second)
			}
			h := cellArrival(uint16(int16(int8(b[1]))), "")
			h.Tail, h.Rerouted, h.Epoch = b[0]&0x10 != 0, b[0]&0x20 != 0, overlay.Epoch(b[0]>>6)
			count(d.get(uint32(b[0]&7), fmt.Sprint(in), h))
			in++
			if d.r.Deadline() != reorder.Never && d.r.Deadline()-d.now > d.r.flush {
				t.Fatalf("something is held for %v", d.r.Deadline()-d.now)
			}
		}
		count(d.pass(time.Second))
		if len(out) != in || d.r.stats.Waiting != 0 || d.r.stats.InUse != 0 {
			t.Fatalf("%d of %d sent on in the end: %+v", len(out), in, d.r.stats)
		}
	})
}
