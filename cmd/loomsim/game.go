package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/loomfabric/loom/internal/spread"
	"github.com/loomfabric/loom/sim/theory"
)

// games are the shapes that gameCommand goes through.
var games = []theory.Shape{
	{Leaves: 2, Spines: 2, Users: 2, Levels: 10},
	{Leaves: 4, Spines: 3, Users: 8, Levels: 10},
	{Leaves: 4, Spines: 3, Users: 8, Levels: 1, Sparse: 0.3},
	{Leaves: 6, Spines: 4, Users: 12, Levels: 10, Sparse: 0.3},
	{Leaves: 6, Spines: 4, Users: 12, Levels: 1, Sparse: 0.5},
}

// gameCommand prints how far from the optimum selfish users end, beside the bound
// of CONGA's Theorem 1 (§6.1).
func gameCommand() *cobra.Command {
	count, seed := 1000, uint64(1)
	cmd := &cobra.Command{
		Use: "theorem1", Short: "Print how much worse than the optimum CONGA's game ends on random instances, beside the bound of its Theorem 1", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if count < 1 {
				return errors.New("--instances: at least 1")
			}
			w := tabwriter.NewWriter(c.OutOrStdout(), 0, 0, 2, ' ', 0)
			fmt.Fprintf(w, "leaves\tspines\tusers\tcapacities\tmissing links\tgames\trounds, mean\tNash / optimum, mean\tp99\tmost\tbound\n")
			for _, shape := range games {
				if err := play(w, shape, count, rand.New(rand.NewPCG(seed, 0))); err != nil {
					return err
				}
			}
			g, nash := theory.WorstCase()
			best, err := g.Optimum()
			if err != nil {
				return err
			}
			worst := g.Bottleneck(nash) / best
			fmt.Fprintf(w, "3\t6\t6\tequal\tFigure 17\t1\t0\t%.3f\t%.3f\t%.3f\t2\n", worst, worst, worst)
			return w.Flush()
		},
	}
	f := cmd.Flags()
	f.IntVar(&count, "instances", count, "games of each shape")
	f.Uint64Var(&seed, "seed", seed, "seed of the random numbers")
	return cmd
}

// limit is after how many rounds a game is taken for one that does not end.
const limit = 10_000

// play prints a row: games of one shape.
func play(w *tabwriter.Writer, shape theory.Shape, count int, rng *rand.Rand) error {
	var worse []float64
	rounds := 0
	for range count {
		g := theory.RandomGame(shape, rng)
		best, err := g.Optimum()
		if err != nil {
			return err
		}
		f := g.RandomFlow(rng)
		n, ok := g.Play(f, limit, rng)
		if !ok {
			return fmt.Errorf("a game of %+v has not ended after %d rounds: %+v", shape, limit, g)
		}
		rounds += n
		worse = append(worse, g.Bottleneck(f)/best)
	}
	slices.Sort(worse)
	capacities := "equal"
	if shape.Levels > 1 {
		capacities = fmt.Sprintf("1 to %d", shape.Levels)
	}
	fmt.Fprintf(w, "%d\t%d\t%d\t%s\t%.0f %%\t%d\t%.1f\t%.3f\t%.3f\t%.3f\t2\n", shape.Leaves, shape.Spines, shape.Users, capacities,
		100*shape.Sparse, count, float64(rounds)/float64(count), spread.Of(worse).Mean, spread.Quantile(worse, 0.99), worse[len(worse)-1])
	return nil
}
