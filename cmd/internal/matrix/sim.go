package matrix

import (
	"context"
	"errors"
	"regexp"
	"runtime"
	"strings"

	"github.com/loomfabric/loom/internal/experiment"
	"github.com/loomfabric/loom/internal/measure"
	"github.com/loomfabric/loom/sim"
)

// Simulator is the runner in virtual time.
type Simulator struct{ Build string } // the program's version

// Name implements [experiment.Runner].
func (*Simulator) Name() string { return experiment.OnSim }

// Version implements [experiment.Runner].
func (s *Simulator) Version() string { return s.Build }

// Jobs implements [experiment.Runner]: a run is one goroutine.
func (*Simulator) Jobs() int { return 4 * runtime.NumCPU() }

// Run implements [experiment.Runner].
func (*Simulator) Run(ctx context.Context, spec *sim.Spec) (*measure.Result, error) {
	return sim.Run(ctx, spec)
}

// workloadPrefix is how [sim.Flows] names what is wrong with a workload: its
// position and name, and the key if it is about one.
var workloadPrefix = regexp.MustCompile(`^(workloads\[\d+\]) \([^)]*\): (?:([a-z-]+): )?`)

// Check implements [experiment.Runner]: it looks for what only building a run's
// fabric and flows shows.
func (*Simulator) Check(s *sim.Spec) []*sim.Problem {
	_, err := sim.Flows(s)
	if err == nil {
		return nil
	}
	var p *sim.Problem
	if errors.As(err, &p) {
		return []*sim.Problem{p}
	}
	p = &sim.Problem{Msg: err.Error()}
	if m := workloadPrefix.FindStringSubmatch(p.Msg); m != nil {
		p.Path, p.Msg = strings.TrimSuffix(m[1]+"."+m[2], "."), p.Msg[len(m[0]):]
	}
	return []*sim.Problem{p}
}
