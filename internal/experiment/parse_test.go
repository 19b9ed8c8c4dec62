package experiment

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/loomfabric/loom/config/vocab"
	"github.com/loomfabric/loom/internal/yamlfile"
	"github.com/loomfabric/loom/sim"
)

const good = `name: fig9
title: Enterprise, no failure
paper: CONGA Figure 9
claim: |
  up to 20 % better
note: the buffer is ours
topology: {leaves: 2, spines: 2, hosts: {per_leaf: 4, link: {rate: 10Gbit, queue: 1MB}}, links: {rate: 40Gbit, parallel: 2, queue: 1MB}}
transport: {cc: cubic}
workloads:
  - {type: poisson, sizes: web-search, load: 10}
  - {type: udp, from: [h0], to: [h4], rate: 1Gbit}
duration: 100ms
schemes:
  - ecmp
  - conga
  - {name: conga 100us, scheme: conga, congestion: {flowlet_gap: 100us}}
loads: [30, 60]
seeds: 2
axis:
  label: MTU
  key: transport.mtu
  values: [1500, 9000]
sizes:
  quick:
    duration: 10ms
    loads: [60]
    workloads[0].scale: 0.5
    topology.hosts.per_leaf: 2
  paper: {seeds: 5, note: it takes an hour}
plots:
  - {y: fct.all.norm}
  - {name: q, x: cdf, y: queues.S1->L1.0, at: {load: 60, axis: 1500}, y_label: queue}
  - {x: items, y: fct.*.norm, at: {load: 60}}
table: [fct.all.norm, {metric: drops.*, label: drops, plain: true}]
expect:
  - {metric: fct.all.norm, at: {load: 60}, scheme: conga, versus: ecmp, ratio: "< 0.8"}
  - {metric: fct.all.norm, scheme: conga, value: "1 to 9", sizes: [paper]}
`

func TestParse(t *testing.T) {
	e, err := Parse("dir/f.yaml", []byte(good), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if e.Name != "fig9" || e.Claim != "up to 20 % better" || e.Reference != "ecmp" || len(e.Sizes) != 2 {
		t.Errorf("%+v", e)
	}
	quick, paper := e.Sizes[0], e.Sizes[1]
	if len(quick.Runs) != 1*3*2*2 || len(paper.Runs) != 2*3*2*5 || paper.Note != "it takes an hour" {
		t.Errorf("%d and %d runs, note %q", len(quick.Runs), len(paper.Runs), paper.Note)
	}
	var ids []string
	for _, r := range quick.Runs[:4] {
		ids = append(ids, r.ID)
	}
	want := []string{"1500_ecmp_load60_seed1", "1500_conga_load60_seed1", "1500_conga-100us_load60_seed1", "9000_ecmp_load60_seed1"}
	if !slices.Equal(ids, want) {
		t.Errorf("runs %q, want %q", ids, want)
	}
	s := quick.Runs[5].Spec // 9000, conga 100us
	if s.Scheme != "conga" || s.Congestion.CONGA().FlowletGap != 100*time.Microsecond || s.Transport.MTU != 9000 || s.Transport.CongestionControl != "cubic" ||
		s.Workloads[0].Load != 60 || s.Workloads[0].Scale != 0.5 || s.Workloads[1].Load != 0 || s.Duration != 10*time.Millisecond ||
		s.Topology.Hosts.PerLeaf != 2 || s.Topology.Leaves != 2 || s.Seed != 1 {
		t.Errorf("quick: %+v", s)
	}
	s = paper.Runs[len(paper.Runs)-1].Spec
	if s.Seed != 5 || s.Workloads[0].Scale != 1 || s.Topology.Hosts.PerLeaf != 4 || s.Duration != 100*time.Millisecond {
		t.Errorf("paper: %+v", s)
	}
	if quick.Axis.Label != "MTU" || !slices.Equal(quick.Axis.Values, []float64{1500, 9000}) {
		t.Errorf("axis %+v", quick.Axis)
	}
	if e.Plots[0].X != XLoad || e.Plots[2].X != XItems || e.Plots[0].Name != "plot1" || *e.Plots[1].At.Axis != "1500" || e.Expect[0].Ratio.Hold(0.8) || !e.Expect[1].Value.Hold(9) {
		t.Errorf("plots %+v", e.Plots)
	}
	// What seeds share is the model but for the seed, and nothing in memory.
	a, b := quick.Runs[0].Spec, quick.Runs[6].Spec
	if a.Seed+1 != b.Seed || &a.Workloads[0] == &b.Workloads[0] {
		t.Errorf("seeds %d and %d", a.Seed, b.Seed)
	}
}

func TestFlags(t *testing.T) {
	e, err := Parse("f.yaml", []byte(good), Options{Schemes: []string{"conga 100us", "letflow"}, Loads: []float64{12.5}, Seeds: 1})
	if err != nil {
		t.Fatal(err)
	}
	s := e.Sizes[1]
	if len(s.Runs) != 4 || s.Runs[1].ID != "1500_letflow_load12.5_seed1" || s.Runs[1].Spec.Scheme != "letflow" || s.Runs[1].Spec.Workloads[0].Load != 12.5 {
		t.Errorf("%+v", s.Runs)
	}
	for _, opt := range []Options{{Schemes: []string{"best"}}, {Schemes: []string{"ecmp", "ecmp"}}, {Loads: []float64{-1}}, {Seeds: -1}} {
		if _, err := Parse("f.yaml", []byte(good), opt); err == nil || !strings.HasPrefix(err.Error(), "f.yaml: ") {
			t.Errorf("%+v: %v", opt, err)
		}
	}
}

// TestPublishedSeeds: what is published has seeds of its own, five at least, and a
// flag for another size leaves them alone.
func TestPublishedSeeds(t *testing.T) {
	text := strings.NewReplacer("{seeds: 5,", "{published: true,", "seeds: 2\n", "").Replace(good)
	for _, opt := range []Options{{}, {Seeds: 1}, {Seeds: 1, Sizes: []string{"quick"}}} {
		e, err := Parse("f.yaml", []byte(text), opt)
		if err != nil {
			t.Fatalf("%+v: %v", opt, err)
		}
		quick, paper := e.Sizes[0], e.Sizes[1]
		if quick.Published || !slices.Equal(quick.Seeds, []uint64{1}) || !paper.Published || !slices.Equal(paper.Seeds, []uint64{101, 102, 103, 104, 105}) {
			t.Errorf("%+v: seeds %d and %d", opt, quick.Seeds, paper.Seeds)
		}
		if s := paper.Runs[len(paper.Runs)-1]; s.Seed != 105 || s.Spec.Seed != 105 {
			t.Errorf("the last run has seed %d, its model %d", s.Seed, s.Spec.Seed)
		}
	}
	if _, err := Parse("f.yaml", []byte(text), Options{Seeds: 2, Sizes: []string{"paper"}}); err == nil || !strings.Contains(err.Error(), "published with 2 seeds") {
		t.Errorf("two seeds of a published size: %v", err)
	}
	if e, err := Parse("f.yaml", []byte(text), Options{Seeds: 7, Sizes: []string{"paper"}}); err != nil || e.Sizes[1].Seeds[6] != 107 {
		t.Errorf("seven seeds of a published size: %v", err)
	}
}

// TestErrors: what is wrong is refused with the line that it stands on and why.
func TestErrors(t *testing.T) {
	for _, tt := range []struct {
		old, new string
		line     string
		why      string
	}{
		{"name: fig9", "name: Fig 9", "1", "cannot name a directory"},
		{"cc: cubic", "cc: cubic, min-rto: 1ms", "8", "min-rto\" is spelled min_rto now"},
		{"hosts: {per_leaf: 4,", "hosts-per-leaf: 4, hosts: {", "7", "write hosts.per_leaf"},
		{"scheme: conga, cong", "scheme: conga, drill: {samples: 1}, cong", "16", "scheme conga has no drill"},
		{"title: Enter", "tilte: Enter", "2", `unknown key "tilte"`},
		{"leaves: 2", "leafs: 2", "7", `unknown key "leafs"`},
		{"rate: 40Gbit", "rate: 40", "7", "not a number with a unit"},
		{"rate: 40Gbit, ", "", "7", "a link without a rate"},
		{"cc: cubic", "cc: best", "8", "does not exist"},
		{"load: 10}", "load: ten}", "10", "write a number"},
		{"sizes: web-search", "sizes: web", "10", "does not exist"},
		{"duration: 100ms", "duration: soon", "12", "not a time span"},
		{"- conga\n", "- ecmp\n", "15", "twice"},
		{"- conga\n", "- CONGA\n  - conga\n", "16", "twice"},
		{"- conga\n", "- best\n", "15", `"best" does not exist`},
		{"flowlet_gap: 100us", "flowlet: 100us", "16", "unknown key"},
		{"scheme: conga, cong", "schem: conga, cong", "16", `unknown key "schem"`},
		{"loads: [30, 60]", "loads: [30, 600]", "17", "up to 200"},
		{"loads: [30, 60]", "loads: [30, 30]", "17", "twice"},
		{"loads: [30, 60]", "loads: 30", "17", "a list"},
		{"loads: [30, 60]", "loads: []", "17", "a list"},
		{"type: poisson, sizes: web-search", "type: permutation", "26", "no workload is of type poisson"},
		{"seeds: 2", "seeds: 0", "18", "from 1 to"},
		{"key: transport.mtu", "key: transports.mtu", "21", `unknown key "transports.mtu"`},
		{"key: transport.mtu", "key: transport.mut", "21", "unknown key"},
		{"key: transport.mtu", "key: workloads[7].load", "21", "item 7 of a list of 2"},
		{"key: transport.mtu", "key: workloads[x].load", "21", "position"},
		{"key: transport.mtu", "key: transport.cc.x", "21", "no keys"},
		{"values: [1500, 9000]", "values: [1500, 90000]", "22", "use 256 to 9216"},
		{"values: [1500, 9000]", "values: [[1500]]", "22", "several values in one"},
		{"  key: transport.mtu\n", "", "20", "either key and values, or points"},
		{"  quick:", "  Quick:", "24", "cannot name a size"},
		{"    loads: [60]", "    titel: x", "26", "unknown key"},
		{"workloads[0].scale", "workloads[0.scale", "27", "position"},
		{"workloads[0].scale", "workloads[0].scales", "27", "unknown key"},
		{"topology.hosts.per_leaf: 2", "topology.links.rate: null", "28", "a link without a rate"},
		{"  - {y: fct.all.norm}", "  - {y: fct.all.nrom}", "31", `no number "fct.all.nrom": after fct.* comes flows, max_bytes`},
		{"  - {y: fct.all.norm}", "  - {y: fct.all}", "31", "no number"},
		{"  - {y: fct.all.norm}", "  - {y: fct.all.norm, x: time}", "31", "use load, axis"},
		{"  - {y: fct.all.norm}", "  - {y: fct.all.norm, colour: red}", "31", "unknown key"},
		{"  - {y: fct.all.norm}", "  - {y: fct.all.norm, relative: spray}", "31", "no scheme"},
		{"y: queues.S1->L1.0, at", "y: queues.S1->L1.0.p99, at", "32", "no distribution"},
		{"load: 60, axis: 1500", "load: 60, axis: 150", "32", "no point"},
		{"y: fct.*.norm", "y: fct.all.norm", "33", "wants a *"},
		{"table: [fct.all.norm,", "table: [fct.all.normal,", "34", "no"},
		{"at: {load: 60}, scheme: conga", "at: {load: 30}, scheme: conga", "36", "has no load 30"},
		{`versus: ecmp, ratio: "< 0.8"`, `versus: ecmp`, "36", "has no bounds"},
		{`ratio: "< 0.8"`, `ratio: "0.8"`, "36", "no bounds"},
		{`scheme: conga, versus`, `scheme: cong, versus`, "36", "no scheme"},
		{"sizes: [paper]", "sizes: [huge]", "37", "no size"},
		{`, ratio: "< 0.8"}`, `, than: {load: 30}, value: "< 0.8"}`, "36", "versus or than with a value"},
		{`, value: "1 to 9"`, `, ratio: "1 to 9"`, "37", "a ratio without versus or than"},
		{`, value: "1 to 9"`, ``, "37", "has no bounds"},
		{`, value: "1 to 9"`, `, value: "1 to 9", says: so, and no quotes`, "37", `unknown key "and no quotes"`},
		{`, value: "1 to 9"`, `, value: "1 to 9", paper: "< 5"`, "37", "reaches beyond the direction"},
		{`, value: "1 to 9"`, `, value: "1 to 9", paper: {60: "< 5"}`, "37", "reaches beyond the direction"},
		{`, value: "1 to 9"`, `, value: "1 to 9", paper: {90: "2 to 5"}`, "37", "no size has a load or a point of the axis \"90\""},
		{`, value: "1 to 9"`, `, paper: {60: "< 5"}`, "37", "has no bounds"},
		{`, value: "1 to 9"`, `, than: {load: 99}, ratio: "> 1"`, "37", "has no load 99"},
		{"{seeds: 5,", "{published: true, seeds: 4,", "", "published with 4 seeds"},
		{"{seeds: 5,", "{published: true, seeds: 5, seed: 7,", "29", "size paper has seed 7"},
		{"{seeds: 5,", "{seeds: 2, seed: 100,", "29", "size paper has seed 101"},
		{"{seeds: 5,", "{workloads[0].scale: 5,", "29", "write workloads.0.load"},
		{"note: the buffer is ours", "note: &x y", "6", "anchor"},
		{"note: the buffer is ours", "note: [x]", "6", "a text"},
		{"seeds: 5", "seeds: 999, loads: [1, 2, 3, 4]", "", "at most"},
		{"- {type: udp,", "- {1: x, type: udp,", "11", "unknown key"},
		{"duration: 100ms\n", "duration: 100ms\nfaults: [{at: 1ms}, null]\nname: x\n", "14", "already defined"},
	} {
		text := strings.Replace(good, tt.old, tt.new, 1)
		if text == good {
			t.Fatalf("%q is not in the file", tt.old)
		}
		_, err := Parse("f.yaml", []byte(text), Options{})
		if err == nil {
			t.Errorf("%q was accepted", tt.new)
			continue
		}
		first := err.(yamlfile.Errors)[0].Error()
		place := "f.yaml:" + tt.line + ":"
		if tt.line == "" {
			place = "f.yaml: "
		}
		if !strings.HasPrefix(first, place) || !strings.Contains(first, tt.why) {
			t.Errorf("%q: %v\nwant %s with %q", tt.new, err, place, tt.why)
		}
	}
	for _, text := range []string{"", "x", "- a", "a: 1\n---\nb: 2\n", "{}"} {
		if _, err := Parse("f.yaml", []byte(text), Options{}); err == nil {
			t.Errorf("%q was accepted", text)
		}
	}
}

// A deeper check's complaint gets the line of the value, wherever that came from.
func TestCheckNamesLines(t *testing.T) {
	check := func(path string) Options {
		return Options{Check: func(s *sim.Spec) yamlfile.Errors { return yamlfile.Errors{{Path: path, Problem: "no", Fix: "yes"}} }}
	}
	for path, want := range map[string]string{
		"workloads[0].load":       "f.yaml:26:13: no", // the size's
		"workloads[0].scale":      "f.yaml:27:25: no",
		"workloads[1].rate":       "f.yaml:11:45: no",
		"topology.hosts.per_leaf": "f.yaml:28:30: no",
		"transport.mtu":           "f.yaml:22:12: no",
		"scheme":                  "f.yaml:14:5: no",
		"congestion":              "f.yaml: congestion: no", // the file has none for ecmp
	} {
		_, err := Parse("f.yaml", []byte(good), check(path))
		if err == nil || !strings.Contains("\n"+err.Error()+"\n", "\n"+want+"\n") {
			t.Errorf("%s: %v, want %s", path, err, want)
		}
	}
}

func TestMerge(t *testing.T) {
	// Each case: the topology and workloads that a point's override leaves.
	base := "name: m\ntopology: {leaves: 2, spines: 2, hosts: {per_leaf: 2, link: {rate: 1Gbit}}, links: {rate: 1Gbit, ecn: {kmin: 1KB, kmax: 2KB, pmax: 0.5}}}\n" +
		"workloads: [{sizes: web-search, load: 10}, {type: udp, rate: 1Mbit}]\nduration: 1ms\n"
	for _, tt := range []struct {
		over string
		ok   func(s *sim.Spec) bool
	}{
		{"topology: {leaves: 3}", func(s *sim.Spec) bool { return s.Topology.Leaves == 3 && s.Topology.Spines == 2 }},
		{"topology: {links: {ecn: {pmax: 0.1}}}", func(s *sim.Spec) bool { return s.Topology.Links.ECN.Pmax == 0.1 && s.Topology.Links.ECN.Kmax == 2000 }},
		{"topology.links.ecn.pmax: 0.1", func(s *sim.Spec) bool { return s.Topology.Links.ECN.Pmax == 0.1 && s.Topology.Links.ECN.Kmax == 2000 }},
		{"topology: {links.ecn.pmax: 0.1}", func(s *sim.Spec) bool { return s.Topology.Links.ECN.Pmax == 0.1 && s.Topology.Links.ECN.Kmax == 2000 }},
		{"topology: {links.ecn: null}", func(s *sim.Spec) bool { return s.Topology.Links.ECN == (vocab.ECN{}) && s.Topology.Leaves == 2 }},
		{"topology.overhead: 0", func(s *sim.Spec) bool { return *s.Topology.Overhead == 0 }}, // zero is not nothing
		{"workloads: [{type: stride, stride: 1}]", func(s *sim.Spec) bool { return len(s.Workloads) == 1 && s.Workloads[0].Sizes == "" }},
		{`"workloads[1].rate": 2Mbit`, func(s *sim.Spec) bool {
			return s.Workloads[1].Rate == 2e6 && s.Workloads[1].Type == "udp" && s.Workloads[0].Load == 10
		}},
		{"workloads.1.rate: 2Mbit", func(s *sim.Spec) bool { return s.Workloads[1].Rate == 2e6 && s.Workloads[0].Load == 10 }},
		{`"workloads[0]": {load: 20}`, func(s *sim.Spec) bool { return s.Workloads[0].Load == 20 && s.Workloads[0].Sizes == "web-search" }},
		{`workloads: [{type: udp, rate: 3Mbit}], "workloads[0].size": 99`, func(s *sim.Spec) bool { return s.Workloads[0].Rate == 3e6 && s.Workloads[0].Size == 99 }},
		{"measure: {queues: [spines]}", func(s *sim.Spec) bool { return slices.Equal(s.Measure.Queues, []string{"spines"}) }},
		{"transport.type: rdma", func(s *sim.Spec) bool { return s.Transport.Recovery == "gbn" }}, // defaults come after the merge
	} {
		text := base + "sizes:\n  a: {" + tt.over + "}\n  b: {}\n"
		e, err := Parse("f.yaml", []byte(text), Options{})
		if err != nil {
			t.Errorf("%s: %v", tt.over, err)
			continue
		}
		if s := e.Sizes[0].Runs[0].Spec; !tt.ok(s) {
			t.Errorf("%s: %+v", tt.over, s)
		}
		// The other size did not change.
		b := e.Sizes[1].Runs[0].Spec
		if b.Topology.Leaves != 2 || b.Topology.Links.ECN.Pmax != 0.5 || len(b.Workloads) != 2 || b.Workloads[0].Load != 10 || b.Workloads[1].Rate != 1e6 || b.Transport.Type != "tcp" {
			t.Errorf("%s changed the base: %+v", tt.over, b)
		}
	}
}

// Overrides win in the order size, axis, scheme, load.
func TestMergeOrder(t *testing.T) {
	text := "name: m\ntopology: {leaves: 2, spines: 2, hosts: {per_leaf: 2, link: {rate: 1Gbit}}, links: {rate: 1Gbit}}\n" +
		"workloads: [{sizes: web-search, load: 1}]\nduration: 1ms\nwarmup: 1ms\ndrain: 1ms\nmeasure: {imbalance: 1ms}\n" +
		"schemes: [{name: x, scheme: ecmp, drain: 4ms, \"workloads[0].load\": 4}]\nloads: [5]\n" +
		"axis: {label: l, points: [{name: p, warmup: 3ms, drain: 3ms}, {name: q}]}\n" +
		"sizes: {s: {duration: 2ms, warmup: 2ms, drain: 2ms}}\n"
	e, err := Parse("f.yaml", []byte(text), Options{})
	if err != nil {
		t.Fatal(err)
	}
	s, q := e.Sizes[0].Runs[0].Spec, e.Sizes[0].Runs[1].Spec
	ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	if s.Measure.Imbalance != ms(1) || s.Duration != ms(2) || s.Warmup != ms(3) || s.Drain != ms(4) || s.Workloads[0].Load != 5 || q.Warmup != ms(2) {
		t.Errorf("%+v", s)
	}
}

func TestShippedExperiments(t *testing.T) {
	files, err := filepath.Glob("../../experiments/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]string{}
	for _, file := range files {
		e, err := Load(file, Options{})
		if err != nil {
			t.Error(err)
			continue
		}
		if other := names[e.Name]; other != "" {
			t.Errorf("%s and %s are both named %s: their results would mix", file, other, e.Name)
		}
		names[e.Name] = file
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(good))
	for _, name := range []string{"../../experiments/*.yaml", "../../config/fabric/testdata/*.yaml"} {
		files, _ := filepath.Glob(name)
		for _, file := range files {
			if b, err := os.ReadFile(file); err == nil {
				f.Add(b)
			}
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		e, err := Parse("f.yaml", data, Options{Seeds: 1})
		if err != nil {
			return
		}
		for _, s := range e.Sizes {
			ids := map[string]bool{}
			for i := range s.Runs {
				r := &s.Runs[i]
				if ids[r.ID] {
					t.Errorf("two runs are %s", r.ID)
				}
				ids[r.ID] = true
				if filepath.Base(r.ID) != r.ID || strings.HasPrefix(r.ID, ".") {
					t.Errorf("%q is no name of a file", r.ID)
				}
				if len(fileNames(r.Spec)) == 0 {
					if _, err := r.Hash(); err != nil {
						t.Error(err)
					}
				}
			}
		}
	})
}
