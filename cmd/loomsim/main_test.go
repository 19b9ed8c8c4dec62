package main

import (
	"bytes"
	"context"
	"encoding/csv"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/loomfabric/loom/cmd/internal/matrix"
	"github.com/loomfabric/loom/internal/experiment"
	"github.com/loomfabric/loom/internal/measure"
	"github.com/loomfabric/loom/sim"
	"github.com/loomfabric/loom/sim/traffic"
)

const small = `name: small
title: A small fabric
paper: CONGA Figure 9
claim: CONGA is better.
topology: {leaves: 2, spines: 2, hosts: {per_leaf: 2, link: {rate: 1Gbit, queue: 1MB}}, links: {rate: 1Gbit, queue: 1MB}}
workloads: [{sizes: solar-rpc, load: 10}]
duration: 5ms
schemes: [ecmp, conga]
loads: [30, 60]
sizes:
  quick: {loads: [30]}
  full: {seeds: 2}
  paper: {published: true}
plots: [{name: fct, y: fct.all.norm}]
table: [fct.all.norm]
expect: [{metric: fct.all.norm, at: {load: 30}, scheme: conga, versus: ecmp, ratio: "< 1"}]
`

// tree is a directory with the experiment, in which the test then is.
func tree(t *testing.T) {
	t.Helper()
	t.Chdir(t.TempDir())
	if err := errors.Join(os.Mkdir("experiments", 0o755), os.WriteFile("experiments/small.yaml", []byte(small), 0o644)); err != nil {
		t.Fatal(err)
	}
}

// fake is made up: conga's mean FCT is half of ecmp's.
func fake(_ context.Context, s *sim.Spec) (*measure.Result, error) {
	norm := 4.0
	if s.Scheme == "conga" {
		norm = 2
	}
	return &measure.Result{Scheme: s.Scheme, Seed: s.Seed, End: "done", FCT: []measure.ClassFCT{{Class: "all", Norm: norm}}}, nil
}

// runner is the simulator, but for how runs are made.
type runner struct {
	matrix.Simulator
	run func(context.Context, *sim.Spec) (*measure.Result, error)
}

func (r *runner) Run(ctx context.Context, s *sim.Spec) (*measure.Result, error) { return r.run(ctx, s) }

// made returns a program of version v whose runs are made by a function, and the
// lab's by another.
func made(run func(context.Context, *sim.Spec) (*measure.Result, error)) *program {
	return &program{version: "v1", Program: matrix.Program{Runners: []experiment.Runner{
		&runner{matrix.Simulator{Build: "v1"}, run}, &matrix.Lab{Build: "v1"},
	}}}
}

// loomsim runs a command line and returns what it printed, progress apart.
func loomsim(ctx context.Context, p *program, args ...string) (stdout, stderr string, err error) {
	var out, progress bytes.Buffer
	c := p.command()
	c.SetArgs(args)
	c.SetOut(&out)
	c.SetErr(&progress)
	err = c.ExecuteContext(ctx)
	return out.String(), progress.String(), err
}

func want(t *testing.T, what, text string, parts ...string) {
	t.Helper()
	squeezed := strings.Join(strings.Fields(text), " ")
	for _, p := range parts {
		if !strings.Contains(squeezed, p) {
			t.Errorf("%s: no %q in\n%s", what, p, text)
		}
	}
}

func TestCommands(t *testing.T) {
	tree(t)
	var runs atomic.Int64
	p := made(func(ctx context.Context, s *sim.Spec) (*measure.Result, error) { runs.Add(1); return fake(ctx, s) })
	do := func(args ...string) (string, string) {
		t.Helper()
		out, progress, err := loomsim(t.Context(), p, args...)
		if err != nil {
			t.Fatalf("%v: %v", args, err)
		}
		return out, progress
	}
	out, _ := do("list")
	want(t, "list", out, "experiments/small.yaml CONGA Figure 9 A small fabric quick 2 0 full 8 0 paper 20 0")
	if _, _, err := loomsim(t.Context(), p, "report"); err == nil || !strings.Contains(err.Error(), "make some with loomsim run") {
		t.Errorf("a report of nothing: %v", err)
	}
	out, progress := do("run", "experiments/small.yaml")
	want(t, "run", out, "small, size quick: mean, ×ratio to ecmp seed by seed", "30 % ecmp conga mean FCT ÷ idle network's 4.00 2.00 ×0.500", "direction only (by the mean): fct.all.norm of conga over that of ecmp < 1 (30 % load): 0.500")
	want(t, "progress", progress, "2/2 ", "2 runs made, 0 were stored already in results/small-quick")
	do("run", "experiments/small.yaml", "--size", "full", "-j", "3", "--check")
	if runs.Load() != 10 {
		t.Errorf("%d runs made, want 10", runs.Load())
	}
	_, progress = do("run", "experiments/small.yaml", "--size", "full")
	want(t, "again", progress, "0 runs made, 8 were stored already")
	_, progress = do("run", "experiments/small.yaml", "--size", "full", "--force", "--schemes", "conga,letflow", "--loads", "50", "--seeds", "3")
	want(t, "other runs", progress, "6 runs made")
	out, _ = do("list", "experiments/small.yaml")
	want(t, "list", out, "quick 2 2 full 8 8 paper 20 0")
	out, _ = do("plot", "--size", "full")
	for _, file := range strings.Fields(out) {
		if info, err := os.Stat(file); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v", file, err)
		}
	}
	want(t, "plot", out, "results/small-full/figures/small-full-fct.svg results/small-full/figures/small-full-fct.png")
	out, _ = do("report")
	want(t, "report", out, "results/report.html")
	page, err := os.ReadFile("results/report.html")
	if err != nil {
		t.Fatal(err)
	}
	want(t, "page", string(page), "<td>quick</td><td class=\"n\">2/2</td>", "<td>full</td><td class=\"n\">8/8</td>", "CONGA is better.")
	out, _ = do("report", "--csv", "-", "--size", "full")
	if rows, err := csv.NewReader(strings.NewReader(out)).ReadAll(); err != nil || len(rows) != 9 {
		t.Errorf("%d rows, %v", len(rows), err)
	}
	if _, _, err := loomsim(t.Context(), p, "report", "--markdown", "results.md"); err == nil || !strings.Contains(err.Error(), "published: true") {
		t.Errorf("a page of what is not published: %v", err)
	}
	_, progress = do("run", "experiments/small.yaml", "--size", "paper,full", "--check")
	want(t, "sizes", progress, "0 runs made, 8 were stored already", "20 runs made, 0 were stored already in results/small-paper")
	do("report", "--markdown", "results.md")
	first, _ := os.ReadFile("results.md")
	do("report", "--markdown", "results.md")
	second, _ := os.ReadFile("results.md")
	if string(first) != string(second) || !strings.Contains(string(first), "`loomsim run experiments/small.yaml --size paper`") {
		t.Errorf("the document is\n%s\nand then\n%s", first, second)
	}
	out, _ = do("version")
	want(t, "version", out, "loomsim v1")
}

func TestTrace(t *testing.T) {
	tree(t)
	p := made(fake)
	if _, _, err := loomsim(t.Context(), p, "trace", "experiments/small.yaml", "--run", "conga_load30_seed1", "-o", "trace.csv"); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open("trace.csv")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	flows, err := traffic.ReadTrace(f, 4, traffic.Stream{})
	if err != nil || len(flows) < 10 {
		t.Errorf("%d flows, %v", len(flows), err)
	}
	// All schemes have the same flows.
	conga, _ := os.ReadFile("trace.csv")
	ecmp, _, err := loomsim(t.Context(), p, "trace", "experiments/small.yaml", "--run", "ecmp_load30_seed1")
	if err != nil || ecmp != string(conga) {
		t.Errorf("ecmp's flows are not conga's: %v", err)
	}
	if _, _, err := loomsim(t.Context(), p, "trace", "experiments/small.yaml", "--run", "x"); err == nil || !strings.Contains(err.Error(), "ecmp_load30_seed1") {
		t.Errorf("a run that is not there: %v", err)
	}
}

func TestFailures(t *testing.T) {
	tree(t)
	slow := made(func(ctx context.Context, s *sim.Spec) (*measure.Result, error) {
		if s.Scheme == "conga" {
			return nil, errors.New("out of luck")
		}
		return fake(ctx, s)
	})
	out, progress, err := loomsim(t.Context(), slow, "run", "experiments/small.yaml")
	if err == nil || !strings.Contains(err.Error(), "1 of 2 runs failed:\nconga_load30_seed1: out of luck") {
		t.Errorf("%v", err)
	}
	want(t, "what was made", out, "network's 4.00 –", "cannot be told", "note: 1 of 2 runs are not stored")
	want(t, "progress", progress, "conga_load30_seed1 failed: out of luck")

	even := made(func(ctx context.Context, s *sim.Spec) (*measure.Result, error) {
		return &measure.Result{FCT: []measure.ClassFCT{{Class: "all", Norm: 1}}}, nil
	})
	if _, _, err := loomsim(t.Context(), even, "run", "experiments/small.yaml", "--force"); err != nil {
		t.Errorf("an expectation that does not hold is no failure: %v", err)
	}
	if _, _, err := loomsim(t.Context(), even, "run", "experiments/small.yaml", "--check"); err == nil || !strings.Contains(err.Error(), "1 expectations of small are not reproduced") {
		t.Errorf("unless it is asked for: %v", err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	stops := made(func(ctx context.Context, s *sim.Spec) (*measure.Result, error) {
		if s.Seed == 2 {
			cancel()
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return fake(ctx, s)
	})
	_, _, err = loomsim(ctx, stops, "run", "experiments/small.yaml", "--size", "full", "-j", "1")
	if !errors.Is(err, context.Canceled) || err.Error() != "small: 4 of 8 runs are in results/small-full; the same command makes the rest: interrupted" {
		t.Errorf("interrupted: %v", err)
	}

	p := made(fake)
	for name, text := range map[string]string{
		"bad.yaml":              strings.Replace(small, "load: 10", "load: 10, from: [h7]", 1),
		"heavy.yaml":            strings.Replace(small, "loads: [30]", "loads: [150]", 1),
		"racks.yaml":            strings.Replace(small, "load: 10", "load: 10, from: [L0], to: [L0]", 1),
		"experiments/twin.yaml": small,
	} {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for line, why := range map[string]string{
		"run experiments/small.yaml --size huge":            "there is no size",
		"run experiments/small.yaml --size paper --seeds 3": "published with 3 seeds",
		"run experiments/small.yaml --seeds 0":              "--seeds 0",
		"run experiments/small.yaml -j 0":                   "-j 0",
		"run experiments/small.yaml --schemes best":         "neither one of the file's schemes nor a scheme",
		"run nothing.yaml":                                  "nothing.yaml",
		"run bad.yaml":                                      `bad.yaml:6:42: "h7"`,
		"run heavy.yaml":                                    "heavy.yaml:11:19: the load is more than the fabric carries",
		"run racks.yaml":                                    "racks.yaml:6:14: host h0 has nobody",
		"run":                                               "requires at least 1 arg",
		"list":                                              "both named small",
		"list nowhere":                                      "nowhere",
		"plot experiments/small.yaml --format gif":          "gif",
		"list --cpuprofile none/x":                          "profile",
		"run experiments/small.yaml --on mars":              "write sim or lab",
		"run experiments/small.yaml --on lab":               "experiments/small.yaml:5:1: the lab builds the fabric of a fabric.yaml",
	} {
		if _, _, err := loomsim(t.Context(), p, strings.Fields(line)...); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %v", line, err)
		}
	}
}

// TestRealRun is the whole way: a simulated fabric, its results and its profile.
func TestRealRun(t *testing.T) {
	tree(t)
	p := made(sim.Run)
	out, progress, err := loomsim(t.Context(), p, "run", "experiments/small.yaml", "--cpuprofile", "cpu.prof")
	if err != nil {
		t.Fatal(err)
	}
	want(t, "run", out, "30 % ecmp conga mean FCT ÷ idle network's ")
	want(t, "progress", progress, "2 runs made", "hops/s")
	if info, err := os.Stat("cpu.prof"); err != nil || info.Size() == 0 {
		t.Errorf("profile: %v", err)
	}
	if entries, _ := filepath.Glob("results/small-quick/*.json"); len(entries) != 2 {
		t.Errorf("stored: %v", entries)
	}
}
