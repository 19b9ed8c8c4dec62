package theory

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"

	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/optimize/convex/lp"
)

// Game is the bottleneck routing game of CONGA §6.1: users who split their traffic
// over the spines, each so that the most utilised link that it uses is as little
// utilised as possible. Links have no queues, and splits are real numbers.
type Game struct {
	// Up and Down are the capacities from a leaf to a spine and back, by leaf and
	// spine; 0: there is no such link.
	Up, Down [][]float64
	Users    []User
}

// User is the traffic from one leaf to another.
type User struct {
	From, To int // leaves
	Demand   float64
}

// Flow is how users split their traffic: by user and spine.
type Flow [][]float64

// spines returns the number of spines.
func (g *Game) spines() int { return len(g.Up[0]) }

// Validate reports what the game cannot be.
func (g *Game) Validate() error {
	switch {
	case len(g.Up) < 2 || len(g.Up) != len(g.Down):
		return fmt.Errorf("a game with up-links of %d leaves and down-links to %d: both want the same leaves, 2 at least", len(g.Up), len(g.Down))
	case len(g.Users) == 0:
		return errors.New("a game without users: give it some")
	}
	for l := range g.Up {
		if len(g.Up[l]) == 0 || len(g.Up[l]) != g.spines() || len(g.Down[l]) != g.spines() {
			return fmt.Errorf("leaf %d has %d links up and %d down: each leaf wants one of each for each spine", l, len(g.Up[l]), len(g.Down[l]))
		}
	}
	for i, u := range g.Users {
		switch {
		case u.From < 0 || u.From >= len(g.Up) || u.To < 0 || u.To >= len(g.Up) || u.From == u.To:
			return fmt.Errorf("user %d sends from leaf %d to leaf %d: use two of the %d leaves", i, u.From, u.To, len(g.Up))
		case !(u.Demand > 0) || math.IsInf(u.Demand, 0):
			return fmt.Errorf("user %d has a demand of %g: use one above 0", i, u.Demand)
		case len(g.paths(u)) == 0:
			return fmt.Errorf("user %d has no path from leaf %d to leaf %d: give a spine links to both", i, u.From, u.To)
		}
	}
	return nil
}

// paths returns the spines by which a user can send.
func (g *Game) paths(u User) (out []int) {
	for p := range g.spines() {
		if g.Up[u.From][p] > 0 && g.Down[u.To][p] > 0 {
			out = append(out, p)
		}
	}
	return out
}

// loads returns what each link carries, without one user; -1: all users count.
func (g *Game) loads(f Flow, without int) (up, down [][]float64) {
	up, down = make([][]float64, len(g.Up)), make([][]float64, len(g.Up))
	for l := range up {
		up[l], down[l] = make([]float64, g.spines()), make([]float64, g.spines())
	}
	for i, u := range g.Users {
		if i == without {
			continue
		}
		for p, x := range f[i] {
			up[u.From][p] += x
			down[u.To][p] += x
		}
	}
	return up, down
}

// Bottleneck returns B(f), the utilisation of the most utilised link.
func (g *Game) Bottleneck(f Flow) (most float64) {
	up, down := g.loads(f, -1)
	for l := range up {
		for p := range up[l] {
			for _, x := range [][2]float64{{up[l][p], g.Up[l][p]}, {down[l][p], g.Down[l][p]}} {
				if x[0] > 0 {
					most = max(most, x[0]/x[1])
				}
			}
		}
	}
	return most
}

// UserBottleneck returns b_u(f), the utilisation of the most utilised link that a
// user uses.
func (g *Game) UserBottleneck(f Flow, user int) (most float64) {
	u := g.Users[user]
	up, down := g.loads(f, -1)
	for p, x := range f[user] {
		if x > 1e-12*u.Demand {
			most = max(most, up[u.From][p]/g.Up[u.From][p], down[u.To][p]/g.Down[u.To][p])
		}
	}
	return most
}

// Respond returns a user's best response to the others: the split whose bottleneck b
// is the least that it can have. With a bottleneck of b a path takes what the fuller
// one of its two links has left of b; b is where the paths take the demand together.
func (g *Game) Respond(f Flow, user int) (split []float64, b float64) {
	u := g.Users[user]
	up, down := g.loads(f, user)
	paths := g.paths(u)
	room := func(b float64, p int) float64 {
		return max(0, min(b*g.Up[u.From][p]-up[u.From][p], b*g.Down[u.To][p]-down[u.To][p]))
	}
	rooms := func(b float64) (sum float64) {
		for _, p := range paths {
			sum += room(b, p)
		}
		return sum
	}
	low, high := 0.0, 1.0
	for rooms(high) < u.Demand {
		low, high = high, 2*high
	}
	for range 100 {
		if mid := (low + high) / 2; rooms(mid) < u.Demand {
			low = mid
		} else {
			high = mid
		}
	}
	split = make([]float64, g.spines())
	scale := u.Demand / rooms(high)
	for _, p := range paths {
		split[p] = scale * room(high, p)
	}
	return split, high
}

// tolerance is how much better, relatively, a response has to be to be one.
const tolerance = 1e-7

// Play lets users respond to each other in random order, as long as any of them gains
// by it, and changes f. It returns after how many rounds nobody did; ok is false if
// somebody still does after limit rounds. f is then at Nash equilibrium: "no user can
// improve its bottleneck given the choices of the other users".
func (g *Game) Play(f Flow, limit int, rng *rand.Rand) (rounds int, ok bool) {
	for rounds = range limit {
		gains := false
		for _, user := range rng.Perm(len(g.Users)) {
			split, b := g.Respond(f, user)
			if b < (1-tolerance)*g.UserBottleneck(f, user) {
				f[user], gains = split, true
			}
		}
		if !gains {
			return rounds, true
		}
	}
	return limit, false
}

// Optimum returns the least B(f) of all feasible flows: a linear program.
func (g *Game) Optimum() (float64, error) {
	type variable struct{ user, spine int }
	var flows []variable
	first := make([]int, len(g.Users)) // each user's first path
	for i, u := range g.Users {
		first[i] = len(flows)
		for _, p := range g.paths(u) {
			flows = append(flows, variable{i, p})
		}
	}
	// Rows: a demand for each user; Σ flows − B·capacity + slack = 0 for each link.
	type link struct {
		leaf, spine int
		down        bool
		capacity    float64
	}
	var links []link
	for l := range g.Up {
		for p := range g.spines() {
			links = append(links, link{l, p, false, g.Up[l][p]}, link{l, p, true, g.Down[l][p]})
		}
	}
	users, n := len(g.Users), len(flows)
	a := mat.NewDense(users+len(links), n+1+len(links), nil)
	b, c := make([]float64, users+len(links)), make([]float64, n+1+len(links))
	c[n] = 1 // B
	load := make([]float64, len(links))
	for j, v := range flows {
		u := g.Users[v.user]
		a.Set(v.user, j, 1)
		for k, l := range links {
			if l.spine == v.spine && (!l.down && l.leaf == u.From || l.down && l.leaf == u.To) {
				a.Set(users+k, j, 1)
				if j == first[v.user] {
					load[k] += u.Demand
				}
			}
		}
	}
	for i, u := range g.Users {
		b[i] = u.Demand
	}
	// A basis to start from: all take their first path, and the fullest link has no slack.
	full := 0
	for k, l := range links {
		a.Set(users+k, n, -l.capacity)
		a.Set(users+k, n+1+k, 1)
		if l.capacity > 0 && load[k]*max(links[full].capacity, 1e-300) > load[full]*l.capacity || links[full].capacity == 0 {
			full = k
		}
	}
	basis := append([]int{}, first...)
	basis = append(basis, n)
	for k := range links {
		if k != full {
			basis = append(basis, n+1+k)
		}
	}
	best, _, err := lp.Simplex(c, a, b, 1e-10, basis)
	if err != nil {
		return 0, fmt.Errorf("the optimal flow: %w", err)
	}
	return best, nil
}

// WorstCase is a game whose price of anarchy is 2, and its Nash flow: the example of
// CONGA's Figure 17 for three leaves that send one unit to each other, each way. A
// user has a spine of its own (solid), and could use those of the user with the same
// source and of the one with the same destination (dashed) half and half. What the
// figure shows is missing from the text that we have; its bottlenecks, 1 and 1/2, and
// Remark 2 of it (traffic takes paths with two bottlenecks although some have one) hold.
func WorstCase() (g *Game, nash Flow) {
	const leaves = 3
	g = &Game{Up: make([][]float64, leaves), Down: make([][]float64, leaves)}
	for from := range leaves {
		for to := range leaves {
			if from != to {
				g.Users = append(g.Users, User{from, to, 1})
			}
		}
	}
	for l := range leaves {
		g.Up[l], g.Down[l] = make([]float64, len(g.Users)), make([]float64, len(g.Users))
		for p, owner := range g.Users {
			if owner.To != l { // its own spines, and those between the other two
				g.Up[l][p] = 1
			}
			if owner.From != l {
				g.Down[l][p] = 1
			}
		}
	}
	for i := range g.Users {
		split := make([]float64, len(g.Users))
		split[i] = 1
		nash = append(nash, split)
	}
	return g, nash
}

// Shape is what a random game is like.
type Shape struct {
	Leaves, Spines, Users int
	// Capacities are whole numbers from 1 to Levels; with 1 all links and all demands
	// are equal.
	Levels int
	// Sparse is the probability that a link is missing. The first spine has all.
	Sparse float64
}

// RandomGame draws a game.
func RandomGame(s Shape, rng *rand.Rand) *Game {
	leaves := s.Leaves
	g := &Game{Up: make([][]float64, leaves), Down: make([][]float64, leaves)}
	capacity := func(p int) float64 {
		if p > 0 && rng.Float64() < s.Sparse {
			return 0
		}
		return float64(1 + rng.IntN(s.Levels))
	}
	for l := range leaves {
		for p := range s.Spines {
			g.Up[l], g.Down[l] = append(g.Up[l], capacity(p)), append(g.Down[l], capacity(p))
		}
	}
	for range s.Users {
		demand := 1.0
		if s.Levels > 1 {
			demand = 1 - rng.Float64()
		}
		from := rng.IntN(leaves)
		g.Users = append(g.Users, User{from, (from + 1 + rng.IntN(leaves-1)) % leaves, demand})
	}
	return g
}

// RandomFlow draws a flow to begin with: each user takes one path.
func (g *Game) RandomFlow(rng *rand.Rand) (f Flow) {
	for _, u := range g.Users {
		split, paths := make([]float64, g.spines()), g.paths(u)
		split[paths[rng.IntN(len(paths))]] = u.Demand
		f = append(f, split)
	}
	return f
}
