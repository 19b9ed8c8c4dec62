package matrix

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/loomfabric/loom/internal/experiment"
	"github.com/loomfabric/loom/internal/experiment/report"
	"github.com/loomfabric/loom/internal/status"
)

// runFlags are the flags of run and compare.
type runFlags struct {
	on    string
	read  experiment.Options
	make  experiment.RunOptions
	check bool
	shard string
	// threads is how many a simulated run may use.
	threads int
}

// flags adds those that run and compare share.
func (fl *runFlags) flags(p *Program, cmd *cobra.Command) {
	p.onFlag(cmd, &fl.on)
	f := cmd.Flags()
	f.Float64SliceVar(&fl.read.Loads, "loads", nil, "loads in percent instead of the file's")
	f.IntVarP(&fl.make.Jobs, "jobs", "j", runtime.NumCPU(), "simulated runs side by side; the lab makes one after the other")
	f.IntVar(&fl.threads, "threads", 1, "threads of one simulated run, which do not change its result; with several, -j is as many runs as there are cores for")
	f.BoolVar(&fl.make.Force, "force", false, "make runs again that are stored")
	f.BoolVar(&fl.make.AnyVersion, "any-version", false, "keep stored runs of other versions of the program")
}

// choose finds the runner and checks what no flag's type does.
func (fl *runFlags) choose(p *Program, cmd *cobra.Command) (err error) {
	if fl.make.Jobs < 1 {
		return fmt.Errorf("-j %d: at least 1", fl.make.Jobs)
	}
	if cmd.Flags().Changed("seeds") && fl.read.Seeds < 1 {
		return fmt.Errorf("--seeds %d: at least 1", fl.read.Seeds)
	}
	if fl.threads < 1 {
		return fmt.Errorf("--threads %d: at least 1", fl.threads)
	}
	if fl.shard != "" {
		if fl.make.Shard, err = experiment.ParseShard(fl.shard); err != nil {
			return fmt.Errorf("--%w", err)
		}
		if fl.check && !fl.make.Shard.All() {
			return errors.New("--check needs the results of all shards: run again without --shard when they are there")
		}
	}
	if fl.make.Runner, err = p.runner(fl.on); err != nil {
		return err
	}
	fl.read.Check = fl.make.Runner.Check
	if s, ok := fl.make.Runner.(*Simulator); ok {
		s.Threads = fl.threads
		if !cmd.Flags().Changed("jobs") {
			fl.make.Jobs = max(1, runtime.NumCPU()/fl.threads)
		}
	}
	return nil
}

// RunCommand returns the command that makes the runs of experiment files.
func (p *Program) RunCommand() *cobra.Command {
	var fl runFlags
	cmd := &cobra.Command{
		Use: "run EXPERIMENT.yaml...", Short: "Make the runs of experiments that are not stored, and print the results", Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, files []string) error {
			if err := fl.choose(p, c); err != nil {
				return err
			}
			return p.runFiles(c, files, &fl)
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&fl.read.Sizes, "size", nil, "sizes of the experiments; of several, each has to have one (default: its first)")
	f.StringSliceVar(&fl.read.Schemes, "schemes", nil, "schemes instead of the file's: its labels, or names of schemes")
	f.IntVar(&fl.read.Seeds, "seeds", 0, "how often each run is repeated, instead of the file's")
	f.StringVar(&fl.shard, "shard", "", "make part I of N of every experiment's runs only, as in 0/4 to 3/4: for machines of a batch system")
	f.BoolVar(&fl.check, "check", false, "fail if an expectation is not reproduced, but for those whose difference is known")
	fl.flags(p, cmd)
	return cmd
}

// runFiles runs one experiment after the other. One that fails does not keep the
// others from being run; the end of the context does.
func (p *Program) runFiles(c *cobra.Command, files []string, fl *runFlags) error {
	var sizes []*experiment.Size
	for _, file := range files { // all are read before one is run
		e, err := experiment.Load(file, fl.read)
		if err != nil {
			return err
		}
		named, err := e.Named(fl.read.Sizes)
		if err != nil {
			return err
		}
		sizes = append(sizes, named...)
	}
	var errs []error
	for i, s := range sizes {
		if i > 0 {
			fmt.Fprintln(c.OutOrStdout())
		}
		_, err := p.runSize(c.Context(), c.OutOrStdout(), c.ErrOrStderr(), s, fl)
		if errors.Is(err, context.Canceled) {
			return errors.Join(append(errs, err)...)
		}
		if err != nil && len(sizes) > 1 {
			err = fmt.Errorf("%s: %w", s.Experiment.File, err)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// runSize makes the runs of a size that are not stored, and prints what all of them
// found. The results are nil if there are none to show.
func (p *Program) runSize(ctx context.Context, out, progress io.Writer, s *experiment.Size, fl *runFlags) (*experiment.Results, error) {
	st := s.Store(p.results, fl.on)
	shown := &experiment.Progress{Line: status.New(progress)}
	opt := fl.make
	opt.Report = shown.Report
	sum, err := st.Run(ctx, s, opt)
	shown.End()
	if sum != nil && errors.Is(err, context.Canceled) {
		how := "the same command makes the rest"
		if opt.Force {
			how = "with --force all would be made again"
		}
		return nil, fmt.Errorf("%s: %d of %d runs are in %s; %s: %w",
			s.Experiment.Name, sum.Kept+sum.Made, sum.Total, st.Dir(), how, errors.Join(sum.Failure(), errInterrupted{}))
	}
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(progress, "%d runs made, %d were stored already in %s\n", sum.Made, sum.Kept, st.Dir())
	if !opt.Shard.All() {
		return nil, sum.Failure() // the others' results may not be there yet
	}
	r, err := st.Results(s)
	if err != nil {
		return nil, err
	}
	if err := report.Text(out, r); err != nil {
		return r, err
	}
	return r, errors.Join(sum.Failure(), fl.expected(r))
}

// expected is the failure of expectations, if that is one.
func (fl *runFlags) expected(r *experiment.Results) error {
	if !fl.check {
		return nil
	}
	fails := 0
	for _, o := range r.Outcomes() {
		if o.Fails() {
			fails++
		}
	}
	if fails == 0 {
		return nil
	}
	return fmt.Errorf("%d expectations of %s are not reproduced", fails, r.Size.Experiment.Name)
}

// errInterrupted is context.Canceled in words for people.
type errInterrupted struct{}

// Error implements error.
func (errInterrupted) Error() string { return "interrupted" }

// Is makes it what it stands for.
func (errInterrupted) Is(target error) bool { return target == context.Canceled }
