package balance

import (
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
	"testing"
)

// naivePlaces chooses as Paths do, in the plainest way: a number's own place while its
// path is there, or else the best of those that are there in the number's order.
func naivePlaces(weights []uint16, gone uint16, number uint32) int {
	n := len(weights)
	s := MakeShares(n, weights)
	if place := int(s.Of(number, uint32(n))); gone>>place&1 == 0 {
		return place
	}
	best, least := -1, math.Inf(1)
	for i, w := range weights {
		u := (float64(Remix(uint64(number)<<32|uint64(i)^placeKey)) + 0.5) / (1 << 32)
		if at := -math.Log(u) / float64(w); gone>>i&1 == 0 && at < least {
			best, least = i, at
		}
	}
	return best
}

// randomWeights returns weights of n paths, which are alike in half of the cases.
func randomWeights(rng *rand.Rand, n int) []uint16 {
	weights := make([]uint16, n)
	for i := range weights {
		weights[i] = 7
		if n%2 == 0 {
			weights[i] = uint16(1 + rng.IntN(256))
		}
	}
	return weights
}

// uplinkOf returns the uplink that a number belongs to. Each path is on the uplink of its
// first number, whatever its number is now.
func uplinkOf(p *Paths, number uint32) int { return int(p.Uplink[p.Share(number)]) }

// TestRemovalMovesOnlyItsOwn: a path that goes moves its own numbers and nobody else's,
// whatever went before; one that returns takes back what was its own.
func TestRemovalMovesOnlyItsOwn(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	for range 200 {
		n := 2 + rng.IntN(MaxPaths-1)
		weights := randomWeights(rng, n)
		uplinks := make([]uint8, n)
		for i, u := range rng.Perm(MaxPaths)[:n] {
			uplinks[i] = uint8(u)
		}
		slices.Sort(uplinks)
		full := MakeWeightedPaths(uplinks, weights)
		if full.Without(0) != full {
			t.Fatal("paths of which none has gone differ from what they were")
		}
		before, gone := full, uint16(0)
		for range 2 * n { // paths go and return in any order
			place := rng.IntN(n)
			now := gone ^ 1<<place
			if bits.OnesCount16(now) == n {
				continue
			}
			after := full.Without(now)
			if int(after.N) != n-bits.OnesCount16(now) {
				t.Fatalf("%d paths are left of %d without %b", after.N, n, now)
			}
			for range 100 {
				number := rng.Uint32()
				was, is := uplinkOf(&before, number), uplinkOf(&after, number)
				if want := int(uplinks[naivePlaces(weights, now, number)]); is != want {
					t.Fatalf("weights %v without %b: %#x belongs to uplink %d, want %d", weights, now, number, is, want)
				}
				if was != is && was != int(uplinks[place]) && is != int(uplinks[place]) {
					t.Fatalf("path on uplink %d changed, and %#x moved from uplink %d to %d", uplinks[place], number, was, is)
				}
			}
			before, gone = after, now
		}
		if back := full.Without(0); back != full {
			t.Fatal("paths that are all there again differ from what they were")
		}
	}
}

// TestWithoutInSteps: what is left does not depend on the order in which paths go.
func TestWithoutInSteps(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 200 {
		n := 3 + rng.IntN(MaxPaths-2)
		weights := randomWeights(rng, n)
		uplinks := make([]uint8, n)
		for i := range uplinks {
			uplinks[i] = uint8(i)
		}
		full := MakeWeightedPaths(uplinks, weights)
		a, b := rng.IntN(n), rng.IntN(n-1)
		one := full.Without(1 << a)
		two := one.Without(1 << b)
		if b >= a {
			b++
		}
		at := full.Without(1<<a | 1<<b)
		if two.N != at.N || two.Uplink != at.Uplink || two.Index != at.Index || two.Weights != at.Weights || two.Weighted != at.Weighted {
			t.Fatalf("paths without %d, then without %d, are %+v; at once they are %+v", a, b, two, at)
		}
		for range 200 {
			if number := rng.Uint32(); two.Share(number) != at.Share(number) {
				t.Fatalf("%#x belongs to path %d, want %d", number, two.Share(number), at.Share(number))
			}
		}
	}
}

// TestOrphansAreSpread: the numbers of paths that went are spread over those that are
// left in proportion to the weights of these, as all numbers are.
func TestOrphansAreSpread(t *testing.T) {
	for _, c := range []struct {
		weights []uint16
		gone    uint16
	}{
		{[]uint16{1, 1, 1, 1}, 0b0001},
		{[]uint16{1, 1, 1, 1}, 0b1010},
		{[]uint16{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, 0b0111_1111_1111_1011},
		{[]uint16{3, 1, 4, 2}, 0b0100},
		{[]uint16{1, 2, 253}, 0b100},
		{[]uint16{5, 5, 1}, 0b100},
	} {
		const numbers = 200_000
		uplinks := make([]uint8, len(c.weights))
		for i := range uplinks {
			uplinks[i] = uint8(i)
		}
		full := MakeWeightedPaths(uplinks, c.weights)
		left := full.Without(c.gone)
		rng := rand.New(rand.NewPCG(5, 6))
		var all, moved [MaxPaths]float64
		orphans, total := 0.0, 0.0
		for range numbers {
			number := rng.Uint32()
			to := uplinkOf(&left, number)
			all[to]++
			if c.gone>>uplinkOf(&full, number)&1 != 0 {
				moved[to]++
				orphans++
			}
		}
		for i, w := range c.weights {
			if c.gone>>i&1 == 0 {
				total += float64(w)
			}
		}
		for i, w := range c.weights {
			want := float64(w) / total
			if c.gone>>i&1 != 0 {
				want = 0
			}
			if got := moved[i] / orphans; math.Abs(got-want) > 0.01 {
				t.Errorf("weights %v without %b: path %d takes over %.4f of what moves, want %.4f", c.weights, c.gone, i, got, want)
			}
			if got := all[i] / numbers; math.Abs(got-want) > 0.01 {
				t.Errorf("weights %v without %b: path %d has %.4f, want %.4f", c.weights, c.gone, i, got, want)
			}
		}
	}
}

func TestGone(t *testing.T) {
	for _, c := range []struct {
		were, left []int
		gone       uint16
		ok         bool
	}{
		{nil, nil, 0, true},
		{nil, []int{1}, 0, false},
		{[]int{1, 2, 3}, []int{1, 2, 3}, 0, true},
		{[]int{1, 2, 3}, []int{1, 3}, 0b010, true},
		{[]int{1, 2, 3}, nil, 0b111, true},
		{[]int{1, 2, 3}, []int{3, 1}, 0b011, false},
		{[]int{1, 2, 3}, []int{1, 2, 3, 4}, 0, false},
	} {
		if gone, ok := Gone(c.were, c.left); ok != c.ok || ok && gone != c.gone {
			t.Errorf("of %v are left %v: gone %b, %v; want %b, %v", c.were, c.left, gone, ok, c.gone, c.ok)
		}
	}
}

func TestWithoutDoesNotAllocate(t *testing.T) {
	full := MakeWeightedPaths([]uint8{0, 1, 2, 3}, []uint16{1, 2, 3, 4})
	var sum int
	if n := testing.AllocsPerRun(100, func() {
		left := full.Without(0b0100)
		sum += int(left.Share(uint32(sum) * 0x9E3779B9))
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkShare(b *testing.B) {
	full := MakePaths(0, 1, 2, 3)
	for _, c := range []struct {
		name  string
		paths Paths
	}{{"all", full}, {"one of 4 gone", full.Without(1)}} {
		b.Run(c.name, func(b *testing.B) {
			sum := uint32(0)
			for range b.N {
				sum += uint32(c.paths.Share(sum * 0x9E3779B9))
			}
			sink = sum
		})
	}
}

var sink uint32
