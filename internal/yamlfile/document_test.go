package yamlfile

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/loomfabric/loom/internal/units"
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
base: &base {one: 1, two: 2}
more:
  <<: *base
  two: 3
`

func TestLine(t *testing.T) {
	d := Parse("f.yaml", "", []byte(text))
	if err := d.Errs.Or(); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]int{
		"name": 1, "topology": 2, "topology.leaves": 3, "topology.links.delay": 5, "list[0].b": 8, "list[0].b[1]": 8,
		"list[1].c": 9, "single.one": 10, "more.two": 14, "more.one": 11,
		// What is not there: the nearest parent.
		"topology.links.buffer": 4, "list[7].c": 6, "nothing": 0, "list[x]": 6, "": 0, "list[-1]": 6,
	} {
		if got := d.Line(path); got != want {
			t.Errorf("%s is said to be on line %d, want %d", path, got, want)
		}
	}
	for path, want := range map[string]bool{"more.one": true, "more.three": false, "list[1].c": true, "list[2]": false} {
		if got := d.Has(path); got != want {
			t.Errorf("%s is there: %v, want %v", path, got, want)
		}
	}
}

func TestErrors(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{"a: 1\nb: !!str x\n", "f.yaml:2:4: a YAML tag (!!str)\n    2 | b: !!str x\n           ^\n  fix: write the value without it"},
		{"a: 1\na: 2\n", "f.yaml:2:1: mapping key \"a\" already defined at [1:1]\n    2 | a: 2\n        ^\n  fix: keep one of the two"},
		{"", "f.yaml: the file is empty\n  fix: start from an example, see here"},
	} {
		if err := Parse("f.yaml", "here", []byte(tt.text)).Errs.Or(); err == nil || err.Error() != tt.want {
			t.Errorf("%q: %v, want %s", tt.text, err, tt.want)
		}
	}
	if got := (&Error{File: "f", Path: "a.b", Problem: "no", Fix: "yes"}).Error(); got != "f: a.b: no\n  fix: yes" {
		t.Error(got)
	}
}

// Part has keys that depend on another one.
type Part struct {
	Kind  string `yaml:"kind,omitempty"`
	extra map[string]*Node
}

func (p *Part) Extra(key string) any {
	if key != p.Kind {
		return nil
	}
	p.extra = map[string]*Node{key: {}}
	return p.extra[key]
}

func (p *Part) ExtraKeys() []string { return []string{p.Kind} }

func (p *Part) Extras() (out yaml.MapSlice) {
	for key, n := range p.extra {
		out = append(out, yaml.MapItem{Key: key, Value: n.Any()})
	}
	return out
}

type sample struct {
	Part   `yaml:",inline"`
	Rate   units.Rate        `yaml:"rate,omitempty"`
	Time   time.Duration     `yaml:"time,omitempty"`
	Names  []string          `yaml:"names,omitempty"`
	ByID   map[uint16]uint32 `yaml:"by_id,omitempty"`
	Inner  *sample           `yaml:"inner,omitempty"`
	Hidden int               `yaml:"-"`
}

func (sample) OldKeys() map[string]string { return map[string]string{"speed": "rate"} }

func TestDecode(t *testing.T) {
	const text = "x: {deep: [1]}\nkind: x\nrate: 2Gbit\ntime: 5ms\nnames: [a, b]\nby_id: {7: 70}\ninner: {rate: 1Mbit}\n"
	d, s := Parse("f", "", []byte(text)), sample{Time: 1, Names: []string{"default"}}
	if d.Decode(&s); len(d.Errs) > 0 {
		t.Fatal(d.Errs)
	}
	if s.Rate != 2e9 || s.Time != 5*time.Millisecond || s.ByID[7] != 70 || s.Inner.Rate != 1e6 || !reflect.DeepEqual(s.Names, []string{"a", "b"}) {
		t.Errorf("decoded %+v", s)
	}
	var deep struct {
		Deep []int `yaml:"deep"`
	}
	if errs := s.extra["x"].Decode(&deep); len(errs) > 0 || len(deep.Deep) != 1 {
		t.Errorf("%+v, %v", deep, errs)
	}
	if e := s.extra["x"].Errorf("deep", "bad; do better"); e.Line != 1 || e.Path != "x.deep" || e.Problem != "bad" || e.Fix != "do better" {
		t.Errorf("%+v", e)
	}
	out, err := Marshal(&s)
	if err != nil {
		t.Fatal(err)
	}
	again, want := sample{}, s
	d = Parse("again", "", out)
	d.Decode(&again)
	again.extra, want.extra = nil, nil
	if len(d.Errs) > 0 || !reflect.DeepEqual(again, want) {
		t.Errorf("%s: %+v, want %+v, %v", out, again, want, d.Errs)
	}
}

// What is wrong is said all at once, each with what to do.
func TestDecodeMistakes(t *testing.T) {
	const text = "by-id: {}\nspeed: 1Gbit\nrat: 1Gbit\nkind: y\nx: 1\ntime: -1s\nnames: 5\ninner: [1]\nby_id: {70000: 1}\n"
	d := Parse("f", "", []byte(text))
	d.Decode(&sample{})
	want := []string{
		`f:4:1`, // no mistake: kind
		`"by-id" is spelled by_id now|write by_id`, `"speed" has another name now|write rate`, `unknown key "rat"|did you mean "rate"?`,
		`unknown key "x"|rate, time, names`, `duration "-1s" is not a time span|write it as in`, `names is "5"|write a list`,
		`inner is not a list|write a mapping`, `by_id.70000 is "70000"|a whole number from 0 to 65535`,
	}
	got := d.Errs.Error()
	for _, w := range want[1:] {
		for _, p := range strings.Split(w, "|") {
			if !strings.Contains(got, p) {
				t.Errorf("%q is not in\n%s", p, got)
			}
		}
	}
	if len(d.Errs) != len(want)-1 || strings.Contains(got, want[0]) {
		t.Errorf("%d mistakes:\n%s", len(d.Errs), got)
	}
}
