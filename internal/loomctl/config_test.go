package loomctl

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestReplaceFile: a file and the one that is kept beside it change together, keep their
// mode, and can be had back.
func TestReplaceFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "leafd.yaml")
	says := func(what, now, kept string) {
		t.Helper()
		text, err := os.ReadFile(path)
		if err != nil || string(text) != now {
			t.Errorf("%s: the file says %q, %v", what, text, err)
		}
		if text, err := os.ReadFile(path + previous); string(text) != kept || (err != nil) != (kept == "") {
			t.Errorf("%s: kept is %q, %v", what, text, err)
		}
		if names, err := os.ReadDir(filepath.Dir(path)); err != nil || len(names) > 2 {
			t.Errorf("%s: %v, %v", what, names, err)
		}
	}
	if err := os.WriteFile(path, []byte("one"), 0o640); err != nil {
		t.Fatal(err)
	}
	f, err := replaceFile(path, []byte("two"))
	if err != nil {
		t.Fatal(err)
	}
	says("replaced", "two", "one")
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("%v, %v", info, err)
	}
	if err := f.takeBack(); err != nil {
		t.Fatal(err)
	}
	says("taken back", "one", "")
	if _, err = replaceFile(path, []byte("two")); err != nil {
		t.Fatal(err)
	}
	if f, err = replaceFile(path, []byte("three")); err != nil {
		t.Fatal(err)
	}
	says("replaced twice", "three", "two")
	same, err := replaceFile(path, []byte("three"))
	if err != nil {
		t.Fatal(err)
	}
	says("replaced by the same", "three", "two")
	if err := same.takeBack(); err != nil {
		t.Fatal(err)
	}
	says("the same taken back", "three", "two")
	if err := f.takeBack(); err != nil {
		t.Fatal(err)
	}
	says("the second taken back", "two", "one")
}

func TestCheckOffline(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x.yaml")
	for _, tt := range []struct{ daemon, text, out, err string }{
		{"leafd", "vtep: 10.0.0.1\nuplinks: [{interface: a}]\naccess: [{interface: b, vni: 1}]\nvnis: [{vni: 1}]\n", "x.yaml: OK", ""},
		{"spined", "vteps: [10.255.0.0/24]\nports: [{interface: dn0}]\n", "x.yaml: OK", ""},
		{"spined", "vteps: [10.255.0.0/24]\nportz: [{interface: dn0}]\n", "", "x.yaml:2:1"},
		{"bridged", "", "", "use leafd or spined"},
	} {
		if err := os.WriteFile(file, []byte(tt.text), 0o644); err != nil {
			t.Fatal(err)
		}
		out, err := run("config", "check", file, "--offline", tt.daemon)
		if !strings.Contains(out, tt.out) || (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%s %q: %q, %v", tt.daemon, tt.text, out, err)
		}
	}
}
