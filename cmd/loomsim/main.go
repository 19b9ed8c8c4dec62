// Command loomsim runs experiments in virtual time and shows what they found; see
// docs/loomsim.md.
package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"runtime/debug"
	"runtime/pprof"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/loomfabric/loom/sim"
	"github.com/loomfabric/loom/internal/experiment"
)

// version is set by the linker.
var version string

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM, unix.SIGHUP)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	p := &program{run: sim.Run, version: version}
	if p.version == "" {
		p.version = recorded()
	}
	if err := p.command().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "loomsim:", err)
		os.Exit(1)
	}
}

// recorded is the version that the Go tool wrote into the program. What it did not
// give one to goes by its contents: results of another program must not pass for
// this one's.
func recorded() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		revision, dirty := "", false
		for _, s := range info.Settings {
			switch s.Key {
			case "vcs.revision":
				revision = s.Value[:min(len(s.Value), 12)]
			case "vcs.modified":
				dirty = s.Value == "true"
			}
		}
		if revision != "" && !dirty {
			return revision
		}
	}
	name, err := os.Executable()
	if err != nil {
		return "unknown"
	}
	data, err := os.ReadFile(name)
	if err != nil {
		return "unknown"
	}
	sum := sha256.Sum256(data)
	return "build-" + hex.EncodeToString(sum[:6])
}

// program is what the commands share.
type program struct {
	run     experiment.RunFunc
	version string
	results string // the directory below which results are
}

func (p *program) command() *cobra.Command {
	var cpuprofile string
	stop := func() error { return nil }
	root := &cobra.Command{
		Use:   "loomsim",
		Short: "Experiments with fabrics in virtual time",
		Long: "loomsim makes the runs of experiments, one simulated fabric each, keeps what they found in\n" +
			"a directory, and shows it as tables, figures, CSV and one page of HTML.",
		SilenceUsage: true, SilenceErrors: true,
		PersistentPreRunE: func(*cobra.Command, []string) (err error) {
			stop, err = profile(cpuprofile)
			return err
		},
	}
	root.PersistentFlags().StringVar(&p.results, "results", "results", "directory of results: below it is one for each experiment and size")
	root.PersistentFlags().StringVar(&cpuprofile, "cpuprofile", "", "write a profile of the CPU into this file")
	for _, c := range []*cobra.Command{p.runCommand(), p.listCommand(), p.plotCommand(), p.reportCommand(), p.traceCommand(), theoremCommand()} {
		do := c.RunE
		c.RunE = func(c *cobra.Command, args []string) error { return errors.Join(do(c, args), stop()) }
		root.AddCommand(c)
	}
	root.AddCommand(&cobra.Command{
		Use: "version", Short: "Print the version", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(c.OutOrStdout(), "loomsim", p.version)
			return err
		},
	})
	return root
}

// profile begins to profile into a file, if it has a name; stop ends it.
func profile(name string) (stop func() error, err error) {
	if name == "" {
		return func() error { return nil }, nil
	}
	f, err := os.Create(name)
	if err != nil {
		return nil, fmt.Errorf("profile: %w", err)
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		f.Close()
		return nil, fmt.Errorf("profile: %w", err)
	}
	return func() error {
		pprof.StopCPUProfile()
		return f.Close()
	}, nil
}

// place is how [sim.Flows] names what is wrong with a workload: its position and
// name, and the key if it is about one.
var place = regexp.MustCompile(`^(workloads\[\d+\]) \([^)]*\): (?:([a-z-]+): )?`)

// check looks for what only building a run's fabric and flows shows.
func check(s *sim.Spec) []*sim.Problem {
	_, err := sim.Flows(s)
	if err == nil {
		return nil
	}
	var p *sim.Problem
	if errors.As(err, &p) {
		return []*sim.Problem{p}
	}
	p = &sim.Problem{Msg: err.Error()}
	if m := place.FindStringSubmatch(p.Msg); m != nil {
		p.Path, p.Msg = strings.TrimSuffix(m[1]+"."+m[2], "."), p.Msg[len(m[0]):]
	}
	return []*sim.Problem{p}
}
