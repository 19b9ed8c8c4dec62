package telemetry

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

const (
	deploy = "../../deploy/"
	rules  = deploy + "prometheus/loom.rules.yml"
	alerts = "../../docs/alerts.md"
)

// rule is one of the rules' file.
type rule struct {
	Record, Alert, Expr, For string
	Labels, Annotations      map[string]string
}

func readRules(t *testing.T) (all []rule) {
	t.Helper()
	var file struct {
		Groups []struct {
			Name  string
			Rules []rule
		}
	}
	readYAML(t, rules, &file)
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	if len(all) < 20 {
		t.Fatalf("only %d rules were read from %s", len(all), rules)
	}
	return all
}

func readYAML(t *testing.T, path string, into any) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err == nil {
		err = yaml.Unmarshal(b, into)
	}
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

// vocabulary is the series that a query may ask for, and the labels of each.
type vocabulary map[string][]string

// vocabularyOf returns what the daemons export and the rules record.
func vocabularyOf(t *testing.T) vocabulary {
	v := vocabulary{"up": {"job"}}
	for _, m := range metrics() {
		if m.kind != "histogram" {
			v[m.name] = m.labels
			continue
		}
		v[m.name+"_bucket"] = append(slices.Clip(m.labels), "le")
		v[m.name+"_sum"], v[m.name+"_count"] = m.labels, m.labels
	}
	for _, p := range processMetrics {
		v[p] = nil
	}
	for _, r := range readRules(t) {
		if r.Record != "" {
			v[r.Record] = keptBy(r.Expr)
		}
	}
	return v
}

// processMetrics are those of client_golang that the dashboards ask for; the test over a
// lab shows that they are there.
var processMetrics = []string{"process_cpu_seconds_total", "process_resident_memory_bytes", "go_memstats_heap_inuse_bytes"}

var (
	seriesIn  = regexp.MustCompile(`((?:loom[_:]|process_|go_)[a-z_:0-9]+|\bup\b)(?:\{([^}]*)\})?`)
	matchedIn = regexp.MustCompile(`([a-z_]+)(?:=~|!=|!~|=)"`)
	groupedIn = regexp.MustCompile(`\b(?:by|on|group_left) \(([^)]*)\)`)
	madeIn    = regexp.MustCompile(`label_replace\([^"]*"([a-z_]+)"|"([a-z_]+)", "[^"]*", "[a-z_]*", "[^"]*"\)`)
	// aggregateIn finds what leaves labels out that it does not name.
	aggregateIn = regexp.MustCompile(`\b(?:sum|max|min|avg|count|histogram_quantile) ?(?:by|\()`)
	shownIn     = regexp.MustCompile(`\{\{([a-z_]+)\}\}`)
)

// keptBy returns the labels that an expression names in its groupings, and those that it makes.
func keptBy(expr string) (labels []string) {
	for _, g := range groupedIn.FindAllStringSubmatch(expr, -1) {
		for _, l := range strings.Split(g[1], ",") {
			if l = strings.TrimSpace(l); l != "" && !slices.Contains(labels, l) {
				labels = append(labels, l)
			}
		}
	}
	for _, m := range madeIn.FindAllStringSubmatch(expr, -1) {
		labels = append(labels, m[1]+m[2])
	}
	return labels
}

// check returns what is wrong with a query: series that nobody exports, and labels that they
// do not have. shown are labels that are written beside the answer.
func (v vocabulary) check(expr string, shown ...string) (problems []string) {
	names := seriesIn.FindAllStringSubmatch(expr, -1)
	if len(names) == 0 {
		return []string{"it asks for nothing of ours: " + expr}
	}
	exported := []string{"instance", "job"}
	for _, n := range names {
		has, ok := v[n[1]]
		if !ok {
			problems = append(problems, "there is no "+n[1])
		}
		exported = append(exported, has...)
		for _, l := range matchedIn.FindAllStringSubmatch(n[2], -1) {
			if !slices.Contains([]string{"instance", "job", "le"}, l[1]) && !slices.Contains(has, l[1]) {
				problems = append(problems, fmt.Sprintf("%s has no label %s", n[1], l[1]))
			}
		}
	}
	for _, m := range madeIn.FindAllStringSubmatch(expr, -1) {
		exported = append(exported, m[1]+m[2])
	}
	kept := keptBy(expr)
	for _, l := range kept {
		if !slices.Contains(exported, l) {
			problems = append(problems, fmt.Sprintf("nothing has a label %q", l))
		}
	}
	if !aggregateIn.MatchString(expr) || strings.Contains(expr, "group_left") { // the side with more labels keeps them
		kept = exported
	}
	for _, l := range shown {
		if l != "" && !slices.Contains(kept, l) {
			problems = append(problems, l+" is shown, which the expression does not keep")
		}
	}
	return problems
}

// What the check finds wrong it has to find: a query of a metric that was renamed is one that
// answers nothing.
func TestVocabularyFindsMistakes(t *testing.T) {
	v := vocabularyOf(t)
	for _, tt := range []struct{ expr, shown, want string }{
		{`rate(loom_port_sent_octets_total[1m])`, "port", "there is no loom_port_sent_octets_total; port is shown, which the expression does not keep"},
		{`loom_peer_capable{leaf="x"}`, "peer", "loom_peer_capable has no label leaf"},
		{`loom_port_info{speed!~"x"}`, "kind", "loom_port_info has no label speed"},
		{`sum by (instance, vni) (loom_peer_capable)`, "vni", `nothing has a label "vni"`},
		{`sum by (instance) (loom_port_up)`, "port", "port is shown, which the expression does not keep"},
		{`loom:frames_missing:sum != 0`, "instance", "there is no loom:frames_missing:sum"},
		{`sum(rate(loom_reorder_hold_seconds[5m]))`, "instance", "there is no loom_reorder_hold_seconds; instance is shown, which the expression does not keep"},
		{`vector(1)`, "", "it asks for nothing of ours: vector(1)"},
		{`loom_path_alive * on (instance, peer, tag) group_left (port) loom_path_info`, "port", ""},
		{`sum by (instance, le) (rate(loom_reorder_hold_seconds_bucket{instance=~"x"}[5m]))`, "le", ""},
	} {
		if got := strings.Join(v.check(tt.expr, tt.shown), "; "); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.expr, got, tt.want)
		}
	}
}

// Rules ask for what there is, every alert says who is concerned, how bad it is and what to
// do, and docs/alerts.md has it.
func TestRules(t *testing.T) {
	v, names := vocabularyOf(t), make(map[string]bool)
	page, err := os.ReadFile(alerts)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range readRules(t) {
		name := r.Alert + r.Record
		if names[name] {
			t.Errorf("%s is there twice", name)
		}
		names[name] = true
		text := r.Annotations["summary"] + r.Annotations["description"]
		var shown []string
		for _, l := range regexp.MustCompile(`\$labels\.([a-z_]+)`).FindAllStringSubmatch(text, -1) {
			shown = append(shown, l[1])
		}
		for _, p := range v.check(r.Expr, shown...) {
			t.Errorf("%s: %s", name, p)
		}
		if !strings.Contains(string(page), "`"+name+"`") {
			t.Errorf("%s has no line for %s", alerts, name)
		}
		if r.Alert == "" {
			continue
		}
		if !slices.Contains([]string{"critical", "warning", "info"}, r.Labels["severity"]) {
			t.Errorf("%s has the severity %q, want critical, warning or info", name, r.Labels["severity"])
		}
		if !strings.Contains(r.Annotations["summary"], "{{ $labels.instance }}") || len(r.Annotations["description"]) < 40 {
			t.Errorf("%s does not say which node, what is wrong and what to do: %q", name, r.Annotations)
		}
		if !strings.Contains(string(page), "| `"+name+"` | "+r.Labels["severity"]+" | ") {
			t.Errorf("%s has no row for %s with its severity, %s", alerts, name, r.Labels["severity"])
		}
	}
	for _, m := range regexp.MustCompile("`(Loom[A-Za-z]+|loom:[a-z_0-9:]+)`").FindAllStringSubmatch(string(page), -1) {
		if !names[m[1]] {
			t.Errorf("%s describes %s, which is no rule", alerts, m[1])
		}
	}
}

// Each alert has its fixture, which says what fires in all; and promtool finds it so.
func TestAlertsFire(t *testing.T) {
	const path = deploy + "prometheus/loom.rules.test.yml"
	var file struct {
		Tests []struct {
			Name  string
			Tests []struct{ Expr string } `yaml:"promql_expr_test"`
		}
	}
	readYAML(t, path, &file)
	fixtures := make(map[string]bool)
	for _, f := range file.Tests {
		fixtures[f.Name] = len(f.Tests) > 0 && strings.Contains(f.Tests[0].Expr, "(alertname") && strings.Contains(f.Tests[0].Expr, "(ALERTS")
	}
	for _, r := range readRules(t) {
		if r.Alert != "" && !fixtures[r.Alert] {
			t.Errorf("%s has no fixture for %s that begins with which alerts fire", path, r.Alert)
		}
	}
	if !fixtures["healthy"] {
		t.Errorf("%s has no fixture of a healthy node", path)
	}
	for _, args := range [][]string{{"check", "rules", rules}, {"test", "rules", path}} {
		if out, err := exec.Command("promtool", args...).CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}

// A fixture that does not fit its alert is found: the same file with a rule that never fires.
func TestAlertsCanFail(t *testing.T) {
	b, err := os.ReadFile(rules)
	if err != nil {
		t.Fatal(err)
	}
	broken := strings.Replace(string(b), "expr: loom_peer_next_hops == 0", "expr: loom_peer_next_hops == -1", 1)
	tests, err := os.ReadFile(deploy + "prometheus/loom.rules.test.yml")
	if err != nil || broken == string(b) {
		t.Fatalf("nothing was broken: %v", err)
	}
	head, _, _ := strings.Cut(string(tests), "\n  - name: ")
	_, fixture, _ := strings.Cut(string(tests), "\n  - name: LoomPeerUnreachable\n")
	fixture, _, _ = strings.Cut(fixture, "\n  - name: ")
	dir := t.TempDir()
	for name, text := range map[string]string{"loom.rules.yml": broken, "loom.rules.test.yml": head + "\n  - name: LoomPeerUnreachable\n" + fixture} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	out, err := exec.Command("promtool", "test", "rules", filepath.Join(dir, "loom.rules.test.yml")).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "LoomPeerUnreachable") {
		t.Errorf("a rule that never fires passes: %v\n%s", err, out)
	}
}

// dashboard is what the tests read of one.
type dashboard struct {
	UID, Title string
	Panels     []struct {
		ID          int
		Title       string
		Type        string
		Description string
		Targets     []struct{ Expr, LegendFormat string }
	}
	Templating struct {
		List []struct{ Name, Definition string }
	}
}

func dashboards(t *testing.T) map[string]dashboard {
	t.Helper()
	paths, err := filepath.Glob(deploy + "grafana/*.json")
	if err != nil {
		t.Fatal(err)
	}
	all, uids := make(map[string]dashboard), make(map[string]bool)
	for _, p := range paths {
		b, err := os.ReadFile(p)
		var d dashboard
		if err == nil {
			err = json.Unmarshal(b, &d)
		}
		if err != nil || uids[d.UID] || d.UID == "" {
			t.Fatalf("%s: %v, or its UID %q is another's", p, err, d.UID)
		}
		all[filepath.Base(p)], uids[d.UID] = d, true
	}
	return all
}

// The dashboards ask for metrics that there are, by labels that they have.
func TestDashboards(t *testing.T) {
	v, all := vocabularyOf(t), dashboards(t)
	if len(all) == 0 {
		t.Errorf("there are no dashboards in %s", deploy)
	}
	for file, d := range all {
		ids := make(map[int]bool)
		for _, p := range d.Panels {
			if ids[p.ID] {
				t.Errorf("%s: %s has the ID of another panel, %d", file, p.Title, p.ID)
			}
			ids[p.ID] = true
			if p.Type != "row" && (len(p.Targets) == 0 || p.Description == "") {
				t.Errorf("%s: %s shows nothing, or says nothing about it", file, p.Title)
			}
			for _, q := range p.Targets {
				var shown []string
				for _, l := range shownIn.FindAllStringSubmatch(q.LegendFormat, -1) {
					shown = append(shown, l[1])
				}
				for _, problem := range v.check(q.Expr, shown...) {
					t.Errorf("%s: %s: %s", file, p.Title, problem)
				}
			}
		}
		for _, l := range d.Templating.List {
			if l.Definition != "" {
				for _, problem := range v.check(l.Definition) {
					t.Errorf("%s: variable %s: %s", file, l.Name, problem)
				}
			}
		}
	}
}
