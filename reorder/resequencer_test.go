package reorder_test

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

// comb is a resequencer with what it holds, and what came out of it.
type comb struct {
	t     *testing.T
	r     *reorder.Resequencer
	holds *reorder.Holds[thread]
	now   mono.Time
	out   []thread // with the time at which each went on
	gone  []thread // dropped
}

// thread is a packet.
type thread struct {
	flow, seq int // of the flow, never wrapping
	path      uint8
	sent, at  mono.Time // at: when it arrives, and later when it went on
	header    overlay.Fabric
}

// present says that all leaves send by these uplinks.
type present uint16

func (p present) Present(uint16) uint16 { return uint16(p) }

func combParams() reorder.ResequencerParams {
	return reorder.ResequencerParams{
		Hold: time.Millisecond, MaxHold: 4 * time.Millisecond, Window: 4096, Packets: 4096, Inactive: 10 * time.Millisecond, Flows: 1024, Selectors: 1, Wire: 4,
	}
}

func newComb(t *testing.T, p reorder.ResequencerParams, uplinks uint16) *comb {
	t.Helper()
	if err := p.Validate(); err != nil {
		t.Fatal(err)
	}
	r := reorder.NewResequencer(p, 2, present(uplinks))
	queues, each, packets := r.Queues()
	return &comb{t: t, r: r, holds: reorder.NewHolds[thread](queues, packets, each), now: mono.Time(time.Second)}
}

// thread returns a packet as its source numbers it.
func (c *comb) thread(flow, seq int, path uint8, epoch overlay.Epoch) thread {
	return thread{flow: flow, seq: seq, path: path, sent: c.now, header: overlay.Fabric{
		Capable: true, Shim: true, Scheme: 4, Epoch: epoch, Path: overlay.MakePathID(path, 0), LBTag: path,
		TxTstamp: overlay.TstampOf(c.now), Arg: overlay.Tstamp(seq), Rerouted: seq < reorder.Young,
	}}
}

// receive has packets arrive in one burst, at once.
func (c *comb) receive(burst ...thread) {
	c.expire()
	pkts := make([]reorder.Arrival, len(burst))
	for i, p := range burst {
		pkts[i] = reorder.Arrival{Hash: uint32(p.flow+1) * 0x9E3779B1, Leaf: 1, Len: 1000, Fabric: p.header}
	}
	c.r.Receive(c.now, pkts)
	for i := range pkts {
		p := &pkts[i]
		drain := func() {
			c.drain(int(p.Drain))
			for _, q := range p.Also {
				c.drain(int(q))
			}
		}
		if p.Verdict.DrainBefore() {
			drain()
		}
		switch {
		case p.Verdict == reorder.Discard:
			c.gone = append(c.gone, burst[i])
		case p.Verdict.Held():
			if !c.holds.Push(int(p.Hold), burst[i]) {
				c.t.Fatalf("place %d is taken", p.Hold)
			}
		default:
			c.emit(burst[i])
		}
		if p.Verdict.DrainAfter() {
			drain()
		}
	}
	c.expire()
	c.check()
}

func (c *comb) emit(p thread) {
	p.at = c.now
	c.out = append(c.out, p)
}

func (c *comb) drain(q int) {
	p, ok := c.holds.Pop(q)
	if !ok {
		c.t.Fatalf("place %d is empty", q)
	}
	c.emit(p)
}

// expire does what a driver does at the deadline.
func (c *comb) expire() {
	for c.r.Deadline() <= c.now {
		q, ok := c.r.Expire(c.now)
		if !ok {
			break
		}
		c.drain(q)
	}
}

// pass lets time pass.
func (c *comb) pass(until mono.Time) {
	for d := c.r.Deadline(); d <= until; d = c.r.Deadline() {
		c.now = max(c.now, d)
		c.expire()
		if c.r.Deadline() <= c.now {
			c.t.Fatal("something is held beyond its deadline")
		}
	}
	c.now = until
}

func (c *comb) check() {
	st := c.r.Counters()
	if st.Waiting != c.holds.Total() || st.WaitingBytes != uint64(st.Waiting)*1000 || (st.Waiting == 0) != (c.r.Deadline() == reorder.Never) {
		c.t.Fatalf("%d are held: %+v, deadline %d", c.holds.Total(), st, c.r.Deadline())
	}
}

// disorder returns how many packets came out behind a later one of their flow.
func (c *comb) disorder() (n int) {
	highest := map[int]int{}
	for _, p := range c.out {
		if p.seq < highest[p.flow] {
			n++
		}
		highest[p.flow] = max(highest[p.flow], p.seq)
	}
	return n
}

// spray returns packets of some flows that were sent over paths which keep the order, and
// whose delays change all the time; in the order of arrival. Some are lost.
func (c *comb) spray(rng *rand.Rand, flows, paths, packets int, gap, delay time.Duration, lose float64) (arriving, lost []thread) {
	var last [16]mono.Time
	next := make([]int, flows)
	wave := make([]float64, paths)
	for range packets {
		c.now = c.now.Add(time.Duration(rng.Int64N(int64(2 * gap))))
		flow, path := rng.IntN(flows), rng.IntN(paths)
		p := c.thread(flow, next[flow], uint8(path), overlay.Epoch(flow))
		next[flow]++
		wave[path] = min(max(wave[path]+(rng.Float64()-0.5)/4, 0), 1)
		p.at = max(last[path], p.sent.Add(time.Microsecond+time.Duration(wave[path]*float64(delay))))
		last[path] = p.at
		if rng.Float64() < lose {
			lost = append(lost, p)
		} else {
			arriving = append(arriving, p)
		}
	}
	slices.SortStableFunc(arriving, func(a, b thread) int { return int(a.at - b.at) })
	return arriving, lost
}

// Nothing is lost: all comes out in order, and each packet at the very moment at which it
// and all of its flow before it have come.
func TestResequencerHoldsNoLongerThanNeeded(t *testing.T) {
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 1))
		flows, paths := 1+rng.IntN(20), 2+rng.IntN(8)
		c := newComb(t, combParams(), 1<<paths-1)
		arriving, _ := c.spray(rng, flows, paths, 5000, time.Microsecond, 400*time.Microsecond, 0)
		want := make(map[[2]int]mono.Time)
		for _, p := range arriving {
			want[[2]int{p.flow, p.seq}] = p.at
		}
		for _, p := range arriving {
			c.pass(p.at)
			c.receive(p)
		}
		c.pass(c.now.Add(time.Second))
		st := c.r.Counters()
		if len(c.out) != len(arriving) || c.disorder() != 0 || st.Late+st.Expired+st.Settled+st.Exhausted != 0 || st.Held == 0 {
			t.Fatalf("seed %d: %d of %d came out, %d out of order: %+v", seed, len(c.out), len(arriving), c.disorder(), st)
		}
		latest := map[int]mono.Time{}
		for _, p := range c.out { // in order of seq
			latest[p.flow] = max(latest[p.flow], want[[2]int{p.flow, p.seq}])
			if p.at != latest[p.flow] {
				t.Fatalf("seed %d: packet %d of flow %d went on at %d, could at %d", seed, p.seq, p.flow, p.at, latest[p.flow])
			}
		}
	}
}

// Packets are lost while all paths are busy: nothing is out of order, no wait runs into
// its limit, and none ends later than when each path has delivered something that left
// later than what waits (by a whole microsecond, which is what timestamps tell).
func TestResequencerGivesUpWhatIsLost(t *testing.T) {
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 2))
		flows, paths := 1+rng.IntN(20), 2+rng.IntN(4)
		p := combParams()
		p.Hold = p.MaxHold
		c := newComb(t, p, 1<<paths-1)
		arriving, lost := c.spray(rng, flows, paths, 5000, time.Microsecond, 100*time.Microsecond, 0.02)
		for _, p := range arriving {
			c.pass(p.at)
			c.receive(p)
		}
		st := c.r.Counters()
		if c.disorder() != 0 || st.Late+st.Expired+st.Exhausted != 0 || st.Settled == 0 || len(lost) == 0 {
			t.Fatalf("seed %d: %d lost, %d out of order: %+v", seed, len(lost), c.disorder(), st)
		}
		// The naive model: when has each path delivered something later?
		passed := func(p *thread) mono.Time {
			done := mono.Time(0)
			for path := range paths {
				at := mono.Time(1 << 62)
				for i := range arriving {
					if a := &arriving[i]; int(a.path) == path && a.header.TxTstamp.Sub(p.header.TxTstamp) > 0 {
						at = a.at
						break
					}
				}
				done = max(done, at)
			}
			return done
		}
		for i := 0; i < len(c.out); i += 17 {
			p := &c.out[i]
			// What came after it from the same leaf may have to be settled first.
			if limit := passed(p); p.at > limit+mono.Time(100*time.Microsecond) {
				t.Fatalf("seed %d: packet %d of flow %d went on at %d, was settled at %d", seed, p.seq, p.flow, p.at, limit)
			}
		}
		c.pass(c.now.Add(time.Second))
		if len(c.out) != len(arriving) || c.disorder() != 0 {
			t.Fatalf("seed %d: %d of %d came out in the end, %d out of order", seed, len(c.out), len(arriving), c.disorder())
		}
	}
}

// A path that is idle proves nothing: the wait ends after Hold, or after twice what delays
// differ by.
func TestResequencerWaitsForIdlePaths(t *testing.T) {
	for _, spread := range []time.Duration{0, 300 * time.Microsecond, time.Millisecond, 10 * time.Millisecond} {
		c := newComb(t, combParams(), 0b111)
		c.receive(c.thread(0, 0, 0, 0))
		slow := c.thread(0, 1, 2, 0)
		c.now = c.now.Add(spread)
		c.receive(slow)
		// Number 2 left by path 1, and is lost.
		c.now = c.now.Add(time.Microsecond)
		began := c.now
		c.receive(c.thread(0, 3, 0, 0), c.thread(0, 4, 2, 0))
		for range 5 { // paths 0 and 2 deliver more, of another flow
			c.pass(c.now.Add(10 * time.Microsecond))
			c.receive(c.thread(1, int(c.now), 0, 0), c.thread(2, int(c.now), 2, 0))
		}
		c.pass(c.now.Add(time.Second))
		waited := time.Duration(0)
		for _, p := range c.out {
			if p.flow == 0 && p.seq == 3 {
				waited = p.at.Sub(began)
			}
		}
		if want := min(max(2*spread, time.Millisecond), 4*time.Millisecond); waited < want || waited > want+20*time.Microsecond || c.r.Counters().Expired != 1 {
			t.Errorf("delays that differ by %v: waited for %v, want %v: %+v", spread, waited, want, c.r.Counters())
		}
	}
}

// Numbers have 16 bits, and wrap. A flow of which 32768 packets cannot be under way at a
// time does not notice; and a packet that is so late that its number has become another
// one's is told by when it left.
func TestResequencerNumbersWrap(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	c := newComb(t, combParams(), 0b11)
	arriving, _ := c.spray(rng, 1, 2, 200_000, 200*time.Nanosecond, 300*time.Microsecond, 0)
	for _, p := range arriving {
		c.pass(p.at)
		c.receive(p)
	}
	if st := c.r.Counters(); c.disorder() != 0 || st.Late != 0 || st.Sequences != 1 || st.Held < 1000 || len(c.out) != len(arriving) {
		t.Errorf("%d of %d came out, %d out of order: %+v", len(c.out), len(arriving), c.disorder(), st)
	}
	// 40000 packets after it was sent, one comes late: its number looks as if it were
	// 25536 ahead.
	c = newComb(t, combParams(), 0b11)
	late := c.thread(0, 1000, 1, 0)
	for seq := 1001; seq < 41000; seq++ {
		c.now += 100
		c.receive(c.thread(0, seq, 0, 0))
	}
	c.receive(late)
	if st := c.r.Counters(); st.Late != 1 || st.Waiting != 0 {
		t.Errorf("the late one: %+v", st)
	}
}

// A sequence begins anew when its source says so, when it has restarted, and when this
// side has: with what was held before it, and without waiting for what there is not.
func TestResequencerBeginsAnew(t *testing.T) {
	send := func(c *comb, epoch overlay.Epoch, seqs ...int) {
		for _, seq := range seqs {
			c.now = c.now.Add(2 * time.Microsecond)
			c.receive(c.thread(0, seq, 0, epoch))
		}
	}
	for _, tt := range []struct {
		name string
		do   func(c *comb)
		want string // sequence numbers as they come out, those of the other epoch from 10000
		held int
	}{
		{"first of the flow overtaken", func(c *comb) { send(c, 0, 2, 1, 0, 3) }, "[0 1 2 3]", 0},
		{"flow under way before this side", func(c *comb) { send(c, 0, 5000, 5001, 5003) }, "[5000 5001]", 1},
		{"young flow, the first are lost", func(c *comb) {
			send(c, 0, 7, 8)
			c.pass(c.now.Add(time.Second))
			send(c, 0, 9)
		}, "[7 8 9]", 0},
		{"after a pause", func(c *comb) {
			send(c, 0, 300, 301, 303)
			c.now = c.now.Add(20 * time.Millisecond)
			send(c, 1, 1, 0)
		}, "[300 301 303 0 1]", 0},
		{"source restarted, another epoch", func(c *comb) { send(c, 0, 300, 301, 303); send(c, 3, 0, 1, 2) }, "[300 301 303 0 1 2]", 0},
		{"source restarted, the same epoch by chance", func(c *comb) { send(c, 0, 300, 301, 303); send(c, 0, 0, 1, 2) }, "[300 301 303 0 1 2]", 0},
		{"late, and not a restart", func(c *comb) {
			late := c.thread(0, 299, 1, 0)
			send(c, 0, 300, 301)
			c.receive(late)
			send(c, 0, 302)
		}, "[300 301 299 302]", 0},
		{"a copy of what waits", func(c *comb) { send(c, 0, 300, 302, 302, 301) }, "[300 301 302]", 0},
		{"too far ahead", func(c *comb) { send(c, 0, 300, 302, 300+4096+1) }, "[300 302 4397]", 0},
	} {
		c := newComb(t, combParams(), 0b11)
		tt.do(c)
		var got []int
		for _, p := range c.out {
			got = append(got, p.seq)
		}
		if s := fmt.Sprint(got); s != tt.want || c.holds.Total() != tt.held {
			t.Errorf("%s: %s came out, want %s; %d are held, want %d", tt.name, s, tt.want, c.holds.Total(), tt.held)
		}
	}
}

// A path that several cores serve lets packets overtake each other. What is seen of that
// is allowed for before a packet is given up.
func TestResequencerLearnsHowFarPathsKeepOrder(t *testing.T) {
	run := func(learn bool) uint64 {
		c := newComb(t, combParams(), 0b11)
		if learn {
			early := c.thread(5, 1000, 0, 0)
			c.now = c.now.Add(80 * time.Microsecond)
			c.receive(c.thread(6, 1000, 0, 0), early)
		}
		c.receive(c.thread(0, 1000, 0, 0))
		c.now = c.now.Add(time.Microsecond)
		slow := c.thread(0, 1001, 0, 0)
		for i := range 10 { // other flows' packets go ahead of it on both paths
			c.now = c.now.Add(10 * time.Microsecond)
			c.receive(c.thread(0, 1002+i, 1, 0), c.thread(7, 1000+i, 0, 0))
		}
		c.receive(slow)
		return c.r.Counters().Late
	}
	if n := run(false); n == 0 {
		t.Error("nothing was late without a guard: the test shows nothing")
	}
	if n := run(true); n != 0 {
		t.Errorf("%d packets were late", n)
	}
}

// Memory runs short: the leaf is asked not to spray, once in a while, and what does not
// fit ends a wait; nothing is lost.
func TestResequencerRunsShort(t *testing.T) {
	p := combParams()
	p.Packets = 8
	c := newComb(t, p, 0b11)
	c.receive(c.thread(0, 1000, 0, 0))
	asked := 0
	for i := range 20 {
		c.now += 1000
		c.receive(c.thread(0, 1002+i, 0, 0))
		for _, m := range c.r.Outbox() {
			if asked++; m.Leaf != 1 || m.Fabric.Opcode != overlay.OpNotify || !m.Fabric.Refuses() || m.Fabric.Scheme != 4 {
				t.Errorf("said %+v", m)
			}
		}
	}
	st := c.r.Counters()
	if asked != 1 || st.Refusals != 1 || st.Exhausted == 0 || st.WaitingPeak != 8 || st.WaitingDepth.N() != st.Held || st.BytesDepth.N() != st.Held || st.WaitingDepth.Counts[2] != 4 || len(c.out) != 21 || c.disorder() != 0 {
		t.Errorf("asked %d times, %d of 21 came out: %+v", asked, len(c.out), st)
	}
}

// FuzzResequencer feeds a resequencer whatever headers the wire can bring: no panic, no
// packet lost or sent twice, none held beyond its deadline or for ever.
func FuzzResequencer(f *testing.F) {
	f.Add([]byte{0x20, 1, 0, 5, 1, 0x20, 0, 0, 6, 1, 0x20, 3, 0, 7, 9, 0x20, 2, 0, 8, 200})
	f.Add([]byte{0x00, 9, 1, 5, 1, 0x01, 7, 1, 6, 1, 0x02, 9, 2, 7, 9, 0x23, 255, 255, 8, 255})
	f.Fuzz(func(t *testing.T, b []byte) {
		p := combParams()
		p.Packets, p.Window, p.Flows, p.Selectors = 6, 40, 4, 2
		c := newComb(t, p, 0b11)
		in := 0
		for ; len(b) >= 5; b = b[5:] {
			c.pass(c.now + mono.Time(b[4])*20_000)
			x := c.thread(int(b[2]&3), in, b[2]>>2&1, overlay.Epoch(b[0]&3))
			x.header.Arg, x.header.Rerouted = overlay.Tstamp(b[1])|overlay.Tstamp(b[0]>>6)<<14, b[0]&0x20 != 0
			x.header.TxTstamp -= overlay.Tstamp(b[3])
			x.header.Path = overlay.MakePathID(b[2]>>2, b[2]>>6)
			in++
			c.receive(x)
		}
		for q, ok := c.r.Flush(c.now); ok; q, ok = c.r.Flush(c.now) {
			c.drain(q)
		}
		seen := map[int]bool{}
		for _, p := range append(c.out, c.gone...) {
			if seen[p.seq] {
				t.Fatalf("packet %d came out twice", p.seq)
			}
			seen[p.seq] = true
		}
		if len(seen) != in || c.r.Deadline() != reorder.Never || c.r.Counters().Waiting != 0 {
			t.Fatalf("%d of %d came out: %+v", len(seen), in, c.r.Counters())
		}
	})
}
