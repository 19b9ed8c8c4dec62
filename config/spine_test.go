package config

import (
	"strings"
	"testing"
	"time"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/internal/yamlfile"
)

// A spine may choose by a scheme of its own, if that asks nothing of the far end.
func TestSpineScheme(t *testing.T) {
	const rest = "\nvteps: [10.255.0.0/24]\nports: [{interface: eth1}]\n"
	for text, want := range map[string]string{
		"scheme: drill\ndrill: {samples: 3}":  "",
		"scheme: drill\nfast_path: on":        "what scheme drill decides about",
		"xdp_mode: generic\nfast_path: on":    "remove xdp_mode: generic",
		"scheme: ecmp\nfast_path: auto":       "",
		"fast_path: on":                       "",
		"fast_path: yes":                      "fast path",
		"scheme: ecmp":                        "",
		"":                                    "",
		"scheme: conga":                       "needs an answer of the leaf at the far end",
		"scheme: conweave":                    "needs an answer of the leaf at the far end",
		"scheme: no-such":                     "does not exist",
		"drill: {samples: 3}":                 "it is for a scheme, and there is none",
		"scheme: ecmp\ndrill: {samples: 3}":   "drill",
		"scheme: drill\ndrill: {samples: 77}": "77 samples",
		"scheme: caar\ncaar: {slot: 3ms}":     "",
		"scheme: caar\ncaar: {slot: 3s}":      "slots of 3s",
		"scheme: drill\ncaar: {slot: 3ms}":    "no scheme that goes by it",
		"scheme: caar\nplb: {round: 1ms}":     "no scheme that goes by it",
		"caar: {slot: 3ms}":                   "no scheme that goes by it",
	} {
		s, err := ParseSpine("spined.yaml", []byte(text+rest), []string{"eth1"})
		if want != "" {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%q: error %v, want one with %q", text, err, want)
			}
			continue
		}
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		c := s.ToDataplane()
		if keys, ok := c.Options.Keys.(*balance.DRILLKeys); s.Scheme == "drill" && (!ok || keys.DRILL.Samples != 3) {
			t.Errorf("%q: the data plane is told %+v", text, c.Options.Keys)
		}
		if p, ok := c.Sections["caar"].(*balance.CAARParams); s.Scheme == "caar" && (!ok || p.Slot != 3*time.Millisecond) {
			t.Errorf("%q: the data plane is told %+v", text, c.Sections)
		}
		if c.Scheme != s.Scheme {
			t.Errorf("%q: the data plane has scheme %q", text, c.Scheme)
		}
	}
}

// A word stands for all VTEPs, in what is read and in what is written.
func TestAnyVTEP(t *testing.T) {
	read := func(vteps string) (*Spine, error) {
		return ParseSpine("spined.yaml", []byte("vteps: "+vteps+"\nports: [{interface: eth1}]\n"), []string{"eth1"})
	}
	s, err := read("any")
	if err != nil {
		t.Fatal(err)
	}
	if c := s.ToDataplane(); c.Remotes != nil {
		t.Errorf("any: prefixes %v", c.Remotes)
	}
	out, err := yamlfile.Marshal(s)
	if err != nil || !strings.Contains(string(out), "vteps: any\n") {
		t.Errorf("written as %s, error %v", out, err)
	}
	if s, err = read("[10.255.0.0/24]"); err != nil || len(s.ToDataplane().Remotes) != 1 {
		t.Errorf("a list: %+v, error %v", s, err)
	}
	if s, err = ParseSpine("spined.yaml", []byte("vteps: any\n"), nil); err != nil || !s.Ports.Auto() || s.ToDataplane().Room != foundRoom {
		t.Errorf("any, and no ports: %+v, error %v", s, err)
	}
	for _, wrong := range []string{"[]", "all", "{}", "7", "[any]", "[10.255.0.0/24, 0.0.0.0/0]"} {
		if _, err := read(wrong); err == nil {
			t.Errorf("%s is taken", wrong)
		} else if wrong == "all" && !strings.Contains(err.Error(), "write a list, or any") {
			t.Error(err)
		}
	}
}

// A word stands for uplinks that routes lead over.
func TestAutoUplinks(t *testing.T) {
	read := func(uplinks string) (*Leaf, error) {
		return ParseLeaf("leafd.yaml", []byte("vtep: 10.255.0.1\nuplinks: "+uplinks+"\naccess: [{interface: acc0, vni: 100}]\nvnis: [{vni: 100}]\n"), []string{"acc0", "eth1"})
	}
	l, err := read("auto")
	if err != nil || !l.Uplinks.Auto() || len(l.ToDataplane().Ports) != 1 || l.ToDataplane().Room != 1+foundRoom {
		t.Errorf("auto: %+v, error %v", l, err)
	}
	if l, err = read("[{interface: eth1}]"); err != nil || l.Uplinks.Auto() {
		t.Errorf("a list: %+v, error %v", l, err)
	}
	for _, wrong := range []string{"[]", "any", "null"} {
		if _, err := read(wrong); err == nil || !strings.Contains(err.Error(), "uplinks: auto") && !strings.Contains(err.Error(), "or auto") {
			t.Errorf("%s: error %v", wrong, err)
		}
	}
}
