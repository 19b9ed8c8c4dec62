package matrix

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/loomfabric/loom/config/fabric"
	"github.com/loomfabric/loom/internal/experiment"
	"github.com/loomfabric/loom/internal/experiment/report"
)

// compareFlags are those of compare beside what it shares with run.
type compareFlags struct {
	runFlags
	outputs
	sample      time.Duration
	minIdle     float64
	svg, metric string
}

// CompareCommand returns the command that makes an experiment of a fabric.yaml, the
// file that file names by the time it runs, and of its flags.
func (p *Program) CompareCommand(file *string) *cobra.Command {
	var fl compareFlags
	cmd := &cobra.Command{
		Use: "compare", Short: "Run the fabric's workloads under several schemes, and compare", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return p.compare(c, *file, &fl) },
	}
	fl.flags(p, cmd)
	p.ResultsFlag(cmd)
	f := cmd.Flags()
	f.StringSliceVar(&fl.read.Schemes, "schemes", []string{"ecmp", "local", "conga"}, "schemes; the others are compared with the first")
	f.IntVar(&fl.read.Seeds, "seeds", 3, "how often each is repeated, with seeds 1, 2, ... for all workloads")
	f.DurationVar(&fl.sample, "sample", 50*time.Millisecond, "read the leaves' uplinks this often; 0: not")
	f.Float64Var(&fl.minIdle, "min-idle", 0, "share of the CPU, 0 to 1, that must be idle under the load in the lab; a run with less is made again, twice at most")
	f.StringVar(&fl.csv, "csv", "", "write a row for each run into this file")
	f.StringVar(&fl.html, "html", "", "write a page with tables and the plot into this file")
	f.StringVar(&fl.svg, "svg", "", "plot --metric into this file")
	f.StringVar(&fl.metric, "metric", "goodput_bps", "what to plot: a metric's path, or that of a distribution, as imbalance.L0")
	return cmd
}

func (p *Program) compare(c *cobra.Command, file string, fl *compareFlags) error {
	if err := fl.choose(p, c); err != nil {
		return err
	}
	if !(fl.minIdle >= 0 && fl.minIdle < 1) {
		return fmt.Errorf("--min-idle %g: a share from 0 to below 1", fl.minIdle)
	}
	if fl.sample < 0 {
		return fmt.Errorf("--sample %v is negative", fl.sample)
	}
	if len(fl.read.Schemes) == 0 {
		return errors.New("--schemes is empty: name some, for instance ecmp,conga")
	}
	if l, ok := fl.make.Runner.(*Lab); ok {
		l.MinIdle = fl.minIdle
	}
	f, err := fabric.Load(file)
	if err != nil {
		return err
	}
	e, err := fl.experiment(file, f)
	if err != nil {
		return err
	}
	Warn(c.ErrOrStderr(), f, fl.read.Schemes...)
	r, err := p.runSize(c.Context(), c.OutOrStdout(), c.ErrOrStderr(), e.Sizes[0], &fl.runFlags)
	if r == nil || r.Stored() == 0 {
		return err
	}
	return errors.Join(err, fl.write(c.OutOrStdout(), r))
}

// Warn says what is unwise in a fabric file under the schemes that it is to run
// with; "": its own.
func Warn(w io.Writer, f *fabric.File, schemes ...string) {
	for _, s := range schemes {
		for _, text := range f.Warnings(s) {
			fmt.Fprintln(w, "warning:", text)
		}
	}
}

// columns are the table's. A metric that no run has is left out.
var columns = []string{
	"goodput_bps", "workloads.*.goodput_bps",
	"fct.*.mean_s", "fct.all.p99_s", "fct.all.p999_s", "fct.all.slowdown_mean",
	"workloads.*.fct.all.mean_s", "workloads.*.fct.small.mean_s", "workloads.*.fct.large.mean_s",
	"workloads.*.fct.all.p99_s", "workloads.*.fct.all.p999_s", "workloads.*.fct.all.slowdown_mean",
	"flows", "unfinished",
	"workloads.*.reordering.percent", "workloads.*.reordering.mean_distance", "workloads.*.reordering.max_distance",
	"workloads.*.reordering.out_of_sequence_percent", "workloads.*.reordering.retransmitted_percent",
	"imbalance.*.mean", "imbalance.*.p50", "imbalance.*.p90",
	"uplinks.*.percent", "phases.*.percent",
	"reactions.*.before_percent", "reactions.*.after_percent", "reactions.*.followed_s",
	"machine.cpu_idle_percent",
}

// experiment writes the file that stands for the flags, and reads it as any other.
func (fl *compareFlags) experiment(file string, f *fabric.File) (*experiment.Experiment, error) {
	path, err := filepath.Abs(file)
	if err != nil {
		return nil, err
	}
	x := "scheme"
	switch {
	case experiment.CheckMetric(fl.metric, true) == nil:
		x = "cdf"
	case len(fl.read.Loads) > 1:
		x = "load"
	}
	var table []string
	for _, m := range columns {
		// A single workload's goodput is that of all.
		if !strings.HasPrefix(m, "workloads.*.goodput") || len(f.Workloads) > 1 {
			table = append(table, m)
		}
	}
	plot := map[string]any{"name": "plot", "x": x, "y": fl.metric}
	// JSON is YAML.
	text, err := json.MarshalIndent(map[string]any{
		"name":     "compare-" + strings.ReplaceAll(f.Name, "_", "-"),
		"title":    "Schemes compared on fabric " + f.Name,
		"topology": map[string]any{"kind": "file", "file": path},
		"measure":  map[string]any{"imbalance": fl.sample.String()},
		"plots":    []any{plot}, "table": table,
	}, "", "  ")
	if err != nil {
		return nil, err
	}
	e, err := experiment.Parse("compare", text, fl.read)
	if err != nil {
		return nil, err
	}
	e.Command = fmt.Sprintf("loomlab compare -f %s --schemes %s --seeds %d", file, strings.Join(fl.read.Schemes, ","), fl.read.Seeds)
	if len(fl.read.Loads) > 0 {
		e.Command += " --loads " + strings.Trim(strings.ReplaceAll(fmt.Sprint(fl.read.Loads), " ", ","), "[]")
	}
	if fl.on != experiment.OnLab {
		e.Command += " --on " + fl.on
	}
	return e, nil
}

// write writes what was asked for.
func (fl *compareFlags) write(out io.Writer, r *experiment.Results) error {
	fl.title = r.Size.Experiment.Title
	err := fl.outputs.write(out, []*experiment.Results{r})
	if fl.svg == "" {
		return err
	}
	figures := report.Figures(r)
	if len(figures) == 0 {
		return errors.Join(err, fmt.Errorf("plot: no run has %q: --csv lists what runs have", fl.metric))
	}
	return errors.Join(err, WriteFile(out, fl.svg, figures[0].SVG))
}
