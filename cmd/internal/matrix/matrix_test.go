package matrix

import (
	"bytes"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/config/vocab"
	"github.com/loomfabric/loom/internal/experiment"
	"github.com/loomfabric/loom/internal/testenv"
	"github.com/loomfabric/loom/internal/yamlfile"
	"github.com/loomfabric/loom/sim"
)

// TestMain lets the test binary stand in for a program that can run on the lab,
// which starts itself as guard.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "guard" {
		root := &cobra.Command{}
		root.AddCommand(LabCommands()...)
		if err := root.Execute(); err != nil {
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

const fabricYAML = `name: %s
dataplane: kernel
leaves: 2
spines: 2
links: {rate: 50Mbit}
hosts: {per_leaf: 1, link: {rate: 100Mbit}}
vnis: [{vni: 10}]
scheme: ecmp
workloads:
  - {name: web, type: poisson, from: [h1], to: [h0], sizes: solar-rpc, load: 1, duration: 1s, small: 1MB, large: 2MB}
`

// inFabric writes a fabric.yaml into a directory, in which the test then is.
func inFabric(t *testing.T, name, extra string) {
	t.Helper()
	t.Chdir(t.TempDir())
	if err := os.WriteFile("fabric.yaml", fmt.Appendf(nil, fabricYAML+extra, name), 0o644); err != nil {
		t.Fatal(err)
	}
}

// compare runs the command on fabric.yaml; labRunner is first among the runners.
func compare(ctx context.Context, labRunner *Lab, args ...string) (out, progress string, err error) {
	p := &Program{Runners: []experiment.Runner{labRunner, &Simulator{Build: "v1"}}}
	file := "fabric.yaml"
	c := p.CompareCommand(&file)
	var o, e bytes.Buffer
	c.SetArgs(args)
	c.SetOut(&o)
	c.SetErr(&e)
	c.SilenceUsage, c.SilenceErrors = true, true
	err = c.ExecuteContext(ctx)
	return o.String(), e.String(), err
}

// TestCompareSimulated: what compare says of a fabric.yaml in virtual time has the
// columns that a person looks for, and is kept.
func TestCompareSimulated(t *testing.T) {
	inFabric(t, "one", "  - {name: bulk, type: bulk, from: [h0], to: [h1], start: 500ms, duration: 500ms}\n")
	args := []string{"--on", "sim", "--schemes", "ecmp,conga", "--seeds", "2", "--loads", "1,2", "--csv", "runs.csv", "--svg", "plot.svg", "--html", "page.html"}
	out, progress, err := compare(t.Context(), &Lab{}, args...)
	if err != nil {
		t.Fatal(err)
	}
	squeezed := strings.Join(strings.Fields(out), " ")
	for _, want := range []string{
		"compare-one, size default: mean ±95 % interval (least–greatest) of 2 seeds, ×ratio to ecmp seed by seed",
		"goodput (Mbit/s) ecmp conga 1 %", "goodput, bulk (Mbit/s) ecmp conga", "mean FCT, web (ms) ecmp conga", "mean FCT, small flows (ms)",
		"p99 FCT, web", "mean FCT slowdown, web", "flows not finished ecmp conga 1 % 0", "imbalance of uplinks, mean, L1 ecmp conga",
		"share, L0->S1.0 (%)", "share, L0->S1.0 from 500ms (%)",
	} {
		if !strings.Contains(squeezed, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	if !strings.Contains(progress, "8 runs made, 0 were stored already in results/compare-one-default") {
		t.Errorf("progress %s", progress)
	}
	data, err := os.ReadFile("runs.csv")
	if err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(bytes.NewReader(data)).ReadAll()
	if err != nil || len(rows) != 9 || !slices.Contains(rows[0], "workloads.web.fct.small.p99_s") || !slices.Contains(rows[0], "phases.L0->S0.0 from 500ms.percent") {
		t.Errorf("%d rows, %v", len(rows), err)
	}
	for file, want := range map[string]string{"plot.svg": "load (%)", "page.html": "loomlab compare -f fabric.yaml --schemes ecmp,conga --seeds 2 --loads 1,2 --on sim"} {
		if data, err := os.ReadFile(file); err != nil || !strings.Contains(string(data), want) {
			t.Errorf("%s: %v, no %q", file, err, want)
		}
	}
	if _, progress, err = compare(t.Context(), &Lab{}, args...); err != nil || !strings.Contains(progress, "0 runs made, 8 were stored") {
		t.Errorf("again: %v, %s", err, progress)
	}
	// A distribution is plotted as one.
	if _, _, err := compare(t.Context(), &Lab{}, append(args, "--metric", "imbalance.L1")...); err != nil {
		t.Error(err)
	}
	if data, _ := os.ReadFile("plot.svg"); !strings.Contains(string(data), "CDF") {
		t.Error("no CDF of the imbalance")
	}
}

func TestCompareRefuses(t *testing.T) {
	inFabric(t, "two", "")
	if err := os.WriteFile("bulk.yaml", fmt.Appendf(nil, strings.NewReplacer("type: poisson", "type: bulk", ", sizes: solar-rpc, load: 1", "", ", small: 1MB, large: 2MB", "").Replace(fabricYAML), "two"), 0o644); err != nil {
		t.Fatal(err)
	}
	for line, why := range map[string]string{
		"--schemes best":                    "neither one of the file's schemes nor a scheme",
		"--schemes ecmp,ecmp":               "twice",
		"--schemes=":                        "--schemes is empty",
		"--seeds 0":                         "--seeds 0",
		"--loads 0":                         "above 0",
		"--min-idle 1":                      "--min-idle 1",
		"--sample -1s":                      "--sample -1s",
		"--sample 1ms":                      "the lab samples every 10ms at most",
		"--on moon":                         "write lab or sim",
		"--metric happiness":                `there is no number "happiness": it begins with balancing`,
		"--on sim --svg x --metric pfc.nix": `no run has "pfc.nix"`,
	} {
		args := strings.Fields(line)
		if !strings.HasPrefix(line, "--schemes") {
			args = append(args, "--schemes", "ecmp")
		}
		if _, _, err := compare(t.Context(), &Lab{}, args...); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %v", line, err)
		}
	}
	l := &Lab{}
	spec := func(file string) *sim.Spec {
		s := &sim.Spec{Topology: sim.Topology{Kind: "file", File: file}}
		if problems := s.Complete(""); len(problems) > 0 {
			t.Fatal(problems[0])
		}
		return s
	}
	if p := l.Check(spec("fabric.yaml")); len(p) > 0 {
		t.Errorf("a fabric.yaml and no more: %v", p[0])
	}
	multipath := spec("fabric.yaml")
	multipath.Transport.Type, multipath.Transport.Subflows = "mptcp", 8
	if p := l.Check(multipath); len(p) > 0 {
		t.Errorf("MPTCP: %v", p[0])
	}
	for path, change := range map[string]func(*sim.Spec){
		"topology.kind":       func(s *sim.Spec) { s.Topology.Kind = "fat-tree" },
		"topology.load":       func(s *sim.Spec) { s.Topology.File, s.Topology.Load = "bulk.yaml", 10 },
		"topology.file":       func(s *sim.Spec) { s.Topology.File = "nothing.yaml" },
		"transport.min_rto":   func(s *sim.Spec) { s.Transport.MinRTO = time.Millisecond },
		"transport.type":      func(s *sim.Spec) { s.Transport.Type = "rdma" },
		"transport.subflows":  func(s *sim.Spec) { s.Transport.Type, s.Transport.Subflows = "mptcp", 9 },
		"topology.links.rate": func(s *sim.Spec) { s.Topology.Links.Rate = 3 },
		"conweave.inactive":   func(s *sim.Spec) { give(t, s, "conweave: {inactive: 1s}") },
		"workloads":           func(s *sim.Spec) { s.Workloads = []vocab.Workload{{}} },
		"faults":              func(s *sim.Spec) { s.Faults = []vocab.Fault{{}} },
		"warmup":              func(s *sim.Spec) { s.Warmup = 1 },
		"duration":            func(s *sim.Spec) { s.Duration = 1 },
		"measure.queues":      func(s *sim.Spec) { s.Measure.Queues = []string{"spines"} },
		"scheme":              func(s *sim.Spec) { s.Scheme = "best" },
	} {
		s := spec("fabric.yaml")
		change(s)
		if p := l.Check(s); len(p) != 1 || p[0].Path != path {
			t.Errorf("%s: %v", path, p)
		}
	}
}

// give puts YAML on top of what a run says.
func give(t *testing.T, s *sim.Spec, text string) {
	t.Helper()
	d := yamlfile.Parse("", "", []byte(text))
	if d.Decode(s); len(d.Errs) > 0 {
		t.Fatal(d.Errs)
	}
}

// TestLabOpens: what a run says of a fabric is what the lab then builds.
func TestLabOpens(t *testing.T) {
	inFabric(t, "three", "congestion: {tau: 3ms}\n")
	text, err := os.ReadFile("fabric.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("fabric.yaml", bytes.Replace(text, []byte("dataplane: kernel"), []byte("dataplane: loom"), 1), 0o644); err != nil {
		t.Fatal(err)
	}
	s := &sim.Spec{Topology: sim.Topology{Kind: "file", File: "fabric.yaml", Load: 7}, Scheme: "conga", Seed: 5}
	s.Transport.CongestionControl, s.Transport.Type, s.Transport.Subflows = "newreno", "mptcp", 4
	give(t, s, "{congestion: {flowlet_gap: 1ms}, conweave: {reply: 2ms}}")
	s.Measure.Small, s.Measure.Large = 10, 20
	l, err := (&Lab{Daemons: "bin"}).open(s)
	if err != nil {
		t.Fatal(err)
	}
	f, w := l.File, l.File.Workloads[0]
	if f.Scheme != "conga" || f.TCP != "reno" || f.Subflows != 4 || f.Congestion.CONGA().FlowletGap != time.Millisecond || f.Congestion.CONGA().Tau != 3*time.Millisecond ||
		f.Sections.Get("conweave").Params.(*balance.ConWeaveParams).Source.Reply != 2*time.Millisecond ||
		w.Load != 7 || w.Seed != 5 || w.Small != 10 || w.Large != 20 || l.Binaries != "bin" {
		t.Errorf("%+v, %+v", f, w)
	}
}

// TestCompareInLab makes a small comparison over the kernel's data plane, and
// interrupts another.
func TestCompareInLab(t *testing.T) {
	testenv.NeedRoot(t)
	inFabric(t, fmt.Sprintf("m%d", os.Getpid()), "")
	out, progress, err := compare(t.Context(), &Lab{Build: "v1"}, "--schemes", "ecmp", "--seeds", "1", "--loads", "1,2")
	if err != nil || !strings.Contains(progress, "2 runs made") {
		t.Fatalf("%v\n%s", err, progress)
	}
	for _, want := range []string{"size default, lab: mean", "mean FCT, small flows (ms)", "mean FCT slowdown", "share, L0->S0.0 (%)", "CPU idle (%)", "imbalance of uplinks, mean"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	files, err := filepath.Glob("results/compare-*-default-lab/ecmp_load*_seed1.json")
	if err != nil || len(files) != 2 {
		t.Errorf("stored: %v, %v", files, err)
	}
	// No machine is as idle.
	var log bytes.Buffer
	s := &sim.Spec{Topology: sim.Topology{Kind: "file", File: "fabric.yaml"}, Seed: 1}
	if _, err := (&Lab{MinIdle: 1.01, Log: &log}).Run(t.Context(), s); err == nil || !strings.Contains(err.Error(), "less than 101 %, 3 times") || strings.Count(log.String(), "is made again") != 2 {
		t.Errorf("on a busy machine: %v\n%s", err, &log)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if _, err := (&Lab{}).Run(ctx, s); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("interrupted: %v", err)
	}
}
