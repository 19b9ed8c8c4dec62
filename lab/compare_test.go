package lab

import (
	"bytes"
	"context"
	"encoding/csv"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/loomfabric/loom/fabric"
)

// comparison is one of three runs by two schemes, of which one failed.
func comparison() *Comparison {
	run := func(scheme string, load float64, seed uint64, goodput float64, err error) CompareRun {
		rep := &Report{
			Workloads: []WorkloadReport{{Name: "web", GoodputBits: goodput, FCT: &FCTStats{Flows: 9, Mean: time.Duration(seed) * time.Millisecond}}},
			Uplinks:   []UplinkSeries{{Leaf: "L0", Links: []string{"L0-S0.0"}, values: []float64{0.1, 0.5, 2}, Imbalance: imbalanceStats([]float64{0.1, 0.5, 2})}},
			Faults:    []FaultReport{{Action: "fail", Link: "L1-S1.0", Reactions: []Reaction{{Leaf: "L0", Before: 0.5, After: 0.25, Followed: -1}}}},
		}
		return CompareRun{Scheme: scheme, Load: load, Seed: seed, Report: rep, Err: err, Values: rep.values()}
	}
	return &Comparison{
		Options: CompareOptions{Schemes: []string{"ecmp", "conga"}, Seeds: 2},
		Runs: []CompareRun{
			run("ecmp", 30, 1, 80e6, nil), run("conga", 30, 1, 90e6, nil), run("ecmp", 60, 1, 70e6, nil), run("conga", 60, 1, 95e6, nil),
			run("ecmp", 30, 2, 84e6, nil), run("conga", 30, 2, 10e6, errors.New("2 of 9 pairs are not reachable")),
			{Scheme: "ecmp", Load: 60, Seed: 2, Err: errors.New("not ready")}, run("conga", 60, 2, 97e6, nil),
		},
	}
}

func TestComparisonCells(t *testing.T) {
	c := comparison()
	for _, tt := range []struct {
		name, scheme string
		load         float64
		want         Spread
	}{
		{"goodput Mbit/s", "ecmp", 30, Spread{2, 82, 80, 84}},
		{"goodput Mbit/s", "conga", 30, Spread{1, 90, 90, 90}}, // the failed run does not count
		{"goodput Mbit/s", "conga", 60, Spread{2, 96, 95, 97}},
		{"web FCT mean ms", "ecmp", 30, Spread{2, 1.5, 1, 2}},
		{"fail L1-S1.0: L0 followed ms", "ecmp", 30, Spread{}}, // never
		{"fail L1-S1.0: L0 share after %", "ecmp", 60, Spread{1, 25, 25, 25}},
		{"goodput Mbit/s", "spray", 60, Spread{}},
	} {
		if got := c.Cell(tt.name, tt.scheme, tt.load); got != tt.want {
			t.Errorf("%s, %s at %g: %+v, want %+v", tt.name, tt.scheme, tt.load, got, tt.want)
		}
	}
	if err := c.Failures(); err == nil || !strings.Contains(err.Error(), "ecmp at 60 % load, seed 2: not ready") || !strings.Contains(err.Error(), "conga at 30 % load, seed 2") {
		t.Errorf("failures: %v", err)
	}
}

func TestComparisonOutput(t *testing.T) {
	c := comparison()
	var table, lines bytes.Buffer
	if err := c.Table(&table); err != nil {
		t.Fatal(err)
	}
	rows := map[string]bool{}
	for line := range strings.Lines(table.String()) {
		rows[strings.Join(strings.Fields(line), " ")] = true
	}
	for _, want := range []string{
		"goodput Mbit/s 82.0 (80.0–84.0) 90.0 (90.0–90.0; 1 runs) ×1.10",
		"goodput Mbit/s 70.0 (70.0–70.0; 1 runs) 96.0 (95.0–97.0) ×1.37",
		"fail L1-S1.0: L0 followed ms - -",
		"ecmp at 60 % load, seed 2: not ready",
	} {
		if !rows[want] {
			t.Errorf("no row %q in\n%s", want, &table)
		}
	}
	if err := c.CSV(&lines); err != nil {
		t.Fatal(err)
	}
	records, err := csv.NewReader(&lines).ReadAll()
	if err != nil || len(records) != 9 {
		t.Fatalf("%d lines, %v", len(records), err)
	}
	if r := records[7]; r[0] != "ecmp" || r[1] != "60" || r[2] != "2" || r[3] != "not ready" || r[4] != "" {
		t.Errorf("the failed run's line is %v", r)
	}
	if r := records[6]; r[3] == "" || r[4] != "10" {
		t.Errorf("the line of the run that does not count is %v", r)
	}
}

func TestComparisonPlots(t *testing.T) {
	c := comparison()
	one := &Comparison{Options: c.Options, Runs: c.Runs[:2]}
	for _, tt := range []struct {
		c      *Comparison
		metric string
		want   string
	}{
		{c, "goodput Mbit/s", "load %"}, {one, "goodput Mbit/s", "conga"}, {c, "L0 imbalance", "share of intervals"},
	} {
		var b bytes.Buffer
		if err := tt.c.SVG(&b, tt.metric); err != nil || !strings.Contains(b.String(), tt.want) || !strings.Contains(b.String(), "</svg>") {
			t.Errorf("%s: %v, %d bytes", tt.metric, err, b.Len())
		}
	}
	for _, metric := range []string{"happiness", "L7 imbalance"} {
		if err := c.SVG(&bytes.Buffer{}, metric); err == nil {
			t.Errorf("%s was plotted", metric)
		}
	}
}

// TestCompare runs a small comparison over the kernel's data plane, and
// interrupts another.
func TestCompare(t *testing.T) {
	l, _ := newLab(t, small+`workloads:
  - {name: web, type: request, from: [h0], to: [h2], sizes: solar-rpc, load: 1, seed: 9, duration: 1s, small: 1MB, large: 2MB}
`)
	open := func() (*Lab, error) {
		f := *l.File
		f.Workloads = append([]fabric.Workload(nil), f.Workloads...)
		return New(&f), nil
	}
	opt := CompareOptions{Schemes: []string{"ecmp"}, Seeds: 2, Loads: []float64{1, 2}, Sample: 50 * time.Millisecond}
	c, err := Compare(context.Background(), open, opt)
	if err != nil || c.Failures() != nil || len(c.Runs) != 4 {
		t.Fatalf("%d runs, %v, %v", len(c.Runs), err, c.Failures())
	}
	one, two := c.Cell("web flows", "ecmp", 1), c.Cell("web flows", "ecmp", 2)
	if one.N != 2 || two.Mean <= one.Mean {
		t.Errorf("flows at 1 %% load %+v, at 2 %% %+v", one, two)
	}
	for _, r := range c.Runs {
		if w := r.Report.Workloads[0]; len(r.Report.Uplinks) != 2 || len(r.Report.Uplinks[0].At) < 10 || w.FCTSmall == nil {
			t.Errorf("seed %d: %d series, %+v", r.Seed, len(r.Report.Uplinks), w)
		}
	}
	opt.MinIdle, opt.Seeds, opt.Loads = 1.01, 1, nil // no machine is as idle
	if c, err := Compare(context.Background(), open, opt); err != nil || len(c.Runs) != 3 || !c.Runs[1].Again || c.Runs[2].Again || c.Failures() == nil {
		t.Errorf("on a busy machine: %d runs, %v, %v", len(c.Runs), err, c.Failures())
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if c, err := Compare(ctx, open, opt); !errors.Is(err, context.DeadlineExceeded) || len(c.Runs) > 0 {
		t.Errorf("interrupted: %d runs, %v", len(c.Runs), err)
	}
	gone(t, l, nil, 3*time.Second)
	opt.Loads, l.File.Workloads = []float64{1}, nil
	if _, err := Compare(context.Background(), open, opt); err == nil || !strings.Contains(err.Error(), "type request") {
		t.Errorf("a load for no workload: %v", err)
	}
}
