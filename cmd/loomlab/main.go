// Command loomlab builds a leaf–spine fabric on one machine from a fabric.yaml,
// puts load on it and breaks it; see docs/lab.md.
package main

import (
	"bytes"
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

// chosen is which lab a command is for: that of a fabric file, or one that is up, by name.
type chosen struct{ file, name string }

// lab returns the lab.
func (c *chosen) lab() (*lab.Lab, error) {
	if c.name != "" {
		return lab.Open(c.name)
	}
	f, err := fabric.Load(c.file)
	if err != nil {
		return nil, err
	}
	l := lab.New(f)
	l.BaseDir = filepath.Dir(c.file)
	return l, nil
}

func command() *cobra.Command {
	var which chosen
	root := &cobra.Command{
		Use:   "loomlab",
		Short: "A leaf–spine fabric on one machine, from one file",
		Long: "loomlab builds the fabric that a fabric.yaml describes out of network namespaces,\n" +
			"veth pairs, leafd and spined, puts load on it and takes links down. It needs root.",
		SilenceUsage: true, SilenceErrors: true,
	}
	root.PersistentFlags().StringVarP(&which.file, "fabric", "f", "fabric.yaml", "the fabric file")
	build := matrix.Version(version)
	p := &matrix.Program{Runners: []experiment.Runner{&matrix.Lab{Build: build, Log: os.Stderr}, &matrix.Simulator{Build: build}}}
	root.AddCommand(
		upCommand(&which),
		lsCommand(),
		runCommand(&which),
		importCommand(),
		p.CompareCommand(&which.file),
	)
	for _, c := range []*cobra.Command{
		{Use: "down", Short: "Remove the fabric, whatever is left of it", Args: cobra.NoArgs,
			RunE: with(&which, func(c *cobra.Command, l *lab.Lab, _ []string) error {
				l.Progress = c.ErrOrStderr()
				return l.Down()
			})},
		statusCommand(&which), logsCommand(&which),
		{Use: "shell NODE", Short: "A shell in a host, leaf or spine", Args: cobra.ExactArgs(1),
			RunE: with(&which, func(_ *cobra.Command, l *lab.Lab, args []string) error { return l.Shell(args[0]) })},
		{Use: "exec HOST -- COMMAND...", Short: "Run a program in a host (or a leaf or spine)", Args: cobra.MinimumNArgs(2),
			RunE: with(&which, func(_ *cobra.Command, l *lab.Lab, args []string) error { return l.Exec(args[0], args[1:]) })},
		{Use: "vtysh NODE [-- ARGUMENT...]", Short: "Run FRR's shell of a leaf or spine, for instance with -c 'show ip route'", Args: cobra.MinimumNArgs(1),
			RunE: with(&which, func(_ *cobra.Command, l *lab.Lab, args []string) error { return l.VTYSH(args[0], args[1:]) })},
		{Use: "fail LINK", Short: "Take a link down, for instance L0-S1.0", Args: cobra.ExactArgs(1),
			RunE: with(&which, func(_ *cobra.Command, l *lab.Lab, args []string) error { return l.Fail(args[0]) })},
		{Use: "restore LINK", Short: "Bring a failed link up again", Args: cobra.ExactArgs(1),
			RunE: with(&which, func(_ *cobra.Command, l *lab.Lab, args []string) error { return l.Restore(args[0]) })},
	} {
		c.Flags().StringVarP(&which.name, "lab", "l", "", "the lab of this name, which is up, instead of that of a file")
		root.AddCommand(c)
	}
	root.AddCommand(matrix.LabCommands()...)
	root.AddCommand(buildinfo.Command("loomlab", build), manpage.Command("1", build))
	return root
}

// with calls fn with the lab that which names by then.
func with(which *chosen, fn func(*cobra.Command, *lab.Lab, []string) error) func(*cobra.Command, []string) error {
	return func(c *cobra.Command, args []string) error {
		l, err := which.lab()
		if err != nil {
			return err
		}
		return fn(c, l, args)
	}
}

func importCommand() *cobra.Command {
	return &cobra.Command{
		Use: "import TOPOLOGY", Short: "Write the fabric.yaml that a containerlab topology amounts to", Args: cobra.ExactArgs(1),
		Long: "import reads a containerlab topology of nodes of kind linux, whose groups or labels (role) say\n" +
			"which are leaves, spines and hosts, and writes the same fabric with Loom's daemons to standard\n" +
			"output. What it cannot be is named with what to do; docs/lab.md says what is read.",
		Example: "  loomlab import clos.clab.yml > fabric.yaml",
		RunE: func(c *cobra.Command, args []string) error {
			src, err := os.ReadFile(args[0])
			if err != nil {
				return fmt.Errorf("read the topology: %w", err)
			}
			text, err := lab.Import(args[0], src)
			if err == nil {
				_, err = fmt.Fprint(c.OutOrStdout(), text)
			}
			return err
		},
	}
}

// pageSample is how often links are read for a page, unless the caller says otherwise.
const pageSample = 100 * time.Millisecond

func runCommand(which *chosen) *cobra.Command {
	var output, scheme, page string
	var keep bool
	var sample time.Duration
	cmd := &cobra.Command{
		Use: "run", Short: "Build the fabric, run its workloads and faults, report, take it down", Args: cobra.NoArgs,
		RunE: with(which, func(c *cobra.Command, l *lab.Lab, _ []string) error {
			if output != "table" && output != "json" {
				return fmt.Errorf("output %q is unknown: write table or json", output)
			}
			matrix.Warn(c.ErrOrStderr(), l.File, scheme)
			if page != "" && sample == 0 {
				sample = pageSample
			}
			report, err := l.Run(c.Context(), lab.RunOptions{Keep: keep, Scheme: scheme, Sample: sample, Page: page != "", Progress: os.Stderr})
			if err != nil {
				return err
			}
			if page != "" {
				var b bytes.Buffer
				if err = report.HTML(&b); err == nil {
					err = os.WriteFile(page, b.Bytes(), 0o644)
				}
				if err != nil {
					return fmt.Errorf("the page: %w", err)
				}
				fmt.Fprintf(c.ErrOrStderr(), "%s shows the run: open it in a browser\n", page)
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
	cmd.Flags().StringVar(&page, "html", "", "write a page of the run into this file: map, courses of time, flows and faults")
	cmd.Flags().BoolVar(&keep, "keep", false, "leave the fabric up afterwards")
	return cmd
}
