// Package matrix is the front-end of experiments that loomsim and loomlab share:
// one matrix of runs, two runners. It is what wires the simulator and the lab,
// which do not know each other, to internal/experiment.
package matrix

import (
	"crypto/sha256"
	"fmt"
	"os"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/loomfabric/loom/internal/experiment"
)

// Program is what the commands of one program share.
type Program struct {
	// Runners make runs. The first is the one that --on need not name.
	Runners []experiment.Runner
	results string // the directory below which results are
}

// ResultsFlag adds --results to a command and those below it.
func (p *Program) ResultsFlag(c *cobra.Command) {
	c.PersistentFlags().StringVar(&p.results, "results", "results", "directory of results: below it is one for each experiment, size and runner")
}

// onFlag adds --on to a command.
func (p *Program) onFlag(c *cobra.Command, on *string) {
	c.Flags().StringVar(on, "on", p.Runners[0].Name(), "what makes the runs: sim, in virtual time, or lab, over leafd and spined on this machine (needs root)")
}

// runner finds a runner by its name.
func (p *Program) runner(name string) (experiment.Runner, error) {
	var names []string
	for _, r := range p.Runners {
		if r.Name() == name {
			return r, nil
		}
		names = append(names, r.Name())
	}
	return nil, fmt.Errorf("--on %q is unknown: write %s", name, strings.Join(names, " or "))
}

// Version returns the version that the linker set or, for want of it, the one that
// the Go tool wrote into the program. What it did not give one to goes by its
// contents: results of another program must not pass for this one's.
func Version(linked string) string {
	if linked != "" {
		return linked
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		set := map[string]string{}
		for _, s := range info.Settings {
			set[s.Key] = s.Value
		}
		if revision := set["vcs.revision"]; revision != "" && set["vcs.modified"] != "true" {
			return revision[:min(len(revision), 12)]
		}
	}
	name, _ := os.Executable()
	data, err := os.ReadFile(name)
	if err != nil {
		return "unknown"
	}
	sum := sha256.Sum256(data)
	return fmt.Sprintf("build-%x", sum[:6])
}
