package matrix

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/loomfabric/loom/fabric"
	"github.com/loomfabric/loom/internal/experiment"
	"github.com/loomfabric/loom/internal/measure"
	"github.com/loomfabric/loom/lab"
	"github.com/loomfabric/loom/sim"
)

// Lab is the runner over real daemons: it builds a fresh fabric for each run.
type Lab struct {
	Build string // the program's version
	// Daemons is where leafd and spined are looked for; empty: beside the program,
	// then on $PATH.
	Daemons string
	// MinIdle is the share of the cores that must have been idle under the load. A
	// run with less measured the machine, not the fabric: it is made again, up to
	// three times in all, and fails if that does not help.
	MinIdle float64
	Log     io.Writer // says why a run is made again; nil: nobody does

	version string
}

// Name implements [experiment.Runner].
func (*Lab) Name() string { return experiment.OnLab }

// Version implements [experiment.Runner]: the daemons are programs of their own.
func (r *Lab) Version() string {
	if r.version == "" {
		r.version = r.Build
		if h := (&lab.Lab{Binaries: r.Daemons}).DaemonsHash(); h != "" {
			r.version += "+daemons-" + h
		}
	}
	return r.version
}

// Jobs implements [experiment.Runner]: runs share the machine that they measure.
func (*Lab) Jobs() int { return 1 }

// tries is how often a run is made at most until the machine was idle enough.
const tries = 3

// Run implements [experiment.Runner].
func (r *Lab) Run(ctx context.Context, s *sim.Spec) (*measure.Result, error) {
	for try := 1; ; try++ {
		l, err := r.open(s)
		if err != nil {
			return nil, err
		}
		rep, err := l.Run(ctx, lab.RunOptions{Sample: s.Measure.Imbalance.D()})
		if err == nil {
			err = rep.Failure()
		}
		if err != nil {
			return nil, err
		}
		idle := rep.Result.Machine.CPUIdlePercent // nil: there was no load
		if idle == nil || *idle >= 100*r.MinIdle {
			return rep.Result, nil
		}
		err = fmt.Errorf("%.0f %% of the CPU was idle, less than %.0f %%", *idle, 100*r.MinIdle)
		if try == tries {
			return nil, fmt.Errorf("%w, %d times", err, tries)
		}
		if r.Log != nil {
			fmt.Fprintf(r.Log, "%s, seed %d, is made again: %v\n", rep.Result.Scheme, s.Seed, err)
		}
	}
}

// open reads the fabric of a run and sets what the run says otherwise.
func (r *Lab) open(s *sim.Spec) (*lab.Lab, error) {
	f, err := fabric.Load(s.Topology.File)
	if err != nil {
		return nil, err
	}
	// The file's own scheme keeps its weights and samples.
	if s.Scheme != "" && s.Scheme != f.Scheme {
		if err := f.SetScheme(s.Scheme); err != nil {
			return nil, err
		}
	}
	c := s.Congestion
	sim.Inherit(&c, &f.Congestion)
	f.Congestion = c
	switch cc := s.Transport.CongestionControl; cc {
	case "":
	case "newreno":
		f.TCP = "reno" // as Linux calls it
	default:
		f.TCP = cc
	}
	for i := range f.Workloads {
		w := &f.Workloads[i]
		w.Seed = s.Seed
		if w.Type != fabric.Request && w.Type != fabric.RoCE {
			continue
		}
		if s.Topology.Load > 0 {
			w.Load = s.Topology.Load
		}
		if s.Measure.Large > 0 {
			w.Small, w.Large = s.Measure.Small, s.Measure.Large
		}
	}
	l := lab.New(f)
	l.BaseDir, l.Binaries = filepath.Dir(s.Topology.File), r.Daemons
	if l.IsUp() {
		return nil, fmt.Errorf("fabric %s is up, and every run needs a fresh one: take it down (`loomlab down`)", f.Name)
	}
	return l, nil
}

// Check implements [experiment.Runner]: the lab builds what a fabric.yaml says, and
// refuses what an experiment says beyond it.
func (r *Lab) Check(s *sim.Spec) (problems []*sim.Problem) {
	refuse := func(bad bool, path, format string, args ...any) {
		if bad {
			problems = append(problems, &sim.Problem{Path: path, Msg: fmt.Sprintf(format, args...)})
		}
	}
	if s.Topology.Kind != "file" {
		refuse(true, "topology.kind", "the lab builds the fabric of a fabric.yaml, not a %s: write {kind: file, file: ...}, or simulate it (--on sim)", s.Topology.Kind)
		return problems
	}
	const file = "the lab takes it from the fabric.yaml"
	asDefault := &sim.Spec{Topology: sim.Topology{Kind: "file", File: s.Topology.File}}
	asDefault.Complete("") // what is left out is filled in by now
	a, b := s.Transport, asDefault.Transport
	refuse(a.Type != b.Type, "transport.type", "the lab's hosts speak TCP; RoCE is a workload of the fabric.yaml")
	refuse(a.MTU != b.MTU, "transport.mtu", "the lab's hosts have an MTU of %d bytes", b.MTU)
	refuse(a.MinRTO != b.MinRTO, "transport.min-rto", "the lab's hosts run Linux's TCP, whose least timeout is %v", b.MinRTO)
	refuse(a.Window != b.Window, "transport.window", "the lab's hosts run Linux's TCP, which sizes windows itself")
	refuse(a.Burst != b.Burst, "transport.burst", "the lab's hosts have segmentation offload off")
	refuse(*s.Topology.Overhead != *asDefault.Topology.Overhead, "topology.overhead", "the lab's overlay adds what it adds")
	refuse(s.ConWeave != (sim.ConWeave{}), "conweave", file)
	refuse(len(s.Workloads) > 0, "workloads", file)
	refuse(len(s.Faults) > 0, "faults", file)
	for path, set := range map[string]bool{"warmup": s.Warmup != 0, "duration": s.Duration != 0, "drain": s.Drain != 0} {
		refuse(set, path, "the lab takes its times from the fabric.yaml")
	}
	refuse(len(s.Measure.Buckets) > 0, "measure.buckets", "the lab tells small, medium and large flows apart")
	refuse(len(s.Measure.Queues) > 0, "measure.queues", "the lab does not look into queues")
	refuse(s.Measure.Reorder > 0, "measure.reorder", "the lab does not look into queues")
	every := s.Measure.Imbalance.D()
	refuse(every > 0 && every < lab.MinSample, "measure.imbalance", "%v: the lab samples every %v at most", every, lab.MinSample)
	f, err := fabric.Load(s.Topology.File)
	if err != nil {
		return append(problems, &sim.Problem{Path: "topology.file", Msg: err.Error()})
	}
	loaded := false
	for _, w := range f.Workloads {
		loaded = loaded || w.Type == fabric.Request || w.Type == fabric.RoCE
	}
	refuse(s.Topology.Load > 0 && !loaded, "topology.load", "%s has no workload of type request or roce that a load could be for", s.Topology.File)
	if s.Scheme != "" && s.Scheme != f.Scheme {
		if err := f.SetScheme(s.Scheme); err != nil {
			problems = append(problems, &sim.Problem{Path: "scheme", Msg: err.Error()})
		}
	}
	return problems
}

// LabCommands returns the hidden commands by which the lab starts its program
// again, in a host and as its guard: a program that can run on the lab has them.
func LabCommands() []*cobra.Command {
	return []*cobra.Command{
		{Use: "agent CONGESTION", Hidden: true, Args: cobra.ExactArgs(1),
			RunE: func(_ *cobra.Command, args []string) error { return lab.Agent(os.Stdin, os.Stdout, args[0]) }},
		{Use: "guard NAME", Hidden: true, Args: cobra.ExactArgs(1),
			RunE: func(_ *cobra.Command, args []string) error { return lab.Guard(args[0], os.Stdin) }},
	}
}
