package balance

import (
	"slices"
	"testing"
	"time"

	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/overlay"
	"github.com/loomfabric/loom/reorder"
)

// The tests in this file name the claim of Presto (He et al., SIGCOMM 2015) that they
// hold the code to, in our words, and its section. Where the code differs, the test says
// how.

// prestoParams returns the datacenter's values, changed.
func prestoParams(change func(*PrestoParams)) *PrestoParams {
	p := newPrestoParams(Datacenter).(*PrestoParams)
	if change != nil {
		change(p)
	}
	return p
}

func newPrestoSource(t testing.TB, seed uint64, change func(*PrestoParams)) *presto {
	t.Helper()
	p, err := New("presto", Options{Seed: seed, Section: prestoParams(change)})
	if err != nil {
		t.Fatal(err)
	}
	return p.(*presto)
}

// next sends one packet of a flow.
func (s *presto) next(now mono.Time, v *View, hash uint32, length uint16) Packet {
	pkts := []Packet{{Hash: hash, Len: length}}
	s.Choose(now, v, pkts)
	return pkts[0]
}

// Presto balances "near-uniform units of data (flowcells) that fit within end-host
// segment offload optimizations" (abstract): by count of bytes, 64 KB, and each of them
// takes one path (§3.1).
//
// We differ: a leaf sees packets and not the host's segments. The packet that makes a
// flowcell 64 KB long is its last one, since Tail has to be known when that leaves: a
// flowcell can be longer than 64 KB by less than a packet. The paper's vSwitch begins
// another one with the segment that would exceed it (Algorithm 1).
func TestPresto31FlowcellsAre64KB(t *testing.T) {
	for _, length := range []uint16{64, 1000, 1500, 9000, 65000} {
		s, v := newPrestoSource(t, 1, nil), newView(firstPaths(4))
		bytes, path, cell := 0, uint8(0), overlay.Tstamp(0)
		for i := range 5000 {
			p := s.next(mono.Time(i)*1000, v, 7, length)
			if bytes == 0 {
				path, cell = p.Path, p.Arg
			}
			bytes += int(length)
			if p.Path != path || p.Arg != cell || !p.Shim {
				t.Fatalf("length %d: a packet at byte %d of flowcell %d takes path %d and has %+v, those before path %d", length, bytes, cell, p.Path, p.Marks, path)
			}
			if full := bytes >= 64<<10; full != p.Tail {
				t.Fatalf("length %d: the packet that makes it %d bytes long is the last one: %v", length, bytes, p.Tail)
			} else if full {
				bytes = 0
			}
		}
	}
}

// Flowcells take the paths to their destination round robin (§3.1). Flows begin at random
// paths, so that those which begin together do not stay together.
func TestPresto31RoundRobin(t *testing.T) {
	s, v := newPrestoSource(t, 1, nil), newView(firstPaths(4), firstPaths(4))
	const flows = 200
	var first [4]int
	for hash := range uint32(flows) {
		var paths []uint8
		for i := range 12 {
			p := s.next(0, v, hash*0x9E3779B1, 64<<10-1)
			q := s.next(0, v, hash*0x9E3779B1, 1) // the flowcell's last packet
			if p.Path != q.Path || p.Tail || !q.Tail || int(p.Arg) != i {
				t.Fatalf("flow %d: %+v, then %+v", hash, p, q)
			}
			paths = append(paths, p.Path)
		}
		first[paths[0]]++
		for i, p := range paths {
			if want := (int(paths[0]) + i) % 4; int(p) != want {
				t.Fatalf("flow %d takes paths %v", hash, paths)
			}
		}
	}
	for path, n := range first {
		if n < flows/4-25 || n > flows/4+25 { // four standard deviations
			t.Errorf("%d of %d flows begin with path %d", n, flows, path)
		}
	}
}

// Presto does not look at congestion (§2): links may be loaded as they like.
func TestPresto2CongestionOblivious(t *testing.T) {
	paths := func(metric uint8, queue uint32) (out []uint8) {
		s, v := newPrestoSource(t, 3, nil), newView(firstPaths(4))
		v.Local[1], v.Queue[1] = metric, queue
		for i := range 3000 {
			out = append(out, s.next(mono.Time(i)*1000, v, uint32(i%7)*0x9E3779B1, 1500).Path)
		}
		return out
	}
	if !slices.Equal(paths(0, 0), paths(7, 1<<20)) {
		t.Error("a loaded link changes paths")
	}
}

// cellArrival is a packet of a flowcell: its number, and flags in letters (T: the last
// one, R: not to wait).
func cellArrival(cell uint16, flags string) overlay.Fabric {
	f := overlay.Fabric{Capable: true, Shim: true, Scheme: prestoID, Arg: overlay.Tstamp(cell)}
	for _, c := range flags {
		f.Tail = f.Tail || c == 'T'
		f.Rerouted = f.Rerouted || c == 'R'
	}
	return f
}

// far is a destination of Presto and what it holds.
type far struct {
	t     testing.TB
	r     *prestoReceiver
	holds *reorder.Holds[string]
	now   mono.Time
	sent  []string
}

func newFar(t testing.TB, change func(*PrestoParams)) *far {
	t.Helper()
	p := prestoParams(change)
	if err := p.Validate(); err != nil {
		t.Fatal(err)
	}
	r, err := newPrestoReceiver(&Options{Section: p})
	if err != nil {
		t.Fatal(err)
	}
	queues, perQueue, packets := r.Queues()
	return &far{t: t, r: r, holds: reorder.NewHolds[string](queues, packets, perQueue), now: mono.Time(time.Hour)}
}

// get has a packet of a flow come, and returns what is sent on in consequence.
func (d *far) get(hash uint32, name string, f overlay.Fabric) []string {
	d.t.Helper()
	d.sent = nil
	pkts := []reorder.Arrival{{Hash: hash, Len: 1500, Leaf: 1, Fabric: f}}
	d.r.Receive(d.now, pkts)
	p := &pkts[0]
	drain := func() {
		for _, q := range append([]uint16{p.Drain}, p.Also...) {
			d.drain(int(q))
		}
	}
	if p.Verdict.DrainBefore() {
		drain()
	}
	if !p.Verdict.Held() {
		d.sent = append(d.sent, name)
	} else if !d.holds.Push(int(p.Hold), name) {
		d.t.Fatalf("queue %d has no room", p.Hold)
	}
	if p.Verdict.DrainAfter() {
		drain()
	}
	d.check()
	return d.sent
}

func (d *far) drain(q int) {
	d.t.Helper()
	if d.holds.Len(q) == 0 {
		d.t.Fatalf("queue %d is empty, and is to be sent on", q)
	}
	for s, ok := d.holds.Pop(q); ok; s, ok = d.holds.Pop(q) {
		d.sent = append(d.sent, s)
	}
}

// pass lets time pass, and returns what is sent on because of that.
func (d *far) pass(by time.Duration) []string {
	d.t.Helper()
	d.sent = nil
	until := d.now.Add(by)
	for d.r.Deadline() <= until {
		d.now = max(d.now, d.r.Deadline())
		before := len(d.sent)
		for q, ok := d.r.Expire(d.now); ok; q, ok = d.r.Expire(d.now) {
			d.drain(q)
		}
		if len(d.sent) == before {
			d.t.Fatal("nothing expires at the deadline")
		}
	}
	d.now = until
	d.check()
	return d.sent
}

// check holds counters to what is there.
func (d *far) check() {
	d.t.Helper()
	s, inUse := d.r.stats, 0
	queues, _, packets := d.r.Queues()
	for q := range queues {
		if d.holds.Len(q) > 0 {
			inUse++
		}
	}
	if s.WaitingDepth.N() != s.Held || s.CellsDepth.Sum < uint64(s.InUsePeak) {
		d.t.Fatalf("what was held when: %+v", s)
	}
	if s.Waiting != d.holds.Total() || s.InUse != inUse || s.WaitingPeak > packets || s.InUsePeak > queues ||
		(s.Waiting > 0) != (d.r.Deadline() != reorder.Never) {
		d.t.Fatalf("%d packets in %d queues are held, next deadline %d: %+v", d.holds.Total(), inUse, d.r.Deadline(), s)
	}
}

// want fails the test unless the packets were sent on, by their one-letter names.
func want(t testing.TB, got []string, names string) {
	t.Helper()
	s := ""
	for _, n := range got {
		s += n
	}
	if s != names {
		t.Errorf("sent on %q, want %q", s, names)
	}
}

// A flowcell that is early is kept until the one before is complete, so that whoever is
// behind it sees a flow in order (§3.2): however many come in between.
func TestPresto32OrderIsRestoredByFlowcell(t *testing.T) {
	d := newFar(t, nil)
	want(t, d.get(1, "a", cellArrival(0, "R")), "a")
	want(t, d.get(1, "f", cellArrival(2, "")), "")
	want(t, d.get(1, "d", cellArrival(1, "")), "")
	want(t, d.get(1, "b", cellArrival(0, "R")), "b")
	want(t, d.get(1, "g", cellArrival(2, "T")), "")
	want(t, d.get(1, "h", cellArrival(3, "")), "")
	want(t, d.get(1, "c", cellArrival(0, "RT")), "cd") // 1 is not complete
	want(t, d.get(2, "x", cellArrival(0, "R")), "x")   // of another flow
	want(t, d.get(1, "e", cellArrival(1, "T")), "efgh")
	want(t, d.get(1, "i", cellArrival(3, "")), "i")
	if s := d.r.stats; s.Held != 4 || s.Flushes+s.Late+s.Exhausted+s.NoFlow != 0 {
		t.Errorf("%+v", s)
	}
}

// A gap within a flowcell is a loss, as its packets took one path, and is passed on at
// once, so that the transport recovers as fast as ever (§3.2).
func TestPresto32LossInsideAFlowcellIsNotWaitedFor(t *testing.T) {
	d := newFar(t, nil)
	want(t, d.get(1, "a", cellArrival(0, "R")), "a")
	// b is lost.
	want(t, d.get(1, "c", cellArrival(0, "R")), "c")
	want(t, d.get(1, "d", cellArrival(0, "RT")), "d")
	want(t, d.get(1, "e", cellArrival(1, "")), "e")
	if s := d.r.stats; s.Held != 0 {
		t.Errorf("%+v", s)
	}
}

// A gap between two flowcells is a loss or reordering, which only time can tell (§3.2): a
// flowcell of which the last packets are lost holds up later ones until a timeout, and no
// longer.
//
// We differ: the paper's timeout adapts. It is a multiple, α, of a moving average of how
// long gaps lasted that were reordering and no loss, and is put off while packets of the
// flowcell still come (within 1/β of the average). Flush is fixed: it is for the
// flows of all hosts between two leaves, and what bounds it is how much longer a full
// queue takes than an empty one. It counts from the first packet of the flowcell that is
// held, so that no packet is held for longer, however much is missing before it.
func TestPresto32Timeout(t *testing.T) {
	d := newFar(t, nil)
	flush := time.Duration(d.r.flush)
	want(t, d.get(1, "a", cellArrival(0, "R")), "a")
	// The rest of 0 is lost, and so is the end of 1.
	want(t, d.get(1, "c", cellArrival(2, "")), "")
	want(t, d.pass(flush/2), "")
	want(t, d.get(1, "b", cellArrival(1, "")), "")
	want(t, d.get(1, "e", cellArrival(3, "")), "")
	want(t, d.get(1, "d", cellArrival(2, "T")), "")
	want(t, d.pass(flush/2-1), "")
	want(t, d.pass(1), "bcde")
	want(t, d.get(1, "f", cellArrival(3, "T")), "f")
	want(t, d.get(1, "g", cellArrival(4, "")), "g")
	want(t, d.get(1, "x", cellArrival(0, "RT")), "x") // came after all
	if s := d.r.stats; s.Flushes != 1 || s.Late != 1 || s.InUse != 0 || s.Waiting != 0 {
		t.Errorf("%+v", s)
	}
}
