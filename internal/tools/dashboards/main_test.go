package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// What is committed is what the table makes, and nothing else is there.
func TestDashboardsAreUpToDate(t *testing.T) {
	const dir = "../../../deploy/grafana"
	files, made := generate(), 0
	have, err := filepath.Glob(dir + "/*.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range have {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(text, files[filepath.Base(path)]) {
			t.Errorf("%s is not what panels.go makes: go run ./internal/tools/dashboards, or remove it", path)
		}
		made++
	}
	if made != len(files) || made < 4 {
		t.Errorf("%d dashboards in %s, want %d", made, dir, len(files))
	}
}
