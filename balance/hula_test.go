package balance

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/overlay"
	"github.com/loomfabric/loom/reorder"
)

const (
	hulaProbe = 200 * mono.Time(time.Microsecond)
	hulaLife  = 5 * hulaProbe
)

// newTestHULA returns a worker's policy of a leaf that knows some leaves.
func newTestHULA(t testing.TB, worker, leaves int) *hula {
	t.Helper()
	p, err := New("hula", Options{Seed: 1, Worker: worker, Leaves: leaves})
	if err != nil {
		t.Fatal(err)
	}
	return p.(*hula)
}

// hulaNet is leaves under hula with two or more paths between them, whose utilisation a
// test sets. Messages arrive at once, over paths that are not down.
type hulaNet struct {
	now    mono.Time
	leaves []*hula
	views  []*View
	util   [][][MaxPaths]uint8 // from, to, uplink
	down   [][][MaxPaths]bool  // likewise: what is sent there is lost
	probes int                 // that were sent
	out    []overlay.Message
}

func newHULANet(t testing.TB, leaves, paths int) *hulaNet {
	n := &hulaNet{}
	for i := range leaves {
		n.leaves = append(n.leaves, newTestHULA(t, 0, leaves))
		v := newView()
		for j := range leaves {
			if i == j {
				v.Paths = append(v.Paths, MakePaths())
			} else {
				v.Paths = append(v.Paths, firstPaths(paths))
			}
		}
		n.views = append(n.views, v)
		n.util = append(n.util, make([][MaxPaths]uint8, leaves))
		n.down = append(n.down, make([][MaxPaths]bool, leaves))
	}
	return n
}

// run lets time pass in small steps, with all messages that leaves say.
func (n *hulaNet) run(until mono.Time) {
	for ; n.now < until; n.now += 1000 {
		for busy := true; busy; {
			busy = false
			for i, h := range n.leaves {
				if h.Deadline() > n.now {
					continue
				}
				busy = true
				n.out = h.Tick(n.now, n.views[i], n.out[:0])
				for _, m := range n.out {
					n.carry(i, m)
				}
			}
		}
	}
}

// carry brings a message of leaf i to its leaf.
func (n *hulaNet) carry(i int, m overlay.Message) {
	to, uplink := int(m.Leaf), m.Fabric.Path.Uplink()
	if m.Fabric.Opcode == overlay.OpExplore {
		n.probes++
		if n.down[i][to][uplink] {
			return
		}
		m.Fabric.CE = n.util[i][to][uplink]
	}
	m.Leaf = uint16(i)
	n.leaves[to].Handle(n.now, n.views[to], &m)
}

// paths returns which uplinks new flows of leaf 0 to leaf 1 take.
func (n *hulaNet) paths(rng *rand.Rand) (used []uint8) {
	pkts := flows(64, rng)
	for i := range pkts {
		pkts[i].Leaf = 1
	}
	n.leaves[0].Choose(n.now, n.views[0], pkts)
	for i := range pkts {
		used = append(used, pkts[i].Path)
	}
	slices.Sort(used)
	return slices.Compact(used)
}

// naiveHULA is the paper's rule over a list of all answers.
type naiveHULA struct {
	best, util int
	at         mono.Time
	known      bool
}

func (n *naiveHULA) answer(now mono.Time, uplink, util int) {
	fresh := n.known && max(now-n.at, n.at-now) <= hulaLife
	if !fresh || uplink == n.best || util < n.util {
		n.best, n.util, n.at, n.known = uplink, util, now, true
	}
}

func TestHULAEqualsModel(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 100 {
		const leaves = 3 // no rounds take place
		h, naive := newTestHULA(t, 0, leaves), [leaves]naiveHULA{}
		v := newView(firstPaths(4), firstPaths(1), firstPaths(16))
		now := mono.Time(rng.Int64N(1 << 50))
		for step := range 500 {
			now += mono.Time(rng.Int64N(int64(hulaProbe / 4)))
			if rng.IntN(50) == 0 {
				now += hulaLife + 1
			}
			leaf := rng.IntN(leaves)
			paths := &v.Paths[leaf]
			if rng.IntN(2) == 0 {
				uplink, util := rng.IntN(int(paths.N)), rng.IntN(8)
				m := overlay.Message{Leaf: uint16(leaf), Link: overlay.AnyLink, Fabric: overlay.Fabric{
					Opcode: overlay.OpExtension, Path: overlay.MakePathID(uint8(uplink), 0), Shim: true, Arg: overlay.Tstamp(util),
				}}
				if !h.Handle(now, v, &m) {
					t.Fatalf("step %d: an answer is unknown", step)
				}
				naive[leaf].answer(now, uplink, util)
				continue
			}
			pkts := []Packet{{Hash: rng.Uint32(), Leaf: uint16(leaf)}}
			hashed := h.share(paths, pkts[0].Hash)
			if _, active := h.table.Lookup(pkts[0].Hash, now); active {
				continue // a flow that shares another's entry
			}
			h.Choose(now, v, pkts)
			n := &naive[leaf]
			want := hashed
			if n.known && max(now-n.at, n.at-now) <= hulaLife {
				want = uint8(n.best)
			}
			if pkts[0].Path != want {
				t.Fatalf("step %d: a new flowlet took path %d, the model says %d (%+v)", step, pkts[0].Path, want, n)
			}
		}
	}
}

// Answers and probes that make no sense change nothing.
func TestHULARefusesTheImpossible(t *testing.T) {
	good := overlay.Message{Leaf: 1, Link: overlay.AnyLink, Fabric: overlay.Fabric{
		Opcode: overlay.OpExtension, Path: overlay.MakePathID(1, 0), Shim: true, Arg: 2,
	}}
	for _, tt := range []struct {
		name   string
		change func(m *overlay.Message)
		known  bool
	}{
		{"good", func(*overlay.Message) {}, true},
		{"unknown leaf", func(m *overlay.Message) { m.Leaf = 2 }, false},
		{"unknown uplink", func(m *overlay.Message) { m.Fabric.Path = overlay.MakePathID(2, 0) }, false},
		{"impossible metric", func(m *overlay.Message) { m.Fabric.Arg = 8 }, false},
		{"no shim", func(m *overlay.Message) { m.Fabric.Shim = false }, false},
		{"another opcode", func(m *overlay.Message) { m.Fabric.Opcode = overlay.OpClear }, false},
		{"of a neighbour", func(m *overlay.Message) { m.Link = 1 }, false},
	} {
		h, v := newTestHULA(t, 0, 2), newView(firstPaths(2), firstPaths(2))
		m := good
		tt.change(&m)
		if got := h.Handle(0, v, &m); got != tt.known {
			t.Errorf("%s: known %v", tt.name, got)
		}
		if _, ok := h.best(0, &v.Paths[1], 1); ok != tt.known {
			t.Errorf("%s: a best path is known: %v", tt.name, ok)
		}
	}
}

// The first worker of a leaf probes and answers, and all of them learn.
func TestHULAWorkers(t *testing.T) {
	v := newView(firstPaths(2), firstPaths(2))
	probe := overlay.Message{Leaf: 1, Link: overlay.AnyLink, Fabric: overlay.Fabric{Opcode: overlay.OpExplore, Path: 0x10, CE: 3}}
	answer := overlay.Message{Leaf: 1, Link: overlay.AnyLink, Fabric: overlay.Fabric{Opcode: overlay.OpExtension, Path: 0x10, Shim: true, Arg: 3}}
	for worker := range 2 {
		h := newTestHULA(t, worker, 2)
		first := worker == 0
		if h.Handle(0, v, &probe) != first || h.Handle(0, v, &answer) != first {
			t.Errorf("worker %d: counts messages wrongly", worker)
		}
		if u, ok := h.best(0, &v.Paths[1], 1); !ok || u != 1 {
			t.Errorf("worker %d: best path %d, %v", worker, u, ok)
		}
		out := h.Tick(0, v, nil)
		if want := []int{1 + 2, 0}[worker]; len(out) != want {
			t.Errorf("worker %d says %d messages, want %d", worker, len(out), want)
		}
		if first && (out[0].Leaf != 1 || out[0].Fabric.Opcode != overlay.OpExtension || out[0].Fabric.Path != 0x10 || out[0].Fabric.Arg != 3 || !out[0].Fabric.Shim) {
			t.Errorf("answered %+v", out[0])
		}
		if h.Deadline() <= 0 {
			t.Errorf("worker %d wants to act again at once", worker)
		}
	}
}

// Probes of one leaf at a time: a round is spread over the interval, takes longer if
// there are too many paths, and one that is late does not make up for the time. Leaves
// that do not read the fabric's fields get none. A flood of probes is not all answered.
func TestHULARounds(t *testing.T) {
	const leaves = 100
	h, v := newTestHULA(t, 0, leaves), newView()
	for range leaves {
		v.Paths = append(v.Paths, firstPaths(16))
	}
	v.Capable = overlay.NewCapability(leaves)
	var out []overlay.Message
	sent := func(from, to mono.Time) (n int) {
		for now := from; now < to; now += 500 {
			for h.Deadline() <= now {
				out = h.Tick(now, v, out[:0])
				if n += len(out); len(out) > hulaSaid {
					t.Fatalf("%d messages at once", len(out))
				}
			}
		}
		return n
	}
	if n := sent(0, hulaProbe); n != 0 {
		t.Errorf("%d probes to leaves that read nothing", n)
	}
	for i := range uint16(leaves) {
		v.Capable.Confirm(i, hulaProbe)
	}
	if n := sent(hulaProbe, 11*hulaProbe); n != 10*leaves*16 {
		t.Errorf("%d probes in ten rounds, want %d", n, 10*leaves*16)
	}
	if n := sent(11*hulaProbe, 11*hulaProbe+hulaProbe/4); n < leaves*16/5 || n > leaves*16*3/10 {
		t.Errorf("%d probes in a quarter of a round, want some %d", n, leaves*16/4)
	}
	h.params.Spacing = time.Microsecond // 1.6 ms for a round
	sent(12*hulaProbe, 13*hulaProbe)
	if n := sent(13*hulaProbe, 29*hulaProbe); n < leaves*16*19/10 || n > leaves*16*21/10 {
		t.Errorf("%d probes in 3.2 ms, want two rounds of %d", n, leaves*16)
	}
	for i := range 1000 {
		m := overlay.Message{Leaf: uint16(i % leaves), Link: overlay.AnyLink, Fabric: overlay.Fabric{Opcode: overlay.OpExplore}}
		h.Handle(29*hulaProbe, v, &m)
	}
	if h.stats.Unanswered != 1000-hulaAnswers {
		t.Errorf("%d of 1000 probes at once are not to be answered", h.stats.Unanswered)
	}
}

// Paths may come and go in the middle of a round.
func TestHULARoundsEnd(t *testing.T) {
	h, v := newTestHULA(t, 0, 8), newView()
	rng := rand.New(rand.NewPCG(4, 4))
	for range 8 {
		v.Paths = append(v.Paths, firstPaths(2))
	}
	var out []overlay.Message
	for now := mono.Time(0); now < 100*hulaProbe; now += 10_000 {
		v.Paths[rng.IntN(8)] = firstPaths(2 * rng.IntN(2))
		for ticks := 0; h.Deadline() <= now; ticks++ {
			if out = h.Tick(now, v, out[:0]); ticks > 10 {
				t.Fatal("a tick asks for the next one for ever")
			}
		}
	}
	if rounds := h.round.number; rounds < 90 || rounds > 101 {
		t.Errorf("%d rounds in 100 periods", rounds)
	}
}

// Decisions are those of a vector: nothing is allocated, however many there are.
func TestHULADoesNotAllocate(t *testing.T) {
	n := newHULANet(t, 4, 4)
	rng := rand.New(rand.NewPCG(1, 1))
	pkts := flows(64, rng)
	n.run(2 * hulaProbe)
	if got := testing.AllocsPerRun(20, func() {
		n.run(n.now + hulaProbe)
		for i := range pkts {
			pkts[i].Hash, pkts[i].Leaf = rng.Uint32(), uint16(i%4)
		}
		n.leaves[0].Choose(n.now, n.views[0], pkts)
	}); got != 0 {
		t.Errorf("%v allocations", got)
	}
}

// An explanation says what Choose does next.
func TestHULAExplains(t *testing.T) {
	n := newHULANet(t, 2, 4)
	n.util[0][1] = [MaxPaths]uint8{5, 6, 1, 7}
	ask := func(hash uint32, path int, reason string) {
		t.Helper()
		p := Packet{Hash: hash, Leaf: 1}
		x := Explain(n.leaves[0], n.now, n.views[0], &p)
		pkts := []Packet{p}
		n.leaves[0].Choose(n.now, n.views[0], pkts)
		if x.Path != int(pkts[0].Path) || path >= 0 && x.Path != path || x.Reason != reason {
			t.Errorf("explained path %d, %q; it took %d", x.Path, x.Reason, pkts[0].Path)
		}
	}
	ask(1, -1, "it has had no flowlet yet, and no path to the leaf has answered probes of late, so its hash decides")
	n.run(2 * hulaProbe)
	ask(1<<20, 2, "it has had no flowlet yet, and of the paths that answer probes this one was the least used")
	ask(1<<20, 2, "its flowlet is under way there")
	n.down[0][1][2] = true
	// The flow goes on, as a pause would end its flowlet.
	for n.now < 4*hulaLife {
		n.leaves[0].Choose(n.now, n.views[0], []Packet{{Hash: 2 << 20, Leaf: 1}})
		if u, _ := n.leaves[0].table.Lookup(2<<20, n.now); n.now < hulaLife && u != 2 {
			t.Fatalf("the flow is on uplink %d", u)
		}
		n.run(n.now + hulaProbe)
	}
	if u, _ := n.leaves[0].table.Lookup(2<<20, n.now); u != 0 {
		t.Errorf("the flow on a silent path is on uplink %d, want the best one of the others", u)
	}
}

// A leaf that answers nothing at all has no silent paths, and its flowlets go by hash as
// ecmp's do: its scheme may be another one.
func TestHULABesideOthers(t *testing.T) {
	n := newHULANet(t, 2, 4)
	n.run(2 * hulaProbe)
	for u := range n.down[0][1] {
		n.down[0][1][u] = true
	}
	n.run(n.now + 3*hulaLife)
	h := n.leaves[0]
	if h.leaves[1].silent != 0 || h.stats.Silent > 4 {
		t.Errorf("silent paths %b", h.leaves[1].silent)
	}
	rng := rand.New(rand.NewPCG(3, 3))
	if used := n.paths(rng); len(used) != 4 || h.stats.Hashed == 0 {
		t.Errorf("flows took paths %v", used)
	}
	v := newView(firstPaths(4))
	e, g := mustNew(t, "ecmp", 1), newTestHULA(t, 0, 0) // knows no leaf at all
	pkts := flows(64, rng)
	again := slices.Clone(pkts)
	e.Choose(0, v, pkts)
	g.Choose(0, v, again)
	for i := range pkts {
		if pkts[i].Path != again[i].Path {
			t.Fatalf("flow %d takes path %d by hash, and %d under ecmp", i, again[i].Path, pkts[i].Path)
		}
	}
	if g.Deadline() != reorder.Never {
		t.Error("a leaf without others wants to act")
	}
}
