package main

import (
	"bytes"
	"os"
	"slices"
	"testing"
)

// The committed picture is what the scheme does now; and it shows something: packets that
// come out of order, wait, and go on in order.
func TestPicture(t *testing.T) {
	burst, err := send()
	if err != nil {
		t.Fatal(err)
	}
	arrived := func(a, b packet) int { return int(a.arrives - b.arrives) }
	if slices.IsSortedFunc(burst, arrived) {
		t.Error("packets arrive in order")
	}
	if !slices.IsSortedFunc(burst, func(a, b packet) int { return int(a.leaves - b.leaves) }) || burst[0].leaves == 0 {
		t.Errorf("packets leave out of order: %+v", burst)
	}
	used := map[int]bool{}
	for _, p := range burst {
		used[p.path] = true
	}
	if len(used) != paths {
		t.Errorf("%d of %d paths are used", len(used), paths)
	}
	have, err := os.ReadFile("../../../docs/img/ordered-spray.svg")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(have, draw(burst)) {
		t.Error("docs/img/ordered-spray.svg is of another version: go run ./internal/tools/burst")
	}
}
