package theory

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// TestFigure17: CONGA §6.1, Theorem 1: "The PoA for the CONGA game is 2"; its lower
// bound "follows from the example shown in Figure 17": "The shown Nash flow has a
// network bottleneck of 1. However, if all users instead used the dashed paths, the
// bottleneck would be 1/2." We differ: the figure is not in the text, and our
// example has six spines and links in one direction only.
func TestFigure17(t *testing.T) {
	g, nash := WorstCase()
	if err := g.Validate(); err != nil {
		t.Fatal(err)
	}
	if b := g.Bottleneck(nash); b != 1 {
		t.Errorf("the Nash flow has a bottleneck of %g, want 1", b)
	}
	for i := range g.Users {
		if _, b := g.Respond(nash, i); math.Abs(b-1) > 1e-9 {
			t.Errorf("user %d can have %g, and has 1: it is no Nash flow", i, b)
		}
	}
	if rounds, ok := g.Play(nash, 10, rand.New(rand.NewPCG(1, 0))); rounds != 0 || !ok {
		t.Errorf("somebody moves in the Nash flow: %d rounds, %v", rounds, ok)
	}
	if best, err := g.Optimum(); err != nil || math.Abs(best-0.5) > 1e-9 {
		t.Errorf("the optimum is %g (%v), want 1/2", best, err)
	}
	// The dashed paths.
	dashed := Flow{}
	for i, u := range g.Users {
		split := make([]float64, len(g.Users))
		for p, owner := range g.Users {
			if p != i && (owner.From == u.From || owner.To == u.To) {
				split[p] = 0.5
			}
		}
		dashed = append(dashed, split)
	}
	if b := g.Bottleneck(dashed); b != 0.5 {
		t.Errorf("the dashed paths have a bottleneck of %g, want 1/2", b)
	}
}

// TestTheorem1: "the network bottleneck with CONGA is at most twice the optimal",
// and "CONGA converges to a Nash flow": on random games, from random flows.
func TestTheorem1(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	worst := 0.0
	for range 60 {
		g := RandomGame(Shape{2 + rng.IntN(4), 2 + rng.IntN(4), 1 + rng.IntN(10), 1 + 9*rng.IntN(2), 0.5 * rng.Float64()}, rng)
		if err := g.Validate(); err != nil {
			t.Fatal(err)
		}
		best, err := g.Optimum()
		if err != nil {
			t.Fatalf("%+v: %v", g, err)
		}
		f := g.RandomFlow(rng)
		if _, ok := g.Play(f, 10_000, rng); !ok {
			t.Errorf("%+v: somebody gains for ever", g)
			continue
		}
		poa := g.Bottleneck(f) / best
		if poa > 2*(1+1e-6) || poa < 1-1e-6 {
			t.Errorf("%+v: a Nash flow has %g times the least bottleneck, %g", g, poa, best)
		}
		worst = max(worst, poa)
	}
	t.Logf("the worst is %g", worst)
}

// TestOptimumOfOneUser: alone, a user's best response is the optimum.
func TestOptimumOfOneUser(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 0))
	for range 50 {
		g := RandomGame(Shape{2, 1 + rng.IntN(6), 1, 10, 0.3}, rng)
		best, err := g.Optimum()
		split, b := g.Respond(g.RandomFlow(rng), 0)
		if err != nil || math.Abs(best-b) > 1e-9 || math.Abs(g.Bottleneck(Flow{split})-b) > 1e-9 {
			t.Fatalf("%+v: optimum %g (%v), response %g", g, best, err, b)
		}
		sum := 0.0
		for _, x := range split {
			sum += x
		}
		if math.Abs(sum-g.Users[0].Demand) > 1e-9 {
			t.Fatalf("%g of %g is sent", sum, g.Users[0].Demand)
		}
	}
}

// TestRespondIsBest holds a response against random splits: none is better.
func TestRespondIsBest(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 0))
	for range 100 {
		g := RandomGame(Shape{3, 3, 5, 10, 0.2}, rng)
		f := g.RandomFlow(rng)
		user := rng.IntN(5)
		split, b := g.Respond(f, user)
		u, paths := g.Users[user], g.paths(g.Users[user])
		f[user] = split
		if got := g.UserBottleneck(f, user); math.Abs(got-b) > 1e-9 {
			t.Fatalf("the response says %g, and has %g", b, got)
		}
		for range 50 {
			other, sum := make([]float64, 3), 0.0
			for _, p := range paths {
				other[p] = rng.ExpFloat64()
				sum += other[p]
			}
			for p := range other {
				other[p] *= u.Demand / sum
			}
			f[user] = other
			if got := g.UserBottleneck(f, user); got < b-1e-9 {
				t.Fatalf("%v has %g, less than the best response %v of %g", other, got, split, b)
			}
		}
	}
}

func TestGameIsChecked(t *testing.T) {
	ok := func() *Game {
		return &Game{Up: [][]float64{{1, 1}, {1, 1}}, Down: [][]float64{{1, 1}, {1, 1}}, Users: []User{{0, 1, 1}}}
	}
	if err := ok().Validate(); err != nil {
		t.Error(err)
	}
	for name, spoil := range map[string]func(*Game){
		"one leaf":        func(g *Game) { g.Up, g.Down = g.Up[:1], g.Down[:1] },
		"no users":        func(g *Game) { g.Users = nil },
		"a spine less":    func(g *Game) { g.Down[1] = g.Down[1][:1] },
		"the same leaf":   func(g *Game) { g.Users[0].To = 0 },
		"no such leaf":    func(g *Game) { g.Users[0].To = 2 },
		"no demand":       func(g *Game) { g.Users[0].Demand = 0 },
		"no path between": func(g *Game) { g.Up[0][0], g.Down[1][1] = 0, 0 },
	} {
		g := ok()
		if spoil(g); g.Validate() == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
