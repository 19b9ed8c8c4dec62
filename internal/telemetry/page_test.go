package telemetry

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/internal/drop"
	"github.com/loomfabric/loom/internal/stat"
	"github.com/loomfabric/loom/leaf"
	"github.com/loomfabric/loom/reorder"
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
			kind := map[stat.Kind]string{stat.Counter: "counter", stat.Gauge: "gauge", stat.Times: "histogram", stat.Depth: "histogram"}[r.Kind]
			add(r.Metric, kind, r.Help, s.labelsOf(r.Field))
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

// series returns how many series one set of the labels' values has.
func (s *set) series() (n int) {
	for _, r := range s.rows {
		switch r.Kind {
		case stat.Times:
			n += len(cumulative(new(reorder.Histogram))) + 3 // and +Inf, sum and count
		case stat.Depth:
			n += len(below(new(stat.Sizes))) + 3
		default:
			n++
		}
	}
	return n
}

// The page says how many series there are for each port, peer and so on: who plans a
// Prometheus multiplies.
func TestPageSaysTheCardinality(t *testing.T) {
	sums := make(map[string]int)
	var order []string
	for _, s := range declared() {
		what := strings.Join(s.labels, ", ")
		if slices.Contains(s.labels, "scheme") {
			what = "scheme" // those that are in use
		}
		if sums[what] == 0 {
			order = append(order, what)
		}
		sums[what] += s.series()
	}
	// A scheme in use has what all count, and its own; receivers are there from the start.
	general := byScheme.series()
	most, whose := 0, ""
	for _, x := range balance.Schemes() {
		if own, _ := leaf.Counts(x); own != nil && ofOwn(x.Name, own).series() > most {
			most, whose = ofOwn(x.Name, own).series(), x.Name
		}
	}
	var b strings.Builder
	b.WriteString("\n| for each | series |\n| --- | --- |\n")
	for _, what := range order {
		switch what {
		case "":
			b.WriteString(line("node", fmt.Sprint(sums[what])))
		case "scheme":
			b.WriteString(line("`scheme` in use", fmt.Sprintf("%d, and its own: %d at most (`%s`)", general, most, whose)))
		default:
			names := strings.Split(what, ", ")
			b.WriteString(line("`"+strings.Join(names, "`, `")+"`", fmt.Sprint(sums[what])))
		}
	}
	b.WriteString("\n")
	onPage(t, "cardinality", b.String())
	if port := sums["port"]; port < 100 || port > 200 {
		t.Errorf("a port has %d series", port)
	}
	if s := countedByWorker.series(); !strings.Contains(readFile(t, "../../docs/config.md"), fmt.Sprintf("ports times workers times %d.", s)) {
		t.Errorf("docs/config.md does not say that per_worker is %d series for each port and worker", s)
	}
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
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
	return readFile(t, page)
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
