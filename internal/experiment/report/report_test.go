package report

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/xml"
	"errors"
	"image/png"
	"io"
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/loomfabric/loom/internal/experiment"
	"github.com/loomfabric/loom/internal/measure"
	"github.com/loomfabric/loom/internal/spread"
	"github.com/loomfabric/loom/internal/yamlfile"
	"github.com/loomfabric/loom/sim"
)

const text = `name: demo
title: Two workloads & a <failure>
paper: CONGA §3.6 τ, Figure 9
claim: |
  CONGA is up to 20 % better
  than | ECMP.
note: We differ, as buffers do.
topology: {leaves: 2, spines: 2, hosts: {per_leaf: 4, link: {rate: 10Gbit, queue: 1MB}}, links: {rate: 40Gbit, queue: 1MB}}
workloads: [{sizes: web-search, load: 10}]
duration: 100ms
schemes: [ecmp, conga, {name: conga 2ms, scheme: conga, congestion: {flowlet_gap: 2ms}}]
loads: [30, 60, 80]
seeds: 3
axis: {label: sizes, points: [{name: Web Search, workloads.0.sizes: web-search}, {name: data-mining, workloads.0.sizes: data-mining}]}
sizes:
  quick: {loads: [30, 60], note: Quick is short.}
  paper: {}
  shown: {loads: [60], seeds: 5, published: true}
plots:
  - {name: fct, y: fct.all.norm, title: Mean FCT}
  - {name: small, y: fct.small.mean_s, at: {axis: Web Search}}
  - {name: relative, y: fct.all.norm, relative: ecmp, at: {load: 60}, x: axis}
  - {name: queue, x: cdf, y: queues.S1->L1.0, at: {load: 60, axis: data-mining}}
  - {name: classes, x: items, y: fct.*.p99_s, at: {load: 60, axis: data-mining}, log_y: true}
  - {name: none, y: fct.huge.norm}
table:
  - fct.all.norm
  - {metric: fct.small.mean_s, plain: true}
  - {metric: drops.queue-full, label: drops}
expect:
  - {metric: fct.all.norm, at: {load: 60}, scheme: conga, versus: ecmp, ratio: "< 0.8", paper: "<= 0.55"}
  - {metric: fct.all.norm, at: {load: 60, axis: Web Search}, scheme: ecmp, value: "< 0.8", says: ECMP is near the best, differs: "Our ECMP is another."}
  - {metric: fct.huge.norm, at: {load: 60, axis: Web Search}, scheme: ecmp, value: "< 0.8"}
`

// result is made up: ecmp's FCT is twice the load's part of what is left, conga's
// half of ecmp's.
func result(_ context.Context, s *sim.Spec) (*measure.Result, error) {
	load := s.Workloads[0].Load
	norm := 2 / (1 - load/100) * (1 + 0.1*float64(s.Seed%100))
	r := &measure.Result{Scheme: s.Scheme, Load: load, Seed: s.Seed, End: "done", Flows: 1000, GoodputBps: load * 1e9, PacketHops: 1e6,
		Drops: map[string]uint64{}, Machine: measure.Machine{WallS: 0.5}}
	if s.Scheme == "conga" {
		norm /= 2
		r.Drops["queue-full"] = s.Seed
	} else {
		r.Drops["queue-full"] = 7
		r.Unfinished = 2
	}
	for _, c := range []string{"all", "small", "large"} {
		r.FCT = append(r.FCT, measure.ClassFCT{Class: c, Flows: 10, MeanS: norm / 1e3, P99S: norm / 100, Norm: norm})
	}
	q := measure.Distribution{Name: "S1->L1.0", P99: norm * 1e5}
	for i := range 20 {
		q.CDF = append(q.CDF, measure.Point{X: float64(i) * norm * 1e4, Y: float64(i) / 19})
	}
	r.Queues = []measure.Distribution{q}
	return r, nil
}

// runner skips some runs, and makes up the results of the others.
type runner func(*sim.Spec) (skip bool)

func (r runner) Name() string                    { return experiment.OnSim }
func (r runner) Version() string                 { return "v1" }
func (r runner) Check(*sim.Spec) yamlfile.Errors { return nil }
func (r runner) Jobs() int                       { return 1 }
func (r runner) Run(ctx context.Context, s *sim.Spec) (*measure.Result, error) {
	if r(s) {
		return nil, errors.New("skipped")
	}
	return result(ctx, s)
}

// stored makes the runs of a size. Runs for which skip is true fail.
func stored(t *testing.T, size string, skip func(*sim.Spec) bool) *experiment.Results {
	t.Helper()
	e, err := experiment.Parse("experiments/demo.yaml", []byte(text), experiment.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := e.Size(size)
	if err != nil {
		t.Fatal(err)
	}
	st := s.Store(t.TempDir(), experiment.OnSim)
	if _, err := st.Run(t.Context(), s, experiment.RunOptions{Runner: runner(func(s *sim.Spec) bool { return skip != nil && skip(s) }), Jobs: 1}); err != nil {
		t.Fatal(err)
	}
	r, err := st.Results(s)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestFigures(t *testing.T) {
	r := stored(t, "quick", nil)
	var names []string
	for _, f := range Figures(r) {
		names = append(names, f.Name)
		if p := f.Series[0].Points[0]; f.Name == "small" { // 2/0.7 ms times 1.1, 1.2 and 1.3
			for got, want := range map[float64]float64{p.Low: 2.2 / 0.7, p.Y: 2.4 / 0.7, p.High: 2.6 / 0.7, p.X: 30} {
				if math.Abs(got-want) > 1e-9 {
					t.Errorf("%s begins at %+v", f.Name, p)
				}
			}
		}
		var svg, img bytes.Buffer
		if err := errors.Join(f.SVG(&svg), f.PNG(&img)); err != nil {
			t.Fatal(err)
		}
		written := textOf(t, f.Name, svg.String())
		if p, err := png.Decode(&img); err != nil || p.Bounds().Dx() != int(math.Round(15/2.54*144)) && p.Bounds().Dx() != 850 || p.Bounds().Dy() != 510 {
			t.Errorf("%s: %v, %v", f.Name, p.Bounds(), err)
		}
		for _, want := range map[string][]string{
			"fct-web-search": {"Mean FCT: Web Search", "load (%)", "mean FCT ÷ idle network's", "conga 2ms"},
			"small":          {"mean FCT, small flows (ms)"},
			"relative":       {"÷ ecmp's", "Web Search", "sizes"},
			"queue":          {"queue, S1->L1.0 (MB)", "CDF"},
			"classes":        {"small", "p99 FCT (ms)"},
		}[f.Name] {
			if !strings.Contains(written, want) {
				t.Errorf("%s: no %q in %q", f.Name, want, written)
			}
		}
	}
	want := []string{"fct-web-search", "fct-data-mining", "small", "relative", "queue", "classes"} // nothing for none
	if !slices.Equal(names, want) {
		t.Errorf("figures %q, want %q", names, want)
	}
	if got := Figures(stored(t, "quick", func(*sim.Spec) bool { return true })); len(got) != 0 {
		t.Errorf("figures of nothing: %d", len(got))
	}
}

// textOf is the text in an XML document, which has to be well-formed.
func textOf(t *testing.T, name, doc string) (text string) {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(doc))
	for {
		tok, err := d.Token()
		if err == io.EOF {
			return text
		}
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if c, ok := tok.(xml.CharData); ok {
			text += string(c)
		}
	}
}

func TestText(t *testing.T) {
	r := stored(t, "quick", func(s *sim.Spec) bool {
		return s.Seed == 3 && s.Scheme == "conga" && !s.Congestion.Given("flowlet_gap") && s.Workloads[0].Load == 60 && s.Workloads[0].Sizes == "web-search"
	})
	var b bytes.Buffer
	if err := Text(&b, r); err != nil {
		t.Fatal(err)
	}
	lines := map[string]bool{}
	for line := range strings.Lines(b.String()) {
		lines[strings.Join(strings.Fields(line), " ")] = true
	}
	for _, want := range []string{
		"demo, size quick: mean ±95 % interval (least–greatest) of 3 seeds, ×ratio to ecmp seed by seed",
		"mean FCT ÷ idle network's ecmp conga conga 2ms",
		// 5 × 1.1, 1.2, 1.3 and half of it; Student's t of two degrees of freedom is 4.30.
		"Web Search, 60 % 6.00 ±1.24 (5.50–6.50) 2.88 ±1.59 (2.75–3.00) [2 of 3 seeds] ×0.500 3.00 ±0.621 (2.75–3.25) ×0.500",
		"mean FCT, small flows (ms) ecmp conga conga 2ms",
		"data-mining, 60 % 6.00 ±1.24 (5.50–6.50) 3.00 ±0.621 (2.75–3.25) 3.00 ±0.621 (2.75–3.25)",
		"Web Search, 30 % 7.00 ±0 (7.00–7.00) 2.00 ±2.48 (1.00–3.00) ×0.286 2.00 ±2.48 (1.00–3.00) ×0.286",
		"the paper's margin is reached (by the mean): fct.all.norm of conga over that of ecmp < 0.8 (Web Search, 60 % load): 0.500 ±0 (0.500–0.500); the paper: ≤ 0.55",
		"not reproduced: contradicted (by the mean): ECMP is near the best (Web Search, 60 % load): 6.00 ±1.24 (5.50–6.50); the paper: < 0.8, no number. Our ECMP is another.",
		"cannot be told: fct.huge.norm of ecmp < 0.8 (Web Search, 60 % load): no run has it; the paper: < 0.8, no number",
		"note: 1 of 36 runs are not stored",
		"note: ecmp at Web Search, 30 %: 6 of 3000 flows did not finish, and count with their age",
	} {
		if !lines[want] {
			t.Errorf("no line %q in\n%s", want, &b)
		}
	}
}

func TestCSV(t *testing.T) {
	var b bytes.Buffer
	if err := CSV(&b, []*experiment.Results{stored(t, "quick", nil), stored(t, "paper", nil)}); err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(&b).ReadAll()
	if err != nil || len(rows) != 1+36+54 {
		t.Fatalf("%d rows, %v", len(rows), err)
	}
	golden := "experiment,size,id,scheme,load_percent,axis,seed,version,hash,end,length_s,flows,unfinished," +
		"fct.all.min_bytes,fct.all.max_bytes,fct.all.flows,fct.all.mean_s,fct.all.p50_s,fct.all.p95_s,fct.all.p99_s,fct.all.p999_s,fct.all.norm,fct.small.min_bytes"
	if got := strings.Join(rows[0], ","); !strings.HasPrefix(got, golden) || !strings.Contains(got, ",goodput_bps,queues.S1->L1.0.n,") ||
		!strings.Contains(got, ",drops.queue-full,") || !strings.HasSuffix(got, ",machine.wall_s") {
		t.Errorf("columns %s\nbegin otherwise than %s", got, golden)
	}
	column := func(row []string, name string) string { return row[slices.Index(rows[0], name)] }
	conga := rows[2]
	if column(conga, "id") != "web-search_conga_load30_seed1" || column(conga, "load_percent") != "30" || column(conga, "axis") != "Web Search" ||
		column(conga, "goodput_bps") != "3e+10" || column(conga, "drops.queue-full") != "1" || column(rows[1], "drops.queue-full") != "7" {
		t.Errorf("%q", conga)
	}
}

func TestHTML(t *testing.T) {
	var b bytes.Buffer
	all := []*experiment.Results{stored(t, "quick", nil), stored(t, "paper", func(s *sim.Spec) bool { return s.Seed == 2 })}
	if err := HTML(&b, "Results & more", all); err != nil {
		t.Fatal(err)
	}
	s := b.String()
	// Nothing is loaded from elsewhere.
	for _, re := range []string{`(?i)https?://`, `(?i)<(script|link|img|iframe|object|embed|base)\b`, `(?i)\b(src|xlink:href)\s*=`, `(?i)url\(`, `(?i)@import`, `href="[^#]`} {
		if found := regexp.MustCompile(re).FindString(s); found != "" {
			t.Errorf("%s: %q is in the page", re, found)
		}
	}
	// Well-formed: every element is closed, in order.
	d := xml.NewDecoder(strings.NewReader(strings.TrimPrefix(s, "<!DOCTYPE html>")))
	ids := map[string]bool{}
	svgs := 0
	for {
		tok, err := d.Token()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatalf("not well-formed: %v", err)
		}
		if e, ok := tok.(xml.StartElement); ok {
			if e.Name.Local == "svg" {
				svgs++
			}
			for _, a := range e.Attr {
				if a.Name.Local == "id" && ids[a.Value] {
					t.Errorf("id %s is there twice", a.Value)
				} else if a.Name.Local == "id" {
					ids[a.Value] = true
				}
			}
		}
	}
	if svgs != 12 || !ids["demo-quick"] || !ids["demo-paper"] {
		t.Errorf("%d figures, ids %v", svgs, ids)
	}
	for _, want := range []string{
		"Results &amp; more", "Two workloads &amp; a &lt;failure&gt;", "CONGA is up to 20 % better", "loomsim run experiments/demo.yaml --size quick",
		"We differ, as buffers do.", "Quick is short.", "6.00 ±1.24 (5.50–6.50)", "✓ the paper&#39;s margin is reached", "✗ not reproduced: contradicted", "✗ cannot be told", "18 of 54 runs are not stored",
		"prefers-color-scheme: dark", "link: {rate: 10Gbit", "2 reach the paper&#39;s margin, 1 not reproduced, 1 cannot be told", "loomsim v1",
	} {
		if !strings.Contains(s, want) {
			t.Errorf("no %q in the page", want)
		}
	}
}

func TestMarkdown(t *testing.T) {
	all := []*experiment.Results{stored(t, "quick", nil), stored(t, "shown", nil)}
	doc, err := Markdown("# Results\n\nHand-written.\n", all)
	if err != nil {
		t.Fatal(err)
	}
	figure := "| [CONGA §3.6 τ, Figure 9](#conga-36-τ-figure-9-two-workloads--a-failure), shown<!-- demo --> | "
	for _, want := range []string{
		"# Results\n\nHand-written.\n\n<!-- loomsim: summary -->\n| figure | claim | the paper | ours | verdict |\n",
		figure + "fct.all.norm of conga over that of ecmp < 0.8 (Web Search, 60 % load) | ≤ 0.55 | 0.500 ±0 (0.500–0.500) | the paper's margin is reached |\n",
		figure + "ECMP is near the best (Web Search, 60 % load) | < 0.8, no number | 6.50 ±0.982 (5.50–7.50) | not reproduced: contradicted |\n",
		"<!-- loomsim: demo -->\n## CONGA §3.6 τ, Figure 9: Two workloads & a <failure>\n\n> CONGA is up to 20 % better\n> than | ECMP.\n",
		"| mean FCT ÷ idle network's | ecmp | conga | conga 2ms |\n|---|---:|---:|---:|\n",
		"| Web Search, 60 % | 6.50 ±0.982 (5.50–7.50) | 3.25 ±0.491 (2.75–3.75) ×0.500 | 3.25 ±0.491 (2.75–3.75) ×0.500 |\n",
		"`loomsim run experiments/demo.yaml --size shown`",
		"- not reproduced: contradicted: ECMP is near the best (Web Search, 60 % load): 6.50 ±0.982 (5.50–7.50); the paper: < 0.8, no number. Our ECMP is another.\n",
		"<!-- loomsim: end of demo -->\n",
	} {
		if !strings.Contains(doc, want) {
			t.Errorf("no %q in\n%s", want, doc)
		}
	}
	if strings.Contains(doc, "--size quick") {
		t.Error("a size that is not published is shown")
	}
	if _, err := Markdown("", all[:1]); err == nil {
		t.Error("a page of nothing published was made")
	}
	if again, err := Markdown(doc, all); err != nil || again != doc {
		t.Errorf("a second time it is another: %v\n%s", err, again)
	}
	// What is around the parts stays, and parts stay where they are.
	moved := strings.Replace(doc, "Hand-written.", "Otherwise.", 1) + "\nThe end.\n"
	if got, err := Markdown(strings.Replace(moved, "6.50 ±0.982 (5.50–7.50)", "1", 1), all); err != nil || got != moved {
		t.Errorf("%v:\n%s", err, got)
	}
	if _, err := Markdown("<!-- loomsim: end of demo -->\n<!-- loomsim: demo -->\n", all); err == nil {
		t.Error("markers in the wrong order were accepted")
	}
}

// TestOneSection: an experiment's section is made anew alone, and the rows of others
// stay in the table, in the order of names. A table of another form is not kept.
func TestOneSection(t *testing.T) {
	r := stored(t, "shown", nil)
	rows := func(names ...string) string {
		doc := ""
		for _, name := range names {
			r.Size.Experiment.Name = name
			var err error
			if doc, err = Markdown(doc, []*experiment.Results{r}); err != nil {
				t.Fatal(err)
			}
		}
		return doc
	}
	if doc, other := rows("demo", "alpha", "omega"), rows("omega", "demo", "alpha", "demo"); doc[:strings.Index(doc, "end of summary")] != other[:strings.Index(other, "end of summary")] {
		t.Errorf("the table depends on the order of its making:\n%s\n%s", doc, other)
	} else if strings.Count(doc, "<!-- demo --> |") != 4 || strings.Index(doc, "<!-- alpha -->") > strings.Index(doc, "<!-- demo -->") {
		t.Errorf("rows of others are lost, or out of order:\n%s", doc)
	}
	old := "<!-- loomsim: summary -->\n| figure | ours |\n|---|---|\n| [x](#x)<!-- x --> | 1 |\n<!-- loomsim: end of summary -->\n"
	if got, err := Markdown(old, []*experiment.Results{r}); err != nil || strings.Contains(got, "<!-- x -->") {
		t.Errorf("%v: rows of another table are in\n%s", err, got)
	}
}

func TestOutcomeUnits(t *testing.T) {
	at := func(text string) *experiment.Bounds {
		b, err := experiment.ParseBounds(text)
		if err != nil {
			t.Fatal(err)
		}
		return &b
	}
	for _, tt := range []struct {
		metric, bounds string
		mean           float64
		found, margin  string
	}{
		{"conweave.bytes.p999", "<= 1.5e6", 702913, "703 KB", "≤ 1500 KB, no number"},
		{"conweave.resume_late_ns.p99", "2700 to 3000", 5120, "5.12 µs", "2.7–3 µs, no number"},
		{"fct.all.mean_s", "> 1", 2.5, "2.50 s", "> 1 s, no number"},
		{"uplinks.L1->S0.0.percent", "40 to 60", 49.7, "49.7 %", "40–60 %, no number"},
		{"fct.all.norm", "< 0.8", 0.5, "0.500", "< 0.8, no number"},
	} {
		o := outcome{experiment.Outcome{Expectation: &experiment.Expectation{Metric: tt.metric, Value: at(tt.bounds)}, Spread: spread.Of([]float64{tt.mean})}}
		if o.Found() != tt.found || o.Margin() != tt.margin {
			t.Errorf("%s of %g against %s: %q and %q, want %q and %q", tt.metric, tt.mean, tt.bounds, o.Found(), o.Margin(), tt.found, tt.margin)
		}
	}
}

func TestWords(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 0.9999: "1.00", 0.5: "0.500", 0.0123456: "0.0123", 9.999: "10.0", 12.34: "12.3", 99.99: "100", 12345.6: "12346", 1e-7: "1e-07", -2: "-2.00"} {
		if got := short(v); got != want {
			t.Errorf("%g is written as %s, want %s", v, got, want)
		}
	}
	for _, tt := range []struct {
		metric string
		v      float64
		want   string
	}{
		{"fct.all.mean_s", 0.0123, "12.3 ms"}, {"fct.all.mean_s", 4.5e-6, "4.50 µs"}, {"goodput_bps", 1.25e9, "1.25 Gbit/s"}, {"queues.x.p99", 250e3, "250 KB"},
		{"conweave.hold_time_ns.p99", 8200, "8.20 µs"}, {"fct.all.norm", 3, "3.00 "}, {"queues.x.p99", 0, "0 B"}, {"machine.hops_per_s", 3.5e6, "3.50 M hops/s"},
	} {
		sc := scaleFor(tt.metric, tt.v)
		if got := short(tt.v*sc.factor) + " " + sc.unit; got != tt.want {
			t.Errorf("%g of %s is %q, want %q", tt.v, tt.metric, got, tt.want)
		}
	}
}
