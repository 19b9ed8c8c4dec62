// Command loomsim runs experiments in virtual time and shows what they found; see
// docs/loomsim.md.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime/pprof"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/loomfabric/loom/cmd/internal/matrix"
	"github.com/loomfabric/loom/internal/buildinfo"
	"github.com/loomfabric/loom/internal/experiment"
	"github.com/loomfabric/loom/internal/manpage"
)

// version is set by the linker.
var version string

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM, unix.SIGHUP)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	build := matrix.Version(version)
	p := &program{version: build, Program: matrix.Program{Runners: []experiment.Runner{&matrix.Simulator{Build: build}, &matrix.Lab{Build: build, Log: os.Stderr}}}}
	if err := p.command().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "loomsim:", err)
		os.Exit(1)
	}
}

// program is what the commands share.
type program struct {
	matrix.Program
	version string
}

func (p *program) command() *cobra.Command {
	var cpuprofile string
	stop := func() error { return nil }
	root := &cobra.Command{
		Use:   "loomsim",
		Short: "Experiments with fabrics in virtual time",
		Long: "loomsim makes the runs of experiments, one simulated fabric each, keeps what they found in\n" +
			"a directory, and shows it as tables, figures, CSV and one page of HTML. With --on lab the\n" +
			"runs are made over real daemons.",
		SilenceUsage: true, SilenceErrors: true,
		PersistentPreRunE: func(*cobra.Command, []string) error {
			if cpuprofile == "" {
				return nil
			}
			f, err := os.Create(cpuprofile)
			if err != nil {
				return fmt.Errorf("profile: %w", err)
			}
			stop = func() error {
				pprof.StopCPUProfile()
				return f.Close()
			}
			return pprof.StartCPUProfile(f)
		},
	}
	p.ResultsFlag(root)
	root.PersistentFlags().StringVar(&cpuprofile, "cpuprofile", "", "write a profile of the CPU into this file")
	for _, c := range []*cobra.Command{p.RunCommand(), p.ListCommand(), p.PlotCommand(), p.ReportCommand(), traceCommand(), gameCommand(), theoremCommand()} {
		do := c.RunE
		c.RunE = func(c *cobra.Command, args []string) error { return errors.Join(do(c, args), stop()) }
		root.AddCommand(c)
	}
	root.AddCommand(matrix.LabCommands()...)
	root.AddCommand(replayCommand())
	root.AddCommand(buildinfo.Command("loomsim", p.version), manpage.Command("1", p.version))
	return root
}
