package machine

import (
	"strings"
	"testing"
)

// TestMissing: each program or file that is not there is named, with its package.
func TestMissing(t *testing.T) {
	if err := Missing(Need{"sh", "dash"}, Need{"/dev/null", "base"}); err != nil {
		t.Error(err)
	}
	err := Missing(Need{"sh", "dash"}, Need{"no-such-program", "two"}, Need{"/no/such/file", "one"}, Need{"nor-this", "two"})
	if err == nil {
		t.Fatal("nothing is missing")
	}
	for _, want := range []string{"no-such-program (package two)", "/no/such/file (package one)", "nor-this (package two)", "recommends one two"} {
		if !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "dash") {
			t.Errorf("%q does not say %q", err, want)
		}
	}
}
