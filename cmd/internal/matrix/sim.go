package matrix

import (
	"context"
	"errors"
	"regexp"
	"runtime"
	"strings"

	"github.com/loomfabric/loom/internal/experiment"
	"github.com/loomfabric/loom/internal/measure"
	"github.com/loomfabric/loom/internal/yamlfile"
	"github.com/loomfabric/loom/sim"
)

// Simulator is the runner in virtual time.
type Simulator struct {
	Build   string // the program's version
	Threads int    // that a run may use; 0 stands for 1
}

// Name implements [experiment.Runner].
func (*Simulator) Name() string { return experiment.OnSim }

// Version implements [experiment.Runner].
func (s *Simulator) Version() string { return s.Build }

// Jobs implements [experiment.Runner]: runs share nothing.
func (*Simulator) Jobs() int { return 4 * runtime.NumCPU() }

// Run implements [experiment.Runner].
func (s *Simulator) Run(ctx context.Context, spec *sim.Spec) (*measure.Result, error) {
	return sim.RunThreads(ctx, spec, s.Threads)
}

// workloadPrefix is how [sim.Flows] names what is wrong with a workload: its
// position and name, and the key if it is about one.
var workloadPrefix = regexp.MustCompile(`^(workloads\[\d+\]) \([^)]*\): (?:([a-z_]+): )?`)

// Check implements [experiment.Runner]: it looks for what only building a run's
// fabric and flows shows.
func (*Simulator) Check(s *sim.Spec) (errs yamlfile.Errors) {
	_, err := sim.Flows(s)
	if err == nil || errors.As(err, &errs) {
		return errs
	}
	path, text := "", err.Error()
	if m := workloadPrefix.FindStringSubmatch(text); m != nil {
		path, text = strings.TrimSuffix(m[1]+"."+m[2], "."), text[len(m[0]):]
	}
	if i := strings.LastIndex(text, ": "); i >= 0 && !strings.Contains(text, "; ") {
		text = text[:i] + "; " + text[i+2:] // what to do comes last
	}
	errs.Errorf(path, "%s", text)
	return errs
}
