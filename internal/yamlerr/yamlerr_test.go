package yamlerr

import (
	"errors"
	"testing"
)

const text = `name: x
topology:
  leaves: 2
  links: {rate: 1Gbit,
          delay: 1us}
list:
  - a: 1
    b: [3, 4]
  - c: 2
single: {one: 1}
`

func TestLineOf(t *testing.T) {
	doc, err := Parse("f.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]int{
		"name": 1, "topology": 3, "topology.leaves": 3, "topology.links.delay": 5, "list[0].b": 8, "list[0].b[1]": 8,
		"list[1]": 9, "list[1].c": 9, "single.one": 10,
		// What is not there: the nearest parent.
		"topology.links.buffer": 4, "list[7].c": 7, "nothing": 0, "list[x]": 7, "": 0, "list[-1]": 7,
	} {
		if got := LineOf(doc.Docs[0].Body, path); got != want {
			t.Errorf("%s is said to be on line %d, want %d", path, got, want)
		}
	}
}

func TestErrors(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{"a: 1\nb: !!str x\n", "f.yaml:2: YAML tags have no place here"},
		{"a: 1\na: 2\n", `f.yaml:2: mapping key "a" already defined at [1:1]`},
	} {
		if _, err := Parse("f.yaml", []byte(tt.text)); err == nil || err.Error() != tt.want {
			t.Errorf("%q: %v, want %s", tt.text, err, tt.want)
		}
	}
	if got := Wrap("f.yaml", errors.New("plain")).Error(); got != "f.yaml: plain" {
		t.Error(got)
	}
	if got := (&Error{File: "f", Line: 3, Path: "a.b", Msg: "no"}).Error(); got != "f:3: a.b: no" {
		t.Error(got)
	}
}
