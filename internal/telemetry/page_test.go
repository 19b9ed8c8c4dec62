package telemetry

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/loomfabric/loom/bpf"
	"github.com/loomfabric/loom/internal/drop"
)

const page = "../../docs/metrics.md"

// TestPageDescribesTheMetrics holds the page against what the collector sends,
// not only against what it declares.
func TestPageDescribesTheMetrics(t *testing.T) {
	sent := make(map[string]string)
	for _, f := range gather(t, newFake().options()) {
		var labels []string
		for _, l := range f.Metric[0].Label {
			labels = append(labels, "`"+l.GetName()+"`")
		}
		sent[f.GetName()] = row("`"+f.GetName()+"`", strings.ToLower(f.GetType().String()), strings.Join(labels, ", "), f.GetHelp())
	}
	var b strings.Builder
	b.WriteString("\n| name | type | labels | meaning |\n| --- | --- | --- | --- |\n")
	for _, m := range all {
		labels := make([]string, len(m.labels))
		for i, l := range m.labels {
			labels[i] = "`" + l + "`"
		}
		kind := map[prometheus.ValueType]string{prometheus.CounterValue: "counter", prometheus.GaugeValue: "gauge", histogramValue: "histogram"}[m.kind]
		b.WriteString(row("`"+m.name+"`", kind, strings.Join(labels, ", "), m.help))
		slices.Sort(labels)
		if got, want := sent[m.name], row("`"+m.name+"`", kind, strings.Join(labels, ", "), m.help); got != want {
			t.Errorf("%s is declared as %q and sent as %q", m.name, want, got)
		}
		delete(sent, m.name)
	}
	for name := range sent {
		t.Errorf("%s is sent and not declared", name)
	}

	text := readPage(t)
	begin, end := "<!-- metrics -->\n", "<!-- /metrics -->"
	before, rest, ok := strings.Cut(text, begin)
	table, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no place for the table: it needs %q and %q", page, begin, end)
	}
	want := b.String() + "\n"
	if *update && table != want {
		if err := os.WriteFile(page, []byte(before+begin+want+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
		table = want
	}
	if table != want {
		t.Errorf("%s does not match the collector; rewrite it with -update", page)
	}
}

func row(cells ...string) string { return "| " + strings.Join(cells, " | ") + " |\n" }

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
	for _, m := range all {
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
		{"Verdicts", bpf.Verdicts()},
	} {
		t.Run(tt.heading, func(t *testing.T) {
			got, want := slices.Sorted(slices.Values(firstColumn(t, tt.heading))), slices.Sorted(slices.Values(tt.want))
			if len(want) < 5 || !slices.Equal(got, want) {
				t.Errorf("%s describes\n%v, want\n%v", page, fmt.Sprint(got), fmt.Sprint(want))
			}
		})
	}
}
