package traffic

import (
	"math"
	"strings"
	"testing"

	"github.com/loomfabric/loom/internal/workload"
	"github.com/loomfabric/loom/sim/engine"
)

func base() PoissonConfig {
	return PoissonConfig{Stream: Stream{Seed: 7, Number: 1}, Pairs: anyPair(16), Sizes: must(workload.Builtin("web-search")), Rate: 1e5, Flows: 500}
}

func record(t *testing.T, c PoissonConfig) []Flow {
	t.Helper()
	p, err := NewPoisson(c)
	if err != nil {
		t.Fatal(err)
	}
	return collect(p)
}

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
	first := record(t, base())
	if !equal(first, record(t, base()), whole) {
		t.Error("the same seed gave different flows")
	}
	c := base()
	c.Sizes = fixed(1000)
	if got := record(t, c); !equal(first, got, starts) || !equal(first, got, pairs) || equal(first, got, sizes) {
		t.Error("other sizes changed arrivals or pairs")
	}
	c = base()
	c.Pairs = crossing(racksOf(4, 4))
	if got := record(t, c); !equal(first, got, starts) || !equal(first, got, sizes) || equal(first, got, pairs) {
		t.Error("other pairs changed arrivals or sizes")
	}
	c = base()
	c.Rate = 2e5
	if got := record(t, c); !equal(first, got, pairs) || !equal(first, got, sizes) || equal(first, got, starts) {
		t.Error("another rate changed pairs or sizes")
	}
	c = base()
	c.Conns, c.Hosts = 3, 16
	if got := record(t, c); !equal(first, got, starts) || !equal(first, got, sizes) || !equal(first, got, pairs) {
		t.Error("persistent connections changed the flows")
	}
	for _, s := range []Stream{{Seed: 8, Number: 1}, {Seed: 7, Number: 2}} {
		c = base()
		c.Stream = s
		got := record(t, c)
		for name, by := range map[string]func(Flow) any{"starts": starts, "sizes": sizes, "pairs": pairs, "keys": func(f Flow) any { return f.Key }} {
			if equal(first, got, by) {
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
	c.Pairs, c.Conns, c.Hosts, c.Flows = anyPair(4), 3, 4, 36_000
	p := must(NewPoisson(c))
	type owner struct {
		Pair
		key uint64
	}
	owners := make(map[int]owner)
	used := make(map[int]int)
	for _, f := range collect(p) {
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
	c.Flows, c.From, c.Until = 0, engine.Second, engine.Second+10*engine.Millisecond
	p := must(NewPoisson(c))
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
	if got := record(t, c); len(got) != 9 {
		t.Errorf("%d flows start before the tenth", len(got))
	}
	c = base()
	c.Rate = 1e-9 // the first flow comes after the end of time
	if f, ok := must(NewPoisson(c)).Next(); ok {
		t.Errorf("a flow at %v", f.Start)
	}
}

func TestPoissonRefused(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*PoissonConfig)
		want   string
	}{
		{"pairs", func(c *PoissonConfig) { c.Pairs = nil }, "no pairs of hosts"},
		{"one host", func(c *PoissonConfig) { c.Pairs = anyPair(1) }, "list of pairs is empty"},
		{"no list", func(c *PoissonConfig) { c.Pairs = List{} }, "list of pairs is empty"},
		{"to itself", func(c *PoissonConfig) { c.Pairs = List{{1, 2}, {3, 3}} }, "host 3 sends to itself"},
		{"sizes", func(c *PoissonConfig) { c.Sizes = nil }, "needs sizes"},
		{"rate", func(c *PoissonConfig) { c.Rate = 0 }, "rate of 0"},
		{"endless", func(c *PoissonConfig) { c.Flows = 0 }, "never ends"},
		{"time", func(c *PoissonConfig) { c.From = -1 }, "not negative"},
		{"connections", func(c *PoissonConfig) { c.Conns = 2 }, "between each two of 0 hosts"},
	} {
		k := base()
		c.change(&k)
		if _, err := NewPoisson(k); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", c.name, err, c.want)
		}
	}
}

func TestNextDoesNotAllocate(t *testing.T) {
	c := base()
	c.Conns, c.Hosts, c.Flows = 2, 16, 1<<30
	m := NewMerge(must(NewPoisson(c)), must(NewPoisson(base())))
	if n := testing.AllocsPerRun(1000, func() { m.Next() }); n != 0 {
		t.Errorf("%g allocations a flow", n)
	}
}
