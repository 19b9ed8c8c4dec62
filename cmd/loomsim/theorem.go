package main

import (
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/loomfabric/loom/internal/workload"
	"github.com/loomfabric/loom/sim/theory"
)

// theoremCommand prints what throwing flows on links at random comes to, beside
// the bound of CONGA's Theorem 2 (§6.2).
func theoremCommand() *cobra.Command {
	links, trials, seed := 4, 400, uint64(1)
	cmd := &cobra.Command{
		Use: "theorem2", Short: "Print the expected imbalance of randomly placed flows beside the bound of CONGA's Theorem 2", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			w := tabwriter.NewWriter(c.OutOrStdout(), 0, 0, 2, ' ', 0)
			fmt.Fprintf(w, "sizes\tpieces\tflows\tE(χ)\t± stderr\tbound\tbound / E(χ)\n")
			for _, name := range []string{"exponential", "enterprise", "data-mining", "web-search"} {
				var sizes theory.Sizes = theory.Exponential(1e6)
				if name != "exponential" {
					cdf, err := workload.Builtin(name)
					if err != nil {
						return err
					}
					sizes = cdf
				}
				for _, quantum := range []float64{0, 500e3} {
					// The same load for all sizes: 10 GB a second.
					m := theory.Model{Links: links, Rate: 10e9 / sizes.Mean(), Sizes: sizes, Quantum: quantum}
					rows, err := m.Run([]float64{1, 10}, trials, seed)
					if err != nil {
						return fmt.Errorf("%s: %w", name, err)
					}
					pieces := "flows"
					if quantum > 0 {
						pieces = "flowlets of 500 KB"
					}
					for _, r := range rows {
						fmt.Fprintf(w, "%s\t%s\t%.0f\t%.4f\t%.4f\t%.4f\t%.2f\n", name, pieces, r.Flows, r.Mean, r.Stderr, r.Bound, r.Bound/r.Mean)
					}
				}
			}
			return w.Flush()
		},
	}
	f := cmd.Flags()
	f.IntVar(&links, "links", links, "links that flows are thrown on, at least 2")
	f.IntVar(&trials, "trials", trials, "how often it is repeated")
	f.Uint64Var(&seed, "seed", seed, "seed of the random numbers")
	return cmd
}
