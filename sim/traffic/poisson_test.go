package traffic

import (
	"math"
	"testing"

	"github.com/loomfabric/loom/internal/workload"
	"github.com/loomfabric/loom/sim/engine"
)

func base() PoissonConfig {
	return PoissonConfig{Stream: Stream{Seed: 7, Number: 1}, Pairs: anyPair(16), Sizes: must(workload.Builtin("web-search")), Rate: 1e5, Until: engine.Never}
}

// first returns the first 500 flows of a workload.
func first(c PoissonConfig) *limited { return &limited{NewPoisson(c), 500} }

func equal(a, b []Flow, by func(f Flow) any) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if by(a[i]) != by(b[i]) {
			return false
		}
	}
	return true
}

// TestStreamsAreIndependent: the same seed gives the same flows, and a change
// of one ingredient leaves the others' sequences alone.
func TestStreamsAreIndependent(t *testing.T) {
	whole := func(f Flow) any { return f }
	starts := func(f Flow) any { return f.Start }
	sizes := func(f Flow) any { return f.Bytes }
	pairs := func(f Flow) any { return Pair{f.Src, f.Dst} }
	want := collect(first(base()))
	if !equal(want, collect(first(base())), whole) {
		t.Error("the same seed gave different flows")
	}
	c := base()
	c.Sizes = fixed(1000)
	if got := collect(first(c)); !equal(want, got, starts) || !equal(want, got, pairs) || equal(want, got, sizes) {
		t.Error("other sizes changed arrivals or pairs")
	}
	c = base()
	c.Pairs = crossing(racksOf(4, 4))
	if got := collect(first(c)); !equal(want, got, starts) || !equal(want, got, sizes) || equal(want, got, pairs) {
		t.Error("other pairs changed arrivals or sizes")
	}
	c = base()
	c.Rate = 2e5
	if got := collect(first(c)); !equal(want, got, pairs) || !equal(want, got, sizes) || equal(want, got, starts) {
		t.Error("another rate changed pairs or sizes")
	}
	c = base()
	c.Conns = 3
	if got := collect(first(c)); !equal(want, got, starts) || !equal(want, got, sizes) || !equal(want, got, pairs) {
		t.Error("persistent connections changed the flows")
	}
	for _, s := range []Stream{{Seed: 8, Number: 1}, {Seed: 7, Number: 2}} {
		c = base()
		c.Stream = s
		got := collect(first(c))
		for name, by := range map[string]func(Flow) any{"starts": starts, "sizes": sizes, "pairs": pairs, "keys": func(f Flow) any { return f.Key }} {
			if equal(want, got, by) {
				t.Errorf("stream %+v has the same %s as %+v", s, name, base().Stream)
			}
		}
	}
}

// TestGeneratorsDiffer: no two generators of neighbouring streams are one.
func TestGeneratorsDiffer(t *testing.T) {
	seen := make(map[uint64]bool)
	for seed := range uint64(4) {
		for number := range uint64(4) {
			for purpose := range uint64(forKeys) {
				v := Stream{seed, number}.rand(purpose).Uint64()
				if seen[v] {
					t.Errorf("seed %d, stream %d, purpose %d begins like another", seed, number, purpose)
				}
				seen[v] = true
			}
		}
	}
}

// TestPersistentConnections: CONGA §5.2: "The clients initiate 3 long-lived TCP
// connections to each server". Each belongs to one pair, keeps its key, and is
// used as often as the others.
func TestPersistentConnections(t *testing.T) {
	c := base()
	c.Pairs, c.Conns = anyPair(4), 3
	p := NewPoisson(c)
	type owner struct {
		Pair
		key uint64
	}
	owners := make(map[int]owner)
	used := make(map[int]int)
	for _, f := range collect(&limited{p, 36_000}) {
		if f.Conn < 0 || f.Conn >= p.Conns() {
			t.Fatalf("connection %d is outside 0..%d", f.Conn, p.Conns())
		}
		o := owner{Pair{f.Src, f.Dst}, f.Key}
		if was, ok := owners[f.Conn]; ok && was != o {
			t.Fatalf("connection %d belongs to %+v and %+v", f.Conn, was, o)
		}
		owners[f.Conn] = o
		used[f.Conn]++
	}
	if len(owners) != 4*3*3 {
		t.Errorf("%d connections, want 3 for each of 12 pairs", len(owners))
	}
	for conn, n := range used {
		if math.Abs(float64(n)-1000) > 5*math.Sqrt(1000) {
			t.Errorf("connection %d was used %d times, want about 1000", conn, n)
		}
	}
}

// TestPoissonEnds: no flow starts outside the time asked for, and the end stays
// an end.
func TestPoissonEnds(t *testing.T) {
	c := base()
	c.From, c.Until = engine.Second, engine.Second+10*engine.Millisecond
	p := NewPoisson(c)
	flows := collect(p)
	if n := float64(len(flows)); math.Abs(n-1000) > 5*math.Sqrt(1000) {
		t.Errorf("%g flows in 10 ms, want about 1000", n)
	}
	for i, f := range flows {
		if f.Start < c.From || f.Start >= c.Until || f.Start%engine.Nanosecond != 0 || int(f.ID) != i {
			t.Fatalf("flow %d: %+v", i, f)
		}
	}
	if _, ok := p.Next(); ok {
		t.Error("a flow after the end")
	}
	c.Until = flows[9].Start
	if got := collect(first(c)); len(got) != 9 {
		t.Errorf("%d flows start before the tenth", len(got))
	}
	c = base()
	c.Rate = 1e-9 // the first flow comes after the end of time
	if f, ok := NewPoisson(c).Next(); ok {
		t.Errorf("a flow at %v", f.Start)
	}
}

func TestNextDoesNotAllocate(t *testing.T) {
	c := base()
	c.Conns = 2
	m := NewMerge(NewPoisson(c), NewPoisson(base()))
	if n := testing.AllocsPerRun(1000, func() { m.Next() }); n != 0 {
		t.Errorf("%g allocations a flow", n)
	}
}
