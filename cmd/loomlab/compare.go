package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/lab"
)

// outputs are the files that compare writes beside its table.
type outputs struct{ csv, svg, metric string }

func compareCommand(load func() (*lab.Lab, error)) *cobra.Command {
	var opt lab.CompareOptions
	var out outputs
	cmd := &cobra.Command{
		Use: "compare", Short: "Run the fabric's workloads under several schemes, and compare", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := checkCompare(&opt, &out); err != nil {
				return err
			}
			l, err := load()
			if err != nil {
				return err
			}
			warn(c.ErrOrStderr(), l.File, opt.Schemes...)
			opt.Progress = os.Stderr
			result, err := lab.Compare(c.Context(), load, opt)
			if result == nil || len(result.Runs) == 0 {
				return err
			}
			// What was measured is shown, even if it was interrupted.
			return errors.Join(err, result.Table(c.OutOrStdout()), out.write(result), result.Failures())
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&opt.Schemes, "schemes", []string{"ecmp", "local", "conga"}, "schemes, the first is what others are compared with")
	f.IntVar(&opt.Seeds, "seeds", 3, "how often each is repeated, with seeds 1, 2, ... for all workloads")
	f.Float64SliceVar(&opt.Loads, "loads", nil, "loads in percent instead of those of the file's request workloads")
	f.DurationVar(&opt.Sample, "sample", 50*time.Millisecond, "read the leaves' uplinks this often; 0: not")
	f.Float64Var(&opt.MinIdle, "min-idle", 0, "share of the CPU, 0 to 1, that must be idle under the load; a run with less is made again, twice at most")
	f.StringVar(&out.csv, "csv", "", "write every run to this file")
	f.StringVar(&out.svg, "svg", "", "plot --metric into this file")
	f.StringVar(&out.metric, "metric", "goodput Mbit/s", `what to plot: a row of the table, or "L0 imbalance" for its distribution over intervals`)
	return cmd
}

func checkCompare(opt *lab.CompareOptions, out *outputs) error {
	known := map[string]bool{}
	for _, name := range balance.Names() {
		known[name] = true
	}
	if len(opt.Schemes) == 0 {
		return errors.New("--schemes is empty: name some, for instance ecmp,conga")
	}
	for _, s := range opt.Schemes {
		if !known[s] {
			return fmt.Errorf("--schemes: %q does not exist or is there twice: there are %v", s, balance.Names())
		}
		known[s] = false
	}
	if opt.Seeds < 1 {
		return fmt.Errorf("--seeds %d: at least 1", opt.Seeds)
	}
	for _, l := range opt.Loads {
		if l <= 0 || l > 200 {
			return fmt.Errorf("--loads: %g percent: above 0 and at most 200", l)
		}
	}
	if opt.MinIdle < 0 || opt.MinIdle >= 1 {
		return fmt.Errorf("--min-idle %g: a share from 0 to below 1", opt.MinIdle)
	}
	if opt.Sample < 0 {
		return fmt.Errorf("--sample %v is negative", opt.Sample)
	}
	return nil
}

// write writes what was asked for.
func (o *outputs) write(c *lab.Comparison) error {
	var errs []error
	if o.csv != "" {
		errs = append(errs, toFile(o.csv, c.CSV))
	}
	if o.svg != "" {
		errs = append(errs, toFile(o.svg, func(w io.Writer) error { return c.SVG(w, o.metric) }))
	}
	return errors.Join(errs...)
}

func toFile(path string, write func(io.Writer) error) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	if err := write(f); err != nil {
		f.Close()
		return fmt.Errorf("%s: %w", path, err)
	}
	return f.Close()
}
