package telemetry

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/loomfabric/loom/internal/drop"
	"github.com/loomfabric/loom/internal/stat"
)

const page = "../../docs/metrics.md"

// metric is a row of the page.
type metric struct {
	name, kind, help string
	labels           []string
}

// metrics lists what the collector declares, each name once.
func metrics() (all []metric) {
	have := make(map[string]bool)
	add := func(name, kind, help string, labels []string) {
		if !have[name] {
			have[name] = true
			all = append(all, metric{name, kind, help, labels})
		}
	}
	for _, s := range declared() {
		for _, r := range s.rows {
			kind := map[stat.Kind]string{stat.Counter: "counter", stat.Gauge: "gauge", stat.Times: "histogram"}[r.Kind]
			add(r.Metric, kind, r.Help, s.labelsOf(r.Field))
			if r.longest != nil {
				add(r.Longest, "gauge", longestHelp(r.Field), s.labelsOf(r.Field))
			}
		}
	}
	return all
}

func (m *metric) row() string {
	labels := make([]string, len(m.labels))
	for i, l := range m.labels {
		labels[i] = "`" + l + "`"
	}
	return line("`"+m.name+"`", m.kind, strings.Join(labels, ", "), m.help)
}

// TestPageDescribesTheMetrics holds the page against what the collector sends, not
// only against what it declares: names, types and meanings are a promise.
func TestPageDescribesTheMetrics(t *testing.T) {
	sent := make(map[string]metric)
	for _, f := range gather(t, newFake().options()) {
		m := metric{f.GetName(), strings.ToLower(f.GetType().String()), f.GetHelp(), nil}
		for _, l := range f.Metric[0].Label {
			m.labels = append(m.labels, l.GetName())
		}
		sent[m.name] = m
	}
	var b strings.Builder
	b.WriteString("\n| name | type | labels | meaning |\n| --- | --- | --- | --- |\n")
	for _, m := range metrics() {
		b.WriteString(m.row())
		m.labels = slices.Sorted(slices.Values(m.labels))
		if got := sent[m.name]; got.row() != m.row() {
			t.Errorf("%s is declared as %q and sent as %q", m.name, m.row(), got.row())
		}
		if !strings.HasSuffix(m.help, ".") {
			t.Errorf("%s has no sentence about it: %q", m.name, m.help)
		}
		delete(sent, m.name)
	}
	for name := range sent {
		t.Errorf("%s is sent and not declared", name)
	}
	b.WriteString("\n")
	onPage(t, "metrics", b.String())
}

// The page says what the values of a family's label mean.
func TestPageDescribesTheFamilies(t *testing.T) {
	var names []string
	rows := make(map[string]string)
	for _, s := range declared() {
		for _, r := range s.rows {
			if r.About == "" {
				continue
			}
			if rows[r.Metric] == "" {
				names = append(names, r.Metric)
			}
			if x := line("`"+r.Metric+"`", "`"+r.Value+"`", r.About); !strings.Contains(rows[r.Metric], x) {
				rows[r.Metric] += x
			}
		}
	}
	if len(names) < 4 {
		t.Errorf("only %v have values with a meaning", names)
	}
	var b strings.Builder
	b.WriteString("\n| metric | value | meaning |\n| --- | --- | --- |\n")
	for _, n := range names {
		b.WriteString(rows[n])
	}
	b.WriteString("\n")
	onPage(t, "families", b.String())
}

// onPage holds what the page has between two comments against what is wanted there.
func onPage(t *testing.T, comment, want string) {
	t.Helper()
	text := readPage(t)
	begin, end := "<!-- "+comment+" -->\n", "<!-- /"+comment+" -->"
	before, rest, ok := strings.Cut(text, begin)
	table, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no place for a table: it needs %q and %q", page, begin, end)
	}
	if *update && table != want {
		if err := os.WriteFile(page, []byte(before+begin+want+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
		table = want
	}
	if table != want {
		t.Errorf("%s does not match the collector; if that is wanted, rewrite it with -update and say so in CHANGELOG.md. Want\n%s", page, want)
	}
}

func line(cells ...string) string { return "| " + strings.Join(cells, " | ") + " |\n" }

func readPage(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// firstColumn returns the names in the first column of the table under a
// heading.
func firstColumn(t *testing.T, heading string) []string {
	t.Helper()
	_, section, ok := strings.Cut(readPage(t), "\n## "+heading+"\n")
	if !ok {
		t.Fatalf("%s has no section %q", page, heading)
	}
	section, _, _ = strings.Cut(section, "\n## ")
	var names []string
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| .+ \\|$").FindAllStringSubmatch(section, -1) {
		names = append(names, m[1])
	}
	return names
}

func TestPageDescribesTheLabels(t *testing.T) {
	labels := make(map[string]bool)
	for _, m := range metrics() {
		for _, l := range m.labels {
			labels[l] = true
		}
	}
	var reasons []string
	for r := drop.None + 1; r < drop.NumReasons; r++ {
		reasons = append(reasons, r.String())
	}
	for _, tt := range []struct {
		heading string
		want    []string
	}{
		{"Labels", slices.Collect(maps.Keys(labels))},
		{"Drop reasons", reasons},
	} {
		t.Run(tt.heading, func(t *testing.T) {
			got, want := slices.Sorted(slices.Values(firstColumn(t, tt.heading))), slices.Sorted(slices.Values(tt.want))
			if len(want) < 5 || !slices.Equal(got, want) {
				t.Errorf("%s describes\n%v, want\n%v", page, fmt.Sprint(got), fmt.Sprint(want))
			}
		})
	}
}
