package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The page is rewritten between its marks, with a table for each case.
func TestTables(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		name = filepath.Join(dir, name)
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	page := write("page.md", "above\n"+begin+"old\n"+end+"below\n")
	theirs := "../../../experiments/traces/ns3-n32.csv"
	if err := run(dir, page, theirs); err == nil || !strings.Contains(err.Error(), "no runs") {
		t.Errorf("without runs: %v", err)
	}
	for _, scheme := range []string{"ecmp", "letflow", "conga", "drill", "conweave"} {
		for _, axis := range []string{"lossless 50 %", "lossless 80 %", "IRN 50 %", "IRN 80 %"} {
			for i, mean := range []string{"1.9", "2.1"} {
				text := `{"scheme": "` + scheme + `", "axis": "` + axis + `", "result": {"fct": [`
				for _, class := range []string{"all", "small", "large"} {
					text += `{"class": "` + class + `", "slowdown_mean": ` + mean + `, "slowdown_p99": 123.4},`
				}
				write(scheme+axis+string(rune('0'+i))+".json", strings.TrimSuffix(text, ",")+"]}}")
			}
		}
	}
	if err := run(dir, page, theirs); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)
	for _, want := range []string{
		"above\n" + begin, end + "below\n",
		"**lossless 80 %**", "**IRN 50 %**",
		"| `ecmp` | 3.88 / 2.00 (1.90–2.10), -48 % | 23.5 / 123 (123–123), +424 % |",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks %q:\n%s", want, text)
		}
	}
	if strings.Contains(text, "old") || strings.Count(text, "| `conweave` |") != 4 {
		t.Errorf("the page is\n%s", text)
	}
}
