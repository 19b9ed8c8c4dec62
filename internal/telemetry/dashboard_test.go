package telemetry

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The dashboard asks for metrics that there are, by labels that they have.
func TestDashboard(t *testing.T) {
	b, err := os.ReadFile("../../deploy/grafana/loom.json")
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		Panels []struct {
			ID      int
			Title   string
			Type    string
			Targets []struct{ Expr, LegendFormat string }
		}
		Templating struct{ List []struct{ Definition string } }
	}
	if err := json.Unmarshal(b, &d); err != nil {
		t.Fatal(err)
	}
	labels := make(map[string][]string) // of each series
	for _, m := range metrics() {
		if m.kind != "histogram" {
			labels[m.name] = m.labels
			continue
		}
		labels[m.name+"_bucket"] = append(slices.Clip(m.labels), "le")
		labels[m.name+"_sum"], labels[m.name+"_count"] = m.labels, m.labels
	}
	series := regexp.MustCompile(`(loom_[a-z_]+)(?:\{([^}]*)\})?`)
	matched := regexp.MustCompile(`([a-z_]+)(?:=|!=|=~)"`)
	grouped := regexp.MustCompile(`by \(([^)]*)\)`)
	shown := regexp.MustCompile(`\{\{([a-z_]+)\}\}`)
	check := func(title, expr, legend string) {
		names := series.FindAllStringSubmatch(expr, -1)
		if len(names) == 0 {
			t.Errorf("%s asks for nothing of ours: %s", title, expr)
		}
		known := []string{"instance"}
		for _, n := range names {
			has, ok := labels[n[1]]
			if !ok {
				t.Errorf("%s: there is no %s", title, n[1])
			}
			known = append(known, has...)
			for _, l := range matched.FindAllStringSubmatch(n[2], -1) {
				if l[1] != "instance" && !slices.Contains(has, l[1]) {
					t.Errorf("%s: %s has no label %s", title, n[1], l[1])
				}
			}
		}
		var used []string
		for _, g := range grouped.FindAllStringSubmatch(expr, -1) {
			used = append(used, strings.Split(g[1], ", ")...)
		}
		for _, l := range shown.FindAllStringSubmatch(legend, -1) {
			if !slices.Contains(used, l[1]) {
				t.Errorf("%s: the legend shows %s, which the expression does not keep", title, l[1])
			}
		}
		for _, l := range used {
			if !slices.Contains(known, l) {
				t.Errorf("%s: nothing has a label %q", title, l)
			}
		}
	}
	ids := make(map[int]bool)
	for _, p := range d.Panels {
		if ids[p.ID] {
			t.Errorf("%s has the ID of another panel, %d", p.Title, p.ID)
		}
		ids[p.ID] = true
		if p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("%s shows nothing", p.Title)
		}
		for _, q := range p.Targets {
			check(p.Title, q.Expr, q.LegendFormat)
		}
	}
	if len(ids) < 10 {
		t.Errorf("only %d panels were read", len(ids))
	}
	for _, v := range d.Templating.List {
		if v.Definition != "" {
			check("variable", v.Definition, "")
		}
	}
}
