package experiment

import (
	"math"
	"strings"
	"testing"

	"github.com/loomfabric/loom/internal/measure"
	"github.com/loomfabric/loom/internal/spread"
)

// results has two schemes, two loads and three seeds. At load 60 the third seed of
// conga is missing.
func results(t *testing.T) *Results {
	t.Helper()
	text := strings.Replace(small, "seeds: 2", "seeds: 3", 1)
	r := &Results{Size: smallSize(t, t.TempDir(), text)}
	norm := map[string][]float64{"ecmp30": {2, 4, 8}, "conga30": {1, 3, 4}, "ecmp60": {6, 7, 8}, "conga60": {3, 4, math.NaN()}}
	for i := range r.Size.Runs {
		run := &r.Size.Runs[i]
		v := norm[run.Scheme+map[float64]string{30: "30", 60: "60"}[run.Load]][run.Seed-1]
		if math.IsNaN(v) {
			r.Records = append(r.Records, nil)
			continue
		}
		res := &measure.Result{Scheme: run.Scheme,
			FCT:    []measure.ClassFCT{{Class: "all", Norm: v, MeanS: v / 1000}, {Class: "<10KB", Norm: 1}},
			Queues: []measure.Distribution{{Name: "S1->L1", P99: 3}, {Name: "S1->L1.0", P99: 7 * v, CDF: []measure.Point{{X: 0, Y: 0.5}, {X: 10 * v, Y: 1}}}, {Name: "S1->L1.0.x"}},
			Drops:  map[string]uint64{}}
		if run.Scheme == "ecmp" {
			res.Drops["queue-full"], res.Drops["no.route"] = uint64(v), 1
		}
		r.Records = append(r.Records, &Record{ID: run.ID, Result: res})
	}
	return r
}

func TestSpread(t *testing.T) {
	r := results(t)
	for _, tt := range []struct {
		metric string
		cell   Cell
		versus string
		want   spread.Spread
	}{
		{"fct.all.norm", Cell{"ecmp", 30, ""}, "", spread.Spread{N: 3, Mean: 14. / 3, Min: 2, Max: 8}},
		{"fct.all.norm", Cell{"conga", 60, ""}, "", spread.Spread{N: 2, Mean: 3.5, Min: 3, Max: 4}},
		// Paired: the mean of 1/2, 3/4, 4/8, not 8/14.
		{"fct.all.norm", Cell{"conga", 30, ""}, "ecmp", spread.Spread{N: 3, Mean: 1.75 / 3, Min: 0.5, Max: 0.75}},
		{"fct.all.norm", Cell{"conga", 60, ""}, "ecmp", spread.Spread{N: 2, Mean: (0.5 + 4./7) / 2, Min: 0.5, Max: 4. / 7}},
		{"fct.<10KB.norm", Cell{"conga", 30, ""}, "ecmp", spread.Spread{N: 3, Mean: 1, Min: 1, Max: 1}},
		{"queues.S1->L1.0.p99", Cell{"ecmp", 30, ""}, "", spread.Spread{N: 3, Mean: 7 * 14. / 3, Min: 14, Max: 56}},
		{"queues.S1->L1.p99", Cell{"ecmp", 30, ""}, "", spread.Spread{N: 3, Mean: 3, Min: 3, Max: 3}},
		{"drops.queue-full", Cell{"ecmp", 60, ""}, "", spread.Spread{N: 3, Mean: 7, Min: 6, Max: 8}},
		{"drops.no.route", Cell{"ecmp", 60, ""}, "", spread.Spread{N: 3, Mean: 1, Min: 1, Max: 1}},
		{"drops.*", Cell{"ecmp", 60, ""}, "", spread.Spread{N: 3, Mean: 8, Min: 7, Max: 9}},
		{"drops.queue-full", Cell{"conga", 60, ""}, "", spread.Spread{N: 2, Mean: 0, Min: 0, Max: 0}}, // others dropped: zero
		{"drops.unheard", Cell{"ecmp", 60, ""}, "", spread.Spread{}},                                  // nobody did: no such name
		{"drops.queue-full", Cell{"ecmp", 60, ""}, "conga", spread.Spread{}},                          // nothing to divide by
		{"fct.small.norm", Cell{"ecmp", 60, ""}, "", spread.Spread{}},
		{"conweave.data_bytes", Cell{"ecmp", 60, ""}, "", spread.Spread{}},
		{"fct.all.norm", Cell{"ecmp", 50, ""}, "", spread.Spread{}},
	} {
		got := r.Spread(tt.metric, tt.cell)
		if tt.versus != "" {
			got = r.Relative(tt.metric, tt.cell, tt.versus)
		}
		if got.N != tt.want.N || math.Abs(got.Mean-tt.want.Mean) > 1e-12 || math.Abs(got.Min-tt.want.Min) > 1e-12 || math.Abs(got.Max-tt.want.Max) > 1e-12 {
			t.Errorf("%s of %v to %q: %+v, want %+v", tt.metric, tt.cell, tt.versus, got, tt.want)
		}
	}
}

func TestCDF(t *testing.T) {
	// Curves 0.5 at 0 to 1 at 20, 40 and 80; the mean at 40: (1 + 1 + 0.75)/3.
	got := results(t).CDF("queues.S1->L1.0", Cell{"ecmp", 30, ""})
	want := []measure.Point{{X: 0, Y: 0.5}, {X: 20, Y: (1 + 0.75 + 0.625) / 3}, {X: 40, Y: (1 + 1 + 0.75) / 3}, {X: 80, Y: 1}}
	if len(got) != len(want) {
		t.Fatalf("%v, want %v", got, want)
	}
	for i := range want {
		if got[i].X != want[i].X || math.Abs(got[i].Y-want[i].Y) > 1e-12 {
			t.Errorf("point %d is %v, want %v", i, got[i], want[i])
		}
	}
}

func TestItems(t *testing.T) {
	r := results(t)
	for metric, want := range map[string]string{
		"fct.*.norm":   "all=fct.all.norm <10KB=fct.<10KB.norm",
		"queues.*.p99": "S1->L1=queues.S1->L1.p99 S1->L1.0=queues.S1->L1.0.p99 S1->L1.0.x=queues.S1->L1.0.x.p99",
		"drops.*":      "no.route=drops.no.route queue-full=drops.queue-full",
		"nothing.*":    "",
	} {
		names, metrics := r.Items(metric, Cell{Load: 30})
		var got []string
		for i := range names {
			got = append(got, names[i]+"="+metrics[i])
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %q, want %q", metric, got, want)
		}
	}
}

func TestNumbersAreMetrics(t *testing.T) {
	res := &measure.Result{FCT: []measure.ClassFCT{{Class: "all", Norm: 2}}, Drops: map[string]uint64{"b": 2, "a": 1},
		ConWeave: &measure.ConWeaveResult{Queues: measure.Distribution{P99: 3}, Counters: map[string]uint64{"x": 9}}, Machine: measure.Machine{WallS: 1.5}}
	seen := map[string]float64{}
	for _, n := range Numbers(res) {
		seen[n.Metric] = n.Value
		if err := CheckMetric(n.Metric, false); err != nil {
			t.Error(err)
		}
	}
	for metric, want := range map[string]float64{"fct.all.norm": 2, "drops.a": 1, "conweave.queues.p99": 3, "conweave.counters.x": 9, "machine.wall_s": 1.5} {
		if seen[metric] != want {
			t.Errorf("%s is %g, want %g", metric, seen[metric], want)
		}
	}
}

func TestLabel(t *testing.T) {
	for metric, want := range map[string]string{
		"fct.all.norm": "mean FCT ÷ idle network's", "fct.small.p999_s": "p99.9 FCT, small flows", "fct.large.slowdown_p99": "p99 FCT slowdown, large flows",
		"queues.S1->L1.0.p90": "queue, p90, S1->L1.0", "imbalance.all.mean": "imbalance of uplinks, mean", "drops.*": "drops", "drops.queue-full": "drops queue-full",
		"workloads.incast.effective_percent": "effective throughput, incast", "workloads.web.fct.all.mean_s": "mean FCT, web",
		"workloads.web.fct.small.p99_s": "p99 FCT, small flows, web", "workloads.rdma.reordering.percent": "reordered, rdma", "phases.L0->S1.0 from 5s.percent": "share, L0->S1.0 from 5s",
		"reactions.fail L1-S1.0: L0.followed_s": "followed after, fail L1-S1.0: L0", "machine.cpu_idle_percent": "CPU idle", "goodput_bps": "goodput", "events": "events",
		"fct.*.norm": "mean FCT ÷ idle network's", "queues.S1->L1.0": "queue, S1->L1.0", "imbalance.all": "imbalance of uplinks", "transport.retransmits": "transport retransmits",
	} {
		if got := Label(metric); got != want {
			t.Errorf("%s is %q, want %q", metric, got, want)
		}
	}
}

func TestUnit(t *testing.T) {
	for metric, want := range map[string]string{
		"fct.all.mean_s": "s", "fct.all.norm": "", "fct.all.slowdown_p99": "", "goodput_bps": "bit/s", "queues.S1->L1.0.p99": "B", "queues.x.n": "",
		"uplinks.L0-S0.0.percent": "%", "workloads.w.effective_percent": "%", "machine.hops_per_s": "hops/s", "imbalance.all.p90": "", "conweave.bytes.max": "B",
		"conweave.hold_time_ns.p99": "ns", "conweave.control_bytes.clear": "B", "drops.*": "", "flows": "", "machine.wall_s": "s",
	} {
		if got := Unit(metric); got != want {
			t.Errorf("%s is in %q, want %q", metric, got, want)
		}
	}
}

func TestBounds(t *testing.T) {
	for text, want := range map[string][2][]float64{ // that keep to it, that do not
		"< 0.8":      {{-1, 0.79}, {0.8, 1, math.NaN()}},
		"<=1":        {{1, 0}, {1.01}},
		"> 2":        {{2.1, math.Inf(1)}, {2, math.NaN()}},
		">= 2":       {{2}, {1.9}},
		"0.9 to 1.1": {{0.9, 1, 1.1}, {0.89, 1.11, math.NaN()}},
	} {
		b, err := ParseBounds(text)
		if err != nil || b.String() != text {
			t.Errorf("%s: %v", text, err)
		}
		for _, v := range want[0] {
			if !b.Hold(v) {
				t.Errorf("%g is not %s", v, text)
			}
		}
		for _, v := range want[1] {
			if b.Hold(v) {
				t.Errorf("%g is %s", v, text)
			}
		}
	}
	for _, text := range []string{"", "<", "1", "= 1", "< x", "2 to 1", "1 to", "< NaN", "> +Inf", "<> 1"} {
		if b, err := ParseBounds(text); err == nil {
			t.Errorf("%q is read as %+v", text, b)
		}
	}
}
