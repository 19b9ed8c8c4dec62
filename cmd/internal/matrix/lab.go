package matrix

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/loomfabric/loom/config"
	"github.com/loomfabric/loom/config/fabric"
	"github.com/loomfabric/loom/config/vocab"
	"github.com/loomfabric/loom/internal/experiment"
	"github.com/loomfabric/loom/internal/measure"
	"github.com/loomfabric/loom/internal/yamlfile"
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
		rep, err := l.Run(ctx, lab.RunOptions{Sample: s.Measure.Imbalance})
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
	if err := adopt(f, s); err != nil {
		return nil, err
	}
	switch cc := s.Transport.CongestionControl; cc {
	case "":
	case "newreno":
		f.TCP = "reno" // as Linux calls it
	default:
		f.TCP = cc
	}
	if s.Transport.Type == "mptcp" {
		f.Subflows = s.Transport.Subflows
	}
	for i := range f.Workloads {
		w := &f.Workloads[i]
		w.Seed = s.Seed
		if !hasLoad(*w) {
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

// adopt puts what a run says of schemes and their sections on top of a fabric.yaml.
func adopt(f *fabric.File, s *sim.Spec) error {
	if s.Scheme != "" && s.Scheme != f.Scheme {
		if err := f.SetScheme(s.Scheme); err != nil {
			return err
		}
	}
	own := *s
	own.Sections = s.Sections.Clone()
	if err := own.Adopt(f).Or(); err != nil {
		return err
	}
	f.Keys, f.Congestion, f.Sections = own.Keys, own.Congestion, own.Sections
	return nil
}

// honours reports whether the lab sets a key of a model; see open. It builds what the
// fabric.yaml says otherwise.
func honours(key string) bool {
	keys := []string{
		"topology.kind", "topology.file", "topology.load", "scheme", "seed", "congestion", "transport.cc",
		"measure.small", "measure.large", "measure.imbalance",
	}
	keys = slices.Concat(keys, new(vocab.Keys).ExtraKeys(), new(vocab.Sections).ExtraKeys())
	return slices.ContainsFunc(keys, func(k string) bool { return key == k || strings.HasPrefix(key, k+".") })
}

// Check implements [experiment.Runner]: it refuses keys that the lab would ignore,
// whatever keys there are.
func (r *Lab) Check(s *sim.Spec) (problems yamlfile.Errors) {
	if s.Topology.Kind != "file" {
		problems.Errorf("topology.kind", "the lab builds the fabric of a fabric.yaml, not a %s; write {kind: file, file: ...}, or simulate it (--on sim)", s.Topology.Kind)
		return problems
	}
	plain := &sim.Spec{Topology: sim.Topology{Kind: "file", File: s.Topology.File}}
	_ = plain.Complete("") // what is left out is filled in by now
	multipath := s.Transport.Type == "mptcp"
	if n := s.Transport.Subflows; n > fabric.MaxSubflows {
		problems.Errorf("transport.subflows", "%d subflows; Linux makes at most %d between two hosts with one address each", n, fabric.MaxSubflows)
	}
	for _, path := range config.Diff(s, plain) {
		if !honours(path) && !(multipath && (path == "transport.type" || path == "transport.subflows")) {
			problems.Errorf(path, "the lab cannot set %s: its fabric.yaml, the daemons and Linux decide; leave it out, or simulate it (--on sim)", path)
		}
	}
	if every := s.Measure.Imbalance; every > 0 && every < lab.MinSample {
		problems.Errorf("measure.imbalance", "samples every %v; the lab samples every %v at most", every, lab.MinSample)
	}
	f, err := fabric.Load(s.Topology.File)
	var errs yamlfile.Errors
	if errors.As(err, &errs) {
		if errs[0].Line == 0 { // there is no such file
			errs[0].File, errs[0].Path = "", "topology.file"
		}
		return append(problems, errs...)
	}
	if s.Topology.Load > 0 && !slices.ContainsFunc(f.Workloads, hasLoad) {
		problems.Errorf("topology.load", "%s has no workload of type poisson or roce that a load could be for; remove it", s.Topology.File)
	}
	if err := adopt(f, s); errors.As(err, &errs) {
		problems = append(problems, errs...)
	}
	return problems
}

func hasLoad(w vocab.Workload) bool { return w.Type == vocab.Poisson || w.Type == vocab.RoCE }

// LabCommands returns the hidden commands by which the lab starts its program
// again, as its guard: a program that can run on the lab has them.
func LabCommands() []*cobra.Command {
	return []*cobra.Command{
		{Use: "guard NAME", Hidden: true, Args: cobra.ExactArgs(1),
			RunE: func(_ *cobra.Command, args []string) error { return lab.Guard(args[0], os.Stdin) }},
	}
}
