package main

import (
	"bytes"
	"strings"
	"testing"
)

func TestGate(t *testing.T) {
	pass := event{Action: "pass", Package: "p", Test: "TestA"}
	skip := event{Action: "skip", Package: "p", Test: "TestB"}
	fail := event{Action: "fail", Package: "p", Test: "TestC"}
	end := event{Action: "pass", Package: "p"}
	endFail := event{Action: "fail", Package: "p"}
	say := event{Action: "output", Package: "p", Test: "TestC", Output: "it broke\n"}
	tests := []struct {
		name   string
		events []event
		asRoot bool
		ok     bool
		want   string // part of the output
	}{
		{"pass", []event{pass, end}, true, true, "1 passed, 0 failed, 0 skipped"},
		{"skip without root", []event{pass, skip, end}, false, true, "1 passed, 0 failed, 1 skipped"},
		{"skip as root", []event{pass, skip, end}, true, false, "1 passed, 0 failed, 1 skipped"},
		{"failure", []event{pass, say, fail, endFail}, false, false, "it broke\n"},
		{"crash before the test's end", []event{pass, say, endFail}, false, false, "it broke\n"},
		{"build failure", []event{pass, endFail}, false, false, "FAIL"},
		{"nothing ran", []event{end}, false, false, "0 passed"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var out bytes.Buffer
			g := &gate{out: &out, output: map[string][]string{}, skips: map[string]bool{}}
			for _, e := range tt.events {
				g.handle(e, tt.asRoot)
			}
			if err := g.finish(); (err == nil) != tt.ok {
				t.Errorf("finish: %v, want success %v", err, tt.ok)
			}
			if !strings.Contains(out.String(), tt.want) {
				t.Errorf("output %q lacks %q", out.String(), tt.want)
			}
		})
	}
}
