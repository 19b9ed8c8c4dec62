package main

import (
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/loomfabric/loom/cmd/internal/matrix"
	"github.com/loomfabric/loom/internal/experiment"
	"github.com/loomfabric/loom/sim"
	"github.com/loomfabric/loom/sim/traffic"
)

func traceCommand() *cobra.Command {
	var size, id, to string
	var long bool
	cmd := &cobra.Command{
		Use: "trace EXPERIMENT.yaml", Short: "Write the flows of a run as a trace, to repeat it elsewhere", Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			e, err := experiment.Load(args[0], experiment.Options{})
			if err != nil {
				return err
			}
			s, err := e.Size(size)
			if err != nil {
				return err
			}
			run, err := pick(s, id)
			if err != nil {
				return err
			}
			source, err := sim.Flows(run.Spec)
			if err != nil {
				return fmt.Errorf("%s: %w", run.ID, err)
			}
			return matrix.WriteFile(c.OutOrStdout(), to, func(w io.Writer) error {
				_, err := traffic.WriteTrace(w, source, long)
				return err
			})
		},
	}
	cmd.Flags().StringVar(&size, "size", "", "one of the experiment's sizes (default: its first)")
	cmd.Flags().StringVar(&id, "run", "", "the run, as progress and results name it (default: the first)")
	cmd.Flags().StringVarP(&to, "output", "o", "-", "file to write; - is the standard output")
	cmd.Flags().BoolVar(&long, "long", false, "with each flow's workload and connection")
	return cmd
}

// pick finds a run by its name; "" is the first.
func pick(s *experiment.Size, id string) (*experiment.Run, error) {
	at := slices.IndexFunc(s.Runs, func(r experiment.Run) bool { return r.ID == id || id == "" })
	if at < 0 {
		return nil, fmt.Errorf("size %s has no run %q: its first is %s, its last %s", s.Name, id, s.Runs[0].ID, s.Runs[len(s.Runs)-1].ID)
	}
	return &s.Runs[at], nil
}
