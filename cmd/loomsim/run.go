package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/loomfabric/loom/internal/experiment"
	"github.com/loomfabric/loom/internal/experiment/report"
)

// runFlags are what run is told.
type runFlags struct {
	read  experiment.Options
	make  experiment.RunOptions
	check bool
}

func (p *program) runCommand() *cobra.Command {
	var fl runFlags
	cmd := &cobra.Command{
		Use: "run EXPERIMENT.yaml...", Short: "Make the runs of experiments that are not stored, and print the results", Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, files []string) error {
			if fl.make.Jobs < 1 {
				return fmt.Errorf("-j %d: at least 1", fl.make.Jobs)
			}
			if c.Flags().Changed("seeds") && fl.read.Seeds < 1 {
				return fmt.Errorf("--seeds %d: at least 1", fl.read.Seeds)
			}
			fl.read.Check, fl.make.Run, fl.make.Version = check, p.run, p.version
			return p.runFiles(c, files, &fl)
		},
	}
	f := cmd.Flags()
	f.StringVar(&fl.read.Size, "size", "", "one of the experiment's sizes (default: its first)")
	f.StringSliceVar(&fl.read.Schemes, "schemes", nil, "schemes instead of the file's: its labels, or names of schemes")
	f.Float64SliceVar(&fl.read.Loads, "loads", nil, "loads in percent instead of the file's")
	f.IntVar(&fl.read.Seeds, "seeds", 0, "how often each run is repeated, instead of the file's")
	f.IntVarP(&fl.make.Jobs, "jobs", "j", runtime.NumCPU(), "runs side by side")
	f.BoolVar(&fl.make.Force, "force", false, "make runs again that are stored")
	f.BoolVar(&fl.make.AnyVersion, "any-version", false, "keep stored runs of other versions of loomsim")
	f.BoolVar(&fl.check, "check", false, "fail if an expectation does not hold")
	return cmd
}

// runFiles runs one experiment after the other. One that fails does not keep the
// others from being run; the end of the context does.
func (p *program) runFiles(c *cobra.Command, files []string, fl *runFlags) error {
	var sizes []*experiment.Size
	for _, file := range files { // all are read before one is run
		e, err := experiment.Load(file, fl.read)
		if err != nil {
			return err
		}
		s, err := e.Size(fl.read.Size)
		if err != nil {
			return err
		}
		sizes = append(sizes, s)
	}
	var errs []error
	for i, s := range sizes {
		if i > 0 {
			fmt.Fprintln(c.OutOrStdout())
		}
		err := p.runSize(c.Context(), c.OutOrStdout(), c.ErrOrStderr(), s, fl)
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

func (p *program) runSize(ctx context.Context, out, progress io.Writer, s *experiment.Size, fl *runFlags) error {
	st := experiment.OpenStore(s.DefaultDir(p.results))
	shown := &experiment.Progress{Out: progress, Terminal: isTerminal(progress)}
	opt := fl.make
	opt.Report = shown.Report
	sum, err := st.Run(ctx, s, opt)
	shown.End()
	if sum != nil && errors.Is(err, context.Canceled) {
		how := "the same command makes the rest"
		if opt.Force {
			how = "with --force all would be made again"
		}
		return fmt.Errorf("%s: %d of %d runs are in %s; %s: %w",
			s.Experiment.Name, sum.Kept+sum.Made, sum.Total, s.DefaultDir(p.results), how, errors.Join(sum.Failure(), errInterrupted{}))
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(progress, "%d runs made, %d were stored already in %s\n", sum.Made, sum.Kept, s.DefaultDir(p.results))
	r, err := st.Results(s)
	if err != nil {
		return err
	}
	if err := report.Text(out, r); err != nil {
		return err
	}
	return errors.Join(sum.Failure(), fl.expected(r))
}

// expected is the failure of expectations, if that is one.
func (fl *runFlags) expected(r *experiment.Results) error {
	fails := 0
	for _, o := range r.Outcomes() {
		if !o.Holds {
			fails++
		}
	}
	if !fl.check || fails == 0 {
		return nil
	}
	return fmt.Errorf("%d expectations of %s do not hold", fails, r.Size.Experiment.Name)
}

// errInterrupted is context.Canceled in words for people.
type errInterrupted struct{}

// Error implements error.
func (errInterrupted) Error() string { return "interrupted" }

// Is makes it what it stands for.
func (errInterrupted) Is(target error) bool { return target == context.Canceled }

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}
