package reorder_test

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/overlay"
	"github.com/loomfabric/loom/reorder"
)

// flowOf sends a packet of a flow to an egress port. It returns what goes on, in
// order.
func flowOf(c *driver[int], now mono.Time, hash uint32, f overlay.Fabric, item int, bytes uint32, port int) (reorder.Verdict, []int) {
	f.Capable, f.Shim = true, true
	return c.Arrive(now, 0, hash, &f, false, item, bytes, port)
}

// Every limit: up to it packets are held; what is above passes as it comes, and
// is counted; CLEAR is sent on the TAIL all the same.
func TestExhaustion(t *testing.T) {
	roomy := func(p *reorder.Params) {
		p.Ports, p.Queues, p.PortQueues, p.Packets, p.PortPackets, p.Bytes, p.PortBytes = 2, 10, 10, 100, 100, 1<<20, 1<<20
	}
	type want struct{ held, noQueue, exhausted uint64 }
	for _, tt := range []struct {
		name   string
		change func(*reorder.Params)
		ports  []int // of flows 1, 2, …, of which each sends three REROUTED packets of 1000 bytes in turn
		want   want
	}{
		{"room", roomy, []int{0, 0, 1, 1}, want{held: 12}},
		{"queues in all", func(p *reorder.Params) { p.Queues = 3 }, []int{0, 0, 1, 1}, want{held: 9, noQueue: 1}},
		{"queues of a port", func(p *reorder.Params) { p.PortQueues = 1 }, []int{0, 0, 1, 1}, want{held: 6, noQueue: 2}},
		{"no queues", func(p *reorder.Params) { p.Queues = 0 }, []int{0, 1}, want{noQueue: 2}},
		{"packets of a port", func(p *reorder.Params) { p.PortPackets = 2 }, []int{0, 1}, want{held: 4, exhausted: 2}},
		{"packets in all", func(p *reorder.Params) { p.Packets = 5 }, []int{0, 1}, want{held: 5, exhausted: 1}},
		{"bytes of a port", func(p *reorder.Params) { p.PortBytes = 2999 }, []int{0}, want{held: 2, exhausted: 1}},
		{"bytes in all", func(p *reorder.Params) { p.Bytes = 5999 }, []int{0, 1}, want{held: 5, exhausted: 1}},
		{"bytes of one packet", func(p *reorder.Params) { p.PortBytes = 999 }, []int{0}, want{noQueue: 1}},
		{"no such port", func(*reorder.Params) {}, []int{2, -1}, want{noQueue: 2}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := mustNew[int](t, func(p *reorder.Params) { roomy(p); tt.change(p) })
			sent := make([][]int, len(tt.ports))
			for i := range 3 {
				for flow, port := range tt.ports {
					_, out := flowOf(c, 0, uint32(flow), rerouted(1, 10, 9), i+1, 1000, port)
					sent[flow] = append(sent[flow], out...)
				}
			}
			st := c.Counters()
			if got := (want{st.Held, st.NoQueue, st.Exhausted}); got != tt.want {
				t.Errorf("%+v, want %+v", got, tt.want)
			}
			for flow, port := range tt.ports {
				_, out := flowOf(c, 0, uint32(flow), tail(1, 9), 0, 1000, port)
				if len(c.Outbox()) != 1 || c.Outbox()[0].Fabric.Opcode != overlay.OpClear {
					t.Errorf("flow %d: said %+v on the TAIL", flow, c.Outbox())
				}
				sent[flow] = append(sent[flow], out...)
				rest := slices.DeleteFunc(slices.Clone(sent[flow]), func(i int) bool { return i == 0 })
				if !slices.Equal(rest, []int{1, 2, 3}) {
					t.Errorf("flow %d: sent %v: the NEW path's packets in their order", flow, sent[flow])
				}
			}
			if st := c.Counters(); st.InUse+st.Waiting+int(st.WaitingBytes) != 0 {
				t.Errorf("left: %+v", st)
			}
		})
	}
}

// A source that no longer knows the flow starts with an epoch of its own choice;
// which packets are new is told by their timestamps. What was held of the old
// epoch goes first.
func TestSourceRestarts(t *testing.T) {
	for epoch := range overlay.Epoch(4) {
		c := mustNew[int](t, nil)
		flowOf(c, 0, 1, data(2, 100), 1, 100, 0)
		if v, _ := flowOf(c, 10, 1, rerouted(2, 112, 110), 2, 100, 0); v != reorder.Hold {
			t.Fatal(v)
		}
		v, sent := flowOf(c, 20, 1, data(epoch, 120), 3, 100, 0)
		if v != reorder.DrainPass || !slices.Equal(sent, []int{2, 3}) {
			t.Errorf("epoch %d after 2: verdict %d, sent %v", epoch, v, sent)
		}
		if v, _ := flowOf(c, 30, 1, rerouted(epoch, 130, 129), 4, 100, 0); v != reorder.Hold {
			t.Errorf("epoch %d after 2, REROUTED: verdict %d", epoch, v)
		}
		if st := c.Counters(); st.Overtaken != 1 || st.Late != 0 {
			t.Errorf("%+v", st)
		}
	}
	// The first packet that comes may be REROUTED, too.
	c := mustNew[int](t, nil)
	flowOf(c, 0, 1, rerouted(2, 112, 110), 1, 100, 0)
	if v, sent := flowOf(c, 0, 1, rerouted(2, 130, 128), 2, 100, 0); v != reorder.DrainHold || !slices.Equal(sent, []int{1}) {
		t.Errorf("verdict %d, sent %v", v, sent)
	}
	if st := c.Counters(); st.Overtaken != 1 || st.InUse != 1 || st.Waiting != 1 {
		t.Errorf("%+v", st)
	}
	if _, sent := flowOf(c, 0, 1, tail(2, 128), 3, 100, 0); !slices.Equal(sent, []int{3, 2}) {
		t.Errorf("sent %v", sent)
	}
}

// After a restart of the destination the first it sees may be the middle of a
// reroute: it waits for a TAIL that may have passed, but not for ever.
func TestDestinationRestarts(t *testing.T) {
	p := newPort(t, nil)
	p.arrive(0, "RR", rerouted(3, 12, 10))
	p.at(199)
	p.wantSent()
	p.at(200)
	p.wantSent("RR")
	if p.clears() != 1 {
		t.Error("no CLEAR")
	}
}

// Time on the wire wraps every 65.536 ms, and epochs every four; a flow may be
// anywhere on either.
func TestWrap(t *testing.T) {
	for start := 0; start < 1<<16; start += 977 {
		c := mustNew[int](t, nil)
		now, tx, epoch := mono.Time(0), overlay.Tstamp(start), overlay.Epoch(start%4)
		for range 12 {
			flowOf(c, now, 1, data(epoch, tx), 1, 100, 0)
			if v, _ := flowOf(c, now+2000, 1, rerouted(epoch, tx+10, tx+9), 2, 100, 0); v != reorder.Hold {
				t.Fatalf("start %d, epoch %d, REROUTED: verdict %d", start, epoch, v)
			}
			if want := now.Add(25 * time.Microsecond); c.Deadline() != want {
				t.Fatalf("start %d, epoch %d: T_resume %d, want %d", start, epoch, c.Deadline(), want)
			}
			if v, _ := flowOf(c, now+3000, 1, tail(epoch, tx+9), 3, 100, 0); v != reorder.PassDrain {
				t.Fatalf("start %d, epoch %d, TAIL: verdict %d", start, epoch, v)
			}
			now, tx, epoch = now.Add(250*time.Microsecond), tx+250, epoch.Next()
		}
		if st := c.Counters(); st.Late != 0 || st.Epochs != 12 {
			t.Fatalf("start %d: %+v", start, st)
		}
	}
}

// A flow of which nothing came for 2·θ_inactive is forgotten: timestamps could no
// longer tell which packet is newer.
func TestFlowsAge(t *testing.T) {
	for _, tt := range []struct {
		pause time.Duration
		want  reorder.Verdict
	}{{600 * time.Microsecond, reorder.Pass}, {601 * time.Microsecond, reorder.Hold}} {
		c := mustNew[int](t, nil)
		flowOf(c, 0, 1, data(2, 40000), 1, 100, 0)
		// The source's clock has gone back: as if it were older.
		if v, _ := flowOf(c, mono.Time(tt.pause), 1, rerouted(1, 30000, 29000), 2, 100, 0); v != tt.want {
			t.Errorf("after %v: verdict %d, want %d", tt.pause, v, tt.want)
		}
	}
}

// A full flow table leaves no flow stuck: what has no place passes, its TAIL is
// answered; aged entries are used again, those that hold packets are not.
func TestFlowTableOverflows(t *testing.T) {
	c := mustNew[int](t, func(p *reorder.Params) {
		p.Flows = 4
		p.ResumeDefault = time.Millisecond
		p.MaxHold = 2 * time.Millisecond
	})
	for hash := range uint32(4) {
		flowOf(c, 0, hash, rerouted(1, 10, 9), int(hash), 100, 0)
	}
	if v, _ := flowOf(c, 1, 9, rerouted(1, 10, 9), 9, 100, 0); v != reorder.Pass {
		t.Errorf("verdict %d", v)
	}
	if v, _ := flowOf(c, 1, 9, tail(1, 9), 9, 100, 0); v != reorder.Pass || len(c.Outbox()) != 1 || c.Outbox()[0].Fabric.Opcode != overlay.OpClear {
		t.Errorf("TAIL: verdict %d, said %+v", v, c.Outbox())
	}
	flowOf(c, 2, 3, tail(1, 9), 4, 100, 0)
	late := mono.Time(700 * time.Microsecond) // only flow 3 holds nothing, and has aged
	if v, _ := flowOf(c, late, 9, rerouted(1, 10, 9), 9, 100, 0); v != reorder.Hold {
		t.Errorf("after ageing: verdict %d", v)
	}
	if v, _ := flowOf(c, late, 10, rerouted(1, 10, 9), 9, 100, 0); v != reorder.Pass {
		t.Errorf("took the place of a flow that holds packets: verdict %d", v)
	}
	if st := c.Counters(); st.NoFlow != 3 {
		t.Errorf("%+v", st)
	}
}

// Sources are told when little is left, of what concerns their port or all.
func TestAdmission(t *testing.T) {
	c := mustNew[int](t, func(p *reorder.Params) {
		p.Admission, p.Ports, p.PortQueues, p.Queues = 50, 2, 4, 6
	})
	refused := func(port int) bool {
		f := data(1, 50)
		f.Opcode = overlay.OpRTTRequest
		flowOf(c, 0, 99, f, 0, 100, port)
		out := c.Outbox()
		if len(out) != 1 {
			t.Fatalf("said %+v", out)
		}
		return out[0].Fabric.Refuses()
	}
	for i, tt := range []struct {
		port int // of one more flow that is held
		want [2]bool
	}{{0, [2]bool{false, false}}, {0, [2]bool{true, false}}, {1, [2]bool{true, true}}} {
		flowOf(c, 0, uint32(i), rerouted(1, 10, 9), i, 100, tt.port)
		if got := [2]bool{refused(0), refused(1)}; got != tt.want {
			t.Errorf("%d queues held: refused %v, want %v", i+1, got, tt.want)
		}
	}
	if st := c.Counters(); st.Refusals != 3 {
		t.Errorf("%+v", st)
	}
	off := mustNew[int](t, func(p *reorder.Params) { p.Queues = 0 })
	flowOf(off, 0, 1, tail(1, 9), 0, 100, 0)
	if off.Outbox()[0].Fabric.Refuses() {
		t.Error("refused without admission control")
	}
}

// Whatever timestamps say, and whatever the OLD path brings, a queue is not held
// for longer than MaxHold.
func TestMaxHold(t *testing.T) {
	c := mustNew[int](t, nil)
	flowOf(c, 0, 1, data(1, 0), 1, 100, 0)
	flowOf(c, 0, 1, rerouted(1, 32000, 32000), 2, 100, 0) // the TAIL in 32 ms
	limit := mono.Time(2 * time.Millisecond)
	if c.Deadline() != limit {
		t.Errorf("T_resume %d, want %d", c.Deadline(), limit)
	}
	flowOf(c, limit-1, 1, data(1, 31999), 3, 100, 0)
	if c.Deadline() != limit {
		t.Errorf("T_resume %d after news, want %d", c.Deadline(), limit)
	}
	if st := c.Counters(); st.Capped != 2 {
		t.Errorf("%+v", st)
	}
	if _, ok := c.Expire(limit - 1); ok {
		t.Error("expired early")
	}
	if sent, ok := c.Expire(limit); !ok || !slices.Equal(sent, []int{2}) {
		t.Errorf("sent %v at the limit, %v", sent, ok)
	}
	// A clock that was set back holds nothing up either.
	flowOf(c, limit+1, 1, data(2, 40000), 1, 100, 0)
	flowOf(c, limit+1, 1, rerouted(2, 40010, 40009), 2, 100, 0)
	if _, ok := c.Expire(-mono.Time(time.Hour)); !ok {
		t.Error("held for as long as the clock has been set back")
	}
}

// A driver that stops gets everything back.
func TestFlush(t *testing.T) {
	c := mustNew[int](t, nil)
	for hash := range uint32(3) {
		flowOf(c, 0, hash, rerouted(1, 10, 9), int(hash), 100, 0)
	}
	var got []int
	for sent, ok := c.Flush(5); ok; sent, ok = c.Flush(5) {
		if len(c.Outbox()) != 0 {
			t.Errorf("said %+v", c.Outbox())
		}
		got = append(got, sent...)
	}
	if slices.Sort(got); !slices.Equal(got, []int{0, 1, 2}) {
		t.Errorf("got %v", got)
	}
	if st := c.Counters(); st.Flushed != 3 || st.InUse+st.Waiting != 0 || c.Deadline() != reorder.Never {
		t.Errorf("%+v", st)
	}
}

// Packets without ConWeave's fields, and control packets, leave no trace.
func TestUnmarkedPackets(t *testing.T) {
	c := mustNew[int](t, func(p *reorder.Params) { p.Flows = 4 })
	for i, f := range []overlay.Fabric{
		{}, {Capable: true}, {Shim: true}, {Capable: true, Rerouted: true, Tail: true},
		{Capable: true, Shim: true, Opcode: overlay.OpClear, Tail: true}, {Capable: true, Shim: true, Opcode: overlay.OpExtension},
	} {
		if v, _ := c.Arrive(0, 0, uint32(i), &f, true, 1, 100, 0); v != reorder.Pass || len(c.Outbox()) != 0 {
			t.Errorf("packet %d: verdict %d, said %+v", i, v, c.Outbox())
		}
	}
	if st := c.Counters(); st != (reorder.Stats{Unmarked: 6}) {
		t.Errorf("%+v", st)
	}
}

func TestParamsAreChecked(t *testing.T) {
	for want, change := range map[string]func(*reorder.Params){
		"inactive is 0s":       func(p *reorder.Params) { p.Inactive = 0 },
		"16-bit timestamps":    func(p *reorder.Params) { p.Inactive = overlay.MaxInactive + 1 },
		"max_hold is 0s":       func(p *reorder.Params) { p.MaxHold = 0 },
		"resume_extra":         func(p *reorder.Params) { p.ResumeExtra = p.MaxHold + 1 },
		"resume_default":       func(p *reorder.Params) { p.ResumeDefault = 0 },
		"notify_interval":      func(p *reorder.Params) { p.NotifyInterval = -1 },
		"admission at 101":     func(p *reorder.Params) { p.Admission = 101 },
		"table of 2":           func(p *reorder.Params) { p.Flows = 2 },
		"table of 12":          func(p *reorder.Params) { p.Flows = 12 },
		"-1 leaves":            func(p *reorder.Params) { p.Leaves = -1 },
		"-1 ports":             func(p *reorder.Params) { p.Ports = -1 },
		"65536 queues":         func(p *reorder.Params) { p.Queues = 65536 },
		"-1 packets":           func(p *reorder.Params) { p.PortPackets = -1 },
		"destination side: -1": func(p *reorder.Params) { p.PortQueues = -1 },
	} {
		p := reorder.Datacenter()
		change(&p)
		if _, err := reorder.New(p); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

// What is behind on the OLD path may be of the epoch before. As long as all that
// came of the new one waits, it is in order.
func TestOlderEpochBeforeHeldOne(t *testing.T) {
	p := newPort(t, nil)
	p.arrive(0, "a", data(1, 100))
	p.arrive(1, "e2", rerouted(2, 140, 139))
	p.arrive(2, "b", data(1, 110))
	p.arrive(3, "c", rerouted(1, 120, 105))
	if st := p.c.Counters(); st.Late != 0 || st.Waiting != 1 {
		t.Errorf("%+v", st)
	}
	p.arrive(4, "TAIL", tail(2, 139))
	p.arrive(5, "late", data(1, 115))
	if st := p.c.Counters(); st.Late != 1 || st.Waiting != 0 {
		t.Errorf("%+v", st)
	}
	p.wantSent("a", "b", "c", "TAIL", "e2", "late")

	// What an older epoch held went because of the newer one.
	p = newPort(t, nil)
	p.arrive(0, "held", rerouted(1, 110, 105))
	p.arrive(1, "e2", rerouted(2, 140, 139))
	p.arrive(2, "late", data(1, 104))
	if st := p.c.Counters(); st.Overtaken != 1 || st.Late != 1 || st.Waiting != 1 {
		t.Errorf("%+v", st)
	}
	p.wantSent("held", "late")
}

// Packets of the OLD path may be late by more than copies are: one of them does not
// make the next one a packet that was sent after those that are held.
func TestOldPathMillisecondsBehind(t *testing.T) {
	p := newPort(t, func(p *reorder.Params) { *p = reorder.Lab(); p.ResumeExtra = 10 * time.Millisecond })
	by := func(path overlay.PathID, f overlay.Fabric) overlay.Fabric { f.Path = path; return f }
	p.arrive(0, "a", by(1, data(1, 1000)))
	p.arrive(0, "RR", by(2, rerouted(1, 9000, 2000)))
	for i := range 3 {
		p.arrive(5000, "b", by(1, data(1, overlay.Tstamp(1500+i))))
	}
	p.arrive(5000, "TAIL", by(1, tail(1, 2000)))
	p.wantSent("a", "b", "b", "b", "TAIL", "RR")
}

// However much later than the REROUTED ones those of the OLD path come, within what
// T_resume allows, they go first: also if REROUTED ones go on coming.
func TestOldPathLateByTensOfMilliseconds(t *testing.T) {
	for _, late := range []int{20, 34, 40, 47} {
		p := newPort(t, func(p *reorder.Params) {
			*p = reorder.Lab()
			p.ResumeExtra, p.ResumeDefault, p.MaxHold = 60*time.Millisecond, 60*time.Millisecond, time.Second
		})
		p.arrive(0, "a", data(1, 1000))
		want := []string{"a", "b", "TAIL"}
		for ms := 1; ms <= late; ms++ {
			p.arrive(float64(1000*ms), "RR", rerouted(1, overlay.Tstamp(1000+1000*ms), 1200))
			want = append(want, "RR")
		}
		p.arrive(float64(1000*late+500), "b", data(1, 1100))
		p.arrive(float64(1000*late+600), "TAIL", tail(1, 1200))
		p.wantSent(want...)
		if st := p.c.Counters(); st.Overtaken != 0 || st.Epochs != 1 {
			t.Errorf("%d ms late: %+v", late, st)
		}
	}
}

// What T_resume sent on early does not become in order by the next epoch.
func TestLateAfterExpiry(t *testing.T) {
	p := newPort(t, nil)
	p.arrive(0, "a", data(1, 100))
	p.arrive(1, "RR", rerouted(1, 112, 110))
	p.arrive(101, "e2", rerouted(2, 400, 399))
	p.arrive(102, "late", data(1, 105))
	p.arrive(103, "RR", rerouted(1, 113, 110))
	if st := p.c.Counters(); st.Expiries != 1 || st.Late != 1 || st.Waiting != 1 {
		t.Errorf("%+v", st)
	}
}

// Two packets a µs apart may have the same timestamp: then the epoch decides.
func TestSameTimestamp(t *testing.T) {
	for _, tt := range []struct {
		epoch overlay.Epoch
		late  uint64
	}{{0, 1}, {1, 0}, {2, 0}, {3, 1}} {
		c := mustNew[int](t, nil)
		flowOf(c, 0, 1, data(1, 7), 1, 100, 0)
		flowOf(c, 0, 1, data(tt.epoch, 7), 2, 100, 0)
		if st := c.Counters(); st.Late != tt.late {
			t.Errorf("epoch %d after 1: %d late, want %d", tt.epoch, st.Late, tt.late)
		}
	}
	// TAIL and REROUTED of one vector, and copies of OLD packets behind them.
	c := mustNew[int](t, nil)
	flowOf(c, 0, 1, data(1, 7), 1, 100, 0)
	flowOf(c, 0, 1, tail(1, 7), 2, 100, 0)
	if v, _ := flowOf(c, 0, 1, rerouted(1, 7, 7), 3, 100, 0); v != reorder.Pass {
		t.Errorf("verdict %d", v)
	}
	flowOf(c, 0, 1, data(1, 7), 1, 100, 0)
	if st := c.Counters(); st.AfterTail != 1 || st.Epochs != 1 || st.Late != 0 {
		t.Errorf("%+v", st)
	}
}

func TestReceiveDoesNotAllocate(t *testing.T) {
	c := mustNew[int](t, nil).ConWeave
	now := mono.Time(0)
	var pkts [5]reorder.Arrival
	sum, hash := 0, uint32(0)
	if n := testing.AllocsPerRun(1000, func() {
		hash++
		now = now.Add(time.Millisecond)
		tx := overlay.TstampOf(now)
		for i, f := range [...]overlay.Fabric{data(1, tx), rerouted(1, tx+3, tx+2), data(1, tx+1), tail(1, tx+2), rerouted(2, tx+5, tx+4)} {
			f.Capable, f.Shim = true, true
			pkts[i] = reorder.Arrival{Hash: hash, Len: 100, CE: true, Fabric: f}
		}
		c.Receive(now, pkts[:])
		sum += len(c.Outbox())
		for _, ok := c.Expire(now.Add(500 * time.Microsecond)); ok; _, ok = c.Expire(now.Add(500 * time.Microsecond)) {
			sum += len(c.Outbox())
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if st := c.Counters(); st.TailFlushes == 0 || st.Expiries == 0 || st.Notifies == 0 {
		t.Errorf("not all of it happened: %+v", st)
	}
}

// Packets in a vector fare as if they had come one by one at that time, whatever
// the length of vectors. Messages say which of the packets has caused them.
func TestVectors(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	small := func(p *reorder.Params) { p.Flows, p.Ports, p.Queues, p.PortQueues, p.Packets = 16, 2, 4, 3, 12 }
	one, many := mustNew[int](t, small), mustNew[int](t, small)
	held := 0
	for now := mono.Time(0); now < mono.Time(200*time.Millisecond); now = now.Add(time.Duration(rng.IntN(100_000))) {
		for {
			a, okA := one.ConWeave.Expire(now)
			b, okB := many.ConWeave.Expire(now)
			if okA != okB || okA && (a != b || !slices.Equal(one.Outbox(), many.Outbox())) {
				t.Fatalf("expired %d %v and %d %v", a, okA, b, okB)
			}
			if !okA {
				break
			}
		}
		vector := make([]reorder.Arrival, 1+rng.IntN(100))
		for i := range vector {
			tx := overlay.TstampOf(now) - overlay.Tstamp(rng.IntN(60))
			vector[i] = reorder.Arrival{Hash: uint32(rng.IntN(20)), Len: 100, Leaf: uint16(rng.IntN(2)), Port: uint16(rng.IntN(3)), CE: rng.IntN(9) == 0}
			f := [...]overlay.Fabric{data(1, tx), rerouted(1, tx, tx-5), tail(1, tx), data(2, tx), rerouted(2, tx, tx-5)}[rng.IntN(5)]
			f.Capable, f.Shim, f.Opcode = true, rng.IntN(20) > 0, overlay.Opcode(rng.IntN(2))
			vector[i].Fabric = f
		}
		singly := slices.Clone(vector)
		var said []overlay.Message
		for i := range singly {
			one.Receive(now, singly[i:i+1])
			for _, m := range one.Outbox() {
				if m.Cause != 0 {
					t.Fatalf("caused by packet %d of 1: %+v", m.Cause, m)
				}
				m.Cause = int16(i)
				said = append(said, m)
			}
			if singly[i].Verdict.Held() {
				held++
			}
		}
		many.Receive(now, vector)
		if !reflect.DeepEqual(vector, singly) || !slices.Equal(many.Outbox(), said) {
			t.Fatalf("at %v the vector came out as\n%+v\n%+v\nand its packets one by one as\n%+v\n%+v", now, vector, many.Outbox(), singly, said)
		}
	}
	if one.Counters() != many.Counters() || held == 0 {
		t.Errorf("%d held; counted\n%+v\n%+v", held, many.Counters(), one.Counters())
	}
}
