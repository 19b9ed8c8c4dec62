package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/loomfabric/loom/sim"
)

// TestPage runs what docs/loomsim.md says: its example as the experiment, with
// every command line that it has.
func TestPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/loomsim.md")
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	_, rest, ok := strings.Cut(string(page), "```yaml\n")
	example, _, ok2 := strings.Cut(rest, "```")
	if !ok || !ok2 {
		t.Fatal("the page has no example")
	}
	if err := os.MkdirAll("experiments", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir("docs", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("experiments/conga-fig9.yaml", []byte(example), 0o644); err != nil {
		t.Fatal(err)
	}
	_, rest, _ = strings.Cut(string(page), "```\n")
	commands, _, _ := strings.Cut(rest, "```")
	n := 0
	for line := range strings.Lines(commands) {
		line, _, _ = strings.Cut(line, "   ") // what it does stands behind
		args := []string{}
		for _, a := range strings.Fields(strings.TrimPrefix(line, "loomsim ")) {
			if files, _ := filepath.Glob(a); strings.Contains(a, "*") {
				args = append(args, files...)
			} else {
				args = append(args, a)
			}
		}
		p := made(sim.Run)
		switch { // what takes too long here in full
		case strings.Contains(line, "--size paper"):
			p = made(fake)
		case strings.Contains(line, "theorem1"):
			args = append(args, "--instances", "3")
		case strings.Contains(line, "theorem2"):
			args = append(args, "--trials", "3")
		}
		out, _, err := loomsim(t.Context(), p, args...)
		if err != nil {
			t.Errorf("%s: %v\n%s", line, err, out)
		}
		n++
	}
	if n < 8 {
		t.Errorf("only %d commands are on the page", n)
	}
	for _, file := range []string{"results/report.html", "runs.csv", "docs/results.md", "flows.csv", "results/demo-quick/figures/demo-quick-fct-64kb.svg"} {
		if info, err := os.Stat(file); err != nil || info.Size() < 100 {
			t.Errorf("%s: %v", file, err)
		}
	}
}
