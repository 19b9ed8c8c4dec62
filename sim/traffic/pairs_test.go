package traffic

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/loomfabric/loom/internal/workload"
	"github.com/loomfabric/loom/sim/network"
)

// must returns v, which could be made.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// racksOf returns the racks of hosts that fill racks of so many in turn.
func racksOf(racks, each int) []int {
	rack := make([]int, racks*each)
	for h := range rack {
		rack[h] = h / each
	}
	return rack
}

// TestPickFollowsEach: pairs are drawn as often as Each says, and no others.
func TestPickFollowsEach(t *testing.T) {
	uneven := []int{0, 2, 1, 1, 0, 2, 1, 1, 3}
	for _, c := range []struct {
		name  string
		pairs Pairs
	}{
		{"any", AnyPair{7}},
		{"two hosts", AnyPair{2}},
		{"other rack", must(OtherRack(uneven))},
		{"CONGA's two racks", must(RackToRack(racksOf(2, 4), []int{1, 0}))},
		{"a ring of racks, one without clients", must(RackToRack(uneven, []int{1, 2, -1, 0}))},
		{"stride", must(Stride(6, 2))},
		{"negative stride", must(Stride(6, -7))},
		{"permutation", must(Permutation(9, Stream{Seed: 4}))},
		{"hot spot", HotSpot{8, []network.HostID{3}, 0.5}},
		{"two hot spots", HotSpot{5, []network.HostID{0, 4}, 0.8}},
	} {
		t.Run(c.name, func(t *testing.T) {
			want := make(map[Pair]float64)
			total := 0.0
			c.pairs.Each(func(p Pair, share float64) {
				want[p] += share
				total += share
			})
			if math.Abs(total-1) > 1e-9 {
				t.Errorf("shares add up to %g", total)
			}
			const n = 200_000
			got := make(map[Pair]int)
			r := workload.NewRand(1, 2)
			for range n {
				p := c.pairs.Pick(r)
				if p.Src == p.Dst {
					t.Fatalf("host %d sends to itself", p.Src)
				}
				got[p]++
			}
			for p, k := range got {
				if want[p] == 0 {
					t.Errorf("%v was drawn %d times, and cannot be", p, k)
				}
			}
			for p, share := range want {
				if dev := math.Abs(float64(got[p]) - n*share); dev > 5*math.Sqrt(n*share*(1-share))+1e-6 {
					t.Errorf("%v was drawn %d times, want %.0f", p, got[p], n*share)
				}
			}
		})
	}
}

// TestCrossing: CONGA §5.2: "we configure the clients under Leaf 0 to only use
// the servers under Leaf 1 and vice-versa, thereby ensuring that all traffic
// traverses the Spine".
func TestCrossing(t *testing.T) {
	rack := racksOf(2, 32)
	c := must(RackToRack(rack, []int{1, 0}))
	r := workload.NewRand(9, 9)
	dir := [2]int{}
	for range 10_000 {
		p := c.Pick(r)
		if rack[p.Src] == rack[p.Dst] {
			t.Fatalf("%v stays in rack %d", p, rack[p.Src])
		}
		dir[rack[p.Src]]++
	}
	if math.Abs(float64(dir[0]-dir[1])) > 500 {
		t.Errorf("flows from the racks: %v", dir)
	}
}

// TestPermutation: each host sends to one, receives from one, and never from
// itself; seeds differ.
func TestPermutation(t *testing.T) {
	seen := make(map[string]bool)
	for seed := range uint64(50) {
		l := must(Permutation(5, Stream{Seed: seed}))
		var to []byte
		in := make([]bool, 5)
		for i, p := range l {
			if int(p.Src) != i || p.Dst == p.Src || in[p.Dst] {
				t.Fatalf("seed %d: %v", seed, l)
			}
			in[p.Dst] = true
			to = append(to, byte(p.Dst))
		}
		seen[string(to)] = true
	}
	if len(seen) < 25 { // of 44 derangements
		t.Errorf("50 seeds gave only %d permutations", len(seen))
	}
}

func TestPatternsRefused(t *testing.T) {
	for _, c := range []struct {
		name string
		make func() error
		want string
	}{
		{"stride of all", func() error { _, err := Stride(8, 16); return err }, "send to themselves"},
		{"stride of one host", func() error { _, err := Stride(1, 1); return err }, "send to themselves"},
		{"permutation of one", func() error { _, err := Permutation(1, Stream{}); return err }, "needs 2"},
		{"one rack", func() error { _, err := OtherRack(racksOf(1, 4)); return err }, "in rack 0"},
		{"no hosts", func() error { _, err := OtherRack(nil); return err }, "no hosts"},
		{"negative rack", func() error { _, err := OtherRack([]int{0, -1}); return err }, "host 1 is in rack -1"},
		{"own rack", func() error { _, err := RackToRack(racksOf(2, 2), []int{0, 0}); return err }, "rack 0 cannot use servers of rack 0"},
		{"missing rack", func() error { _, err := RackToRack(racksOf(2, 2), []int{2, 0}); return err }, "name another rack"},
		{"too few rules", func() error { _, err := RackToRack(racksOf(3, 2), []int{1, 0}); return err }, "there are 3"},
		{"no clients", func() error { _, err := RackToRack(racksOf(2, 2), []int{-1, -1}); return err }, "no rack has clients"},
		{"hot share", func() error { return HotSpot{4, []network.HostID{1}, 1.5}.Validate() }, "share of 1.5"},
		{"hot stranger", func() error { return HotSpot{4, []network.HostID{4}, 0.5}.Validate() }, "host 4"},
		{"hot twice", func() error { return HotSpot{4, []network.HostID{1, 1}, 0.5}.Validate() }, "at most once"},
	} {
		if err := c.make(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", c.name, err, c.want)
		}
	}
	if err := (HotSpot{4, []network.HostID{1, 3}, 0.5}).Validate(); err != nil {
		t.Error(err)
	}
}

// TestStride holds the pairs against the definition.
func TestStride(t *testing.T) {
	l := must(Stride(4, 1))
	if want := (List{{0, 1}, {1, 2}, {2, 3}, {3, 0}}); !slices.Equal(l, want) {
		t.Errorf("stride 1 of 4: %v", l)
	}
}
