// Command loomlab builds a leaf–spine fabric on one machine from a fabric.yaml,
// puts load on it and breaks it; see docs/lab.md.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/loomfabric/loom/cmd/internal/matrix"
	"github.com/loomfabric/loom/config/fabric"
	"github.com/loomfabric/loom/internal/buildinfo"
	"github.com/loomfabric/loom/internal/experiment"
	"github.com/loomfabric/loom/internal/manpage"
	"github.com/loomfabric/loom/lab"
)

// version is set by the linker.
var version string

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM, unix.SIGHUP)
	defer stop()
	if err := command().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "loomlab:", strings.ReplaceAll(err.Error(), context.Canceled.Error(), "interrupted"))
		os.Exit(1)
	}
}

func command() *cobra.Command {
	var file string
	root := &cobra.Command{
		Use:   "loomlab",
		Short: "A leaf–spine fabric on one machine, from one file",
		Long: "loomlab builds the fabric that a fabric.yaml describes out of network namespaces,\n" +
			"veth pairs, leafd and spined, puts load on it and takes links down. It needs root.",
		SilenceUsage: true, SilenceErrors: true,
	}
	root.PersistentFlags().StringVarP(&file, "fabric", "f", "fabric.yaml", "the fabric file")
	build := matrix.Version(version)
	p := &matrix.Program{Runners: []experiment.Runner{&matrix.Lab{Build: build, Log: os.Stderr}, &matrix.Simulator{Build: build}}}
	root.AddCommand(
		&cobra.Command{Use: "up", Short: "Build the fabric and start its daemons", Args: cobra.NoArgs,
			RunE: with(&file, func(c *cobra.Command, l *lab.Lab, _ []string) error {
				matrix.Warn(c.ErrOrStderr(), l.File, "")
				return l.Up(c.Context())
			})},
		&cobra.Command{Use: "down", Short: "Remove the fabric, whatever is left of it", Args: cobra.NoArgs,
			RunE: with(&file, func(_ *cobra.Command, l *lab.Lab, _ []string) error { return l.Down() })},
		&cobra.Command{Use: "exec HOST -- COMMAND...", Short: "Run a program in a host (or a leaf or spine)", Args: cobra.MinimumNArgs(2),
			RunE: with(&file, func(_ *cobra.Command, l *lab.Lab, args []string) error { return l.Exec(args[0], args[1:]) })},
		&cobra.Command{Use: "vtysh NODE [-- ARGUMENT...]", Short: "Run FRR's shell of a leaf or spine, for instance with -c 'show ip route'", Args: cobra.MinimumNArgs(1),
			RunE: with(&file, func(_ *cobra.Command, l *lab.Lab, args []string) error { return l.VTYSH(args[0], args[1:]) })},
		&cobra.Command{Use: "fail LINK", Short: "Take a link down, for instance L0-S1.0", Args: cobra.ExactArgs(1),
			RunE: with(&file, func(_ *cobra.Command, l *lab.Lab, args []string) error { return l.Fail(args[0]) })},
		&cobra.Command{Use: "restore LINK", Short: "Bring a failed link up again", Args: cobra.ExactArgs(1),
			RunE: with(&file, func(_ *cobra.Command, l *lab.Lab, args []string) error { return l.Restore(args[0]) })},
		runCommand(&file),
		p.CompareCommand(&file),
	)
	root.AddCommand(matrix.LabCommands()...)
	root.AddCommand(buildinfo.Command("loomlab", build), manpage.Command("1", build))
	return root
}

// with calls fn with the lab of the fabric file that file names by then.
func with(file *string, fn func(*cobra.Command, *lab.Lab, []string) error) func(*cobra.Command, []string) error {
	return func(c *cobra.Command, args []string) error {
		f, err := fabric.Load(*file)
		if err != nil {
			return err
		}
		l := lab.New(f)
		l.BaseDir = filepath.Dir(*file)
		return fn(c, l, args)
	}
}

func runCommand(file *string) *cobra.Command {
	var output, scheme string
	var keep bool
	var sample time.Duration
	cmd := &cobra.Command{
		Use: "run", Short: "Build the fabric, run its workloads and faults, report, take it down", Args: cobra.NoArgs,
		RunE: with(file, func(c *cobra.Command, l *lab.Lab, _ []string) error {
			if output != "table" && output != "json" {
				return fmt.Errorf("output %q is unknown: write table or json", output)
			}
			matrix.Warn(c.ErrOrStderr(), l.File, scheme)
			report, err := l.Run(c.Context(), lab.RunOptions{Keep: keep, Scheme: scheme, Sample: sample, Progress: os.Stderr})
			if err != nil {
				return err
			}
			if output == "json" {
				err = report.JSON(c.OutOrStdout())
			} else {
				err = report.Table(c.OutOrStdout())
			}
			return errors.Join(err, report.Failure())
		}),
	}
	cmd.Flags().StringVarP(&output, "output", "o", "table", "table or json")
	cmd.Flags().StringVar(&scheme, "scheme", "", "balance by this scheme instead of the file's")
	cmd.Flags().DurationVar(&sample, "sample", 0, "read the leaves' uplinks this often, for instance 50ms: imbalance and reaction to faults")
	cmd.Flags().BoolVar(&keep, "keep", false, "leave the fabric up afterwards")
	return cmd
}
