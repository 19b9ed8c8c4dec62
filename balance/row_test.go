package balance

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/loomfabric/loom/congestion"
	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/overlay"
)

// randomPaths returns paths over some uplinks, with weights or not, and now and then with
// vacant places.
func randomPaths(rng *rand.Rand) Paths {
	n := 2 + rng.IntN(MaxPaths-2)
	uplinks := make([]uint8, n)
	for i, u := range rng.Perm(MaxPaths)[:n] {
		uplinks[i] = uint8(u)
	}
	slices.Sort(uplinks)
	var weights []uint16
	if rng.IntN(2) == 0 {
		for range uplinks {
			weights = append(weights, uint16(1+rng.IntN(9)))
		}
	}
	p := MakeWeightedPaths(uplinks, weights)
	if gone := uint16(rng.Uint32()) & (1<<n - 1); n > 4 && n-popcount(gone) >= 2 && rng.IntN(3) == 0 {
		p = p.Without(gone)
	}
	return p
}

func popcount(bits uint16) (n int) {
	for ; bits != 0; bits &= bits - 1 {
		n++
	}
	return n
}

// TestRowsAreTheScheme: a table that is made anew before each packet is the scheme itself,
// path by path and draw by draw, whatever paths, weights and metrics there are.
func TestRowsAreTheScheme(t *testing.T) {
	for _, name := range []string{"letflow", "local", "conga", "conga-flow"} {
		t.Run(name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(1, 2))
			chosen := map[uint8]int{}
			for range 30 {
				v := newView(randomPaths(rng), randomPaths(rng))
				v.Remote = congestion.NewToLeaf(2, &congestion.Params{Q: 3, Ageing: 10 * time.Millisecond})
				o := Options{Seed: rng.Uint64(), Leaves: 2}
				policy, err := New(name, o)
				if err != nil {
					t.Fatal(err)
				}
				other, err := New(name, o)
				if err != nil {
					t.Fatal(err)
				}
				table, ok := Table(other, &o, time.Hour)
				if !ok {
					t.Fatal("no table stands for it")
				}
				now := mono.Time(time.Hour)
				for range 300 {
					now += mono.Time(rng.IntN(int(time.Millisecond)))
					for u := range MaxPaths {
						v.Local[u] = uint8(rng.IntN(3))
						v.Remote.Update(uint16(rng.IntN(2)), uint8(u), uint8(rng.IntN(4)), now)
					}
					p := []Packet{{Hash: uint32(rng.IntN(40)) * 0x9e3779b1, Leaf: uint16(rng.IntN(2)), Len: 1000}}
					q := slices.Clone(p)
					policy.Choose(now, v, p)
					if timed, ok := table.(Timed); ok {
						timed.Tick(now, v, nil)
					}
					table.Choose(now, v, q)
					if q[0].Path != p[0].Path {
						t.Fatalf("flow %#x to leaf %d: the table has path %d, the scheme %d", p[0].Hash, p[0].Leaf, q[0].Path, p[0].Path)
					}
					chosen[p[0].Path]++
				}
				if a, b := policy.Stats(), table.Stats(); a != b {
					t.Errorf("counted %+v, the scheme %+v", b, a)
				}
			}
			if len(chosen) < 8 {
				t.Errorf("only paths %v were taken", chosen)
			}
		})
	}
}

// TestRowOfFlows: ecmp's rows give each flow the path that ecmp gives it.
func TestRowOfFlows(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 100 {
		v := newView(randomPaths(rng))
		policy := mustNew(t, "ecmp", rng.Uint64())
		var r Row
		policy.(Tabular).Row(0, v, 0, &r)
		if r.Drawn || r.Keep != 0 {
			t.Fatalf("ecmp draws: %+v", r)
		}
		pkts := vector(0, rng.IntN(1<<20), 64)
		policy.Choose(0, v, pkts)
		for i := range pkts {
			if got := r.Of(Remix(uint64(pkts[i].Hash) ^ r.Seed)); got != pkts[i].Path {
				t.Fatalf("flow %#x by %d, ecmp has %d; paths %+v", pkts[i].Hash, got, pkts[i].Path, v.Paths[0])
			}
		}
	}
}

// TestTableOfRow: what Table says gives each number the path that Of gives it.
func TestTableOfRow(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for range 300 {
		paths := randomPaths(rng)
		var r Row
		if r.all(&paths); rng.IntN(3) == 0 {
			r.some(&paths, paths.uplinks()&uint16(rng.Uint32())|1<<paths.Uplink[0])
		}
		table := r.Table()
		for range 50 {
			number := rng.Uint32()
			place := table.Shares.Of(number, uint32(table.N))
			if table.Vacant>>place&1 != 0 {
				continue // Places.Of, which has tests of its own
			}
			if got, want := table.Choice[place], r.Of(number); got != want {
				t.Fatalf("number %#x: the table has path %d, Of %d\nrow %+v\ntable %+v", number, got, want, r, table)
			}
		}
	}
}

// uplinks returns the uplinks that paths start on, as bits.
func (p *Paths) uplinks() (bits uint16) {
	for _, u := range p.Uplink[:p.N] {
		bits |= 1 << u
	}
	return bits
}

// TestOldRows: between two ticks flowlets begin by what links were at the first one, and
// a row whose path has gone is made anew at once.
func TestOldRows(t *testing.T) {
	o := Options{Seed: 1, Leaves: 1}
	policy, err := New("local", o)
	if err != nil {
		t.Fatal(err)
	}
	p, _ := Table(policy, &o, 100*time.Microsecond)
	table := p.(Timed)
	v := newView(firstPaths(2))
	v.Local[0] = 5
	choose := func(now mono.Time, flow uint32) uint8 {
		pkts := []Packet{{Hash: flow}}
		table.Choose(now, v, pkts)
		return v.Paths[0].Uplink[pkts[0].Path]
	}
	tick := func(now mono.Time) {
		t.Helper()
		if at := table.Deadline(); at != now {
			t.Fatalf("rows are due at %d, want %d", at, now)
		}
		table.Tick(now, v, []overlay.Message(nil))
	}
	tick(0)
	*v.Local = [MaxPaths]uint8{0, 5}
	if u := choose(50_000, 1); u != 1 {
		t.Errorf("uplink %d, want the one that was the least loaded at the tick", u)
	}
	tick(100_000)
	if u := choose(100_000, 2); u != 0 {
		t.Errorf("uplink %d, want the one that is the least loaded since the tick", u)
	}
	if u := choose(100_001, 1); u != 1 {
		t.Errorf("uplink %d: a flowlet moved", u)
	}
	v.Paths[0] = MakePaths(1)
	tick(200_000)
	v.Paths[0] = MakePaths()
	choose(200_001, 3) // no path, no panic
	v.Paths[0] = firstPaths(2)
	tick(300_000)
	v.Paths[0] = MakePaths(0)
	*v.Local = [MaxPaths]uint8{5, 0} // the row of 300 µs has uplink 0 alone: still there
	if u := choose(300_001, 4); u != 0 {
		t.Errorf("uplink %d, want the only one", u)
	}
}

// TestNoTable: schemes that decide about each packet, or by messages, have no table.
func TestNoTable(t *testing.T) {
	for _, name := range []string{"conweave", "drill", "reed", "presto", "tcp-path"} {
		o := Options{Leaves: 1}
		if _, ok := Table(mustNew(t, name, 1), &o, time.Millisecond); ok {
			t.Errorf("a table stands for %s", name)
		}
	}
}
