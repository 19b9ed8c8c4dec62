package daemon

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/loomfabric/loom/internal/testenv"
)

// check runs a command line on a file and returns what it prints.
func check(t *testing.T, k Kind, text string, flags ...string) (out string, file string, err error) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "conf.yaml")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	c := k.command(&b)
	c.SetArgs(append([]string{"check", "-c", file}, flags...))
	err = c.Execute()
	return b.String(), file, err
}

func checkedJSON(t *testing.T, text string) (v verdict) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return v
}

// A file may be for another machine than the one that checks it.
func TestCheckOffline(t *testing.T) {
	for _, flags := range [][]string{{"--offline"}, {"--offline", "-o", "json"}} {
		if out, _, err := check(t, Leaf, leafFile, flags...); err != nil {
			t.Errorf("%q: %v\n%s", flags, err, out)
		}
	}
	if out, file, err := check(t, Leaf, leafFile, "--offline"); out != file+": OK\n" || err != nil {
		t.Errorf("printed %q, %v", out, err)
	}
	if out, _, err := check(t, Spine, "vteps: [10.255.0.0/24]\nports: [{interface: dn0}]\n", "--offline"); err != nil {
		t.Errorf("a spine: %v\n%s", err, out)
	}
	if _, _, err := check(t, Leaf, leafFile+"ring_size: 64\n", "--offline"); err == nil || !strings.Contains(err.Error(), "ring size 64") {
		t.Errorf("a mistake of the file: %v", err)
	}
	shaped := strings.Replace(leafFile, "{interface: up1}", "{interface: up1, queue: 100KB, shaper: {rate: 100Mbit}}", 1) + "scheme: conga\n"
	if out, _, err := check(t, Leaf, shaped, "--offline"); err != nil || !strings.HasPrefix(out, "warning: a full queue of uplink up1") {
		t.Errorf("a warning about the file alone: %v\n%s", err, out)
	}
}

func TestCheckJSON(t *testing.T) {
	out, file, err := check(t, Leaf, leafFile+"ring_size: 64\nscheme: best\n", "--offline", "-o", "json")
	v := checkedJSON(t, out)
	if err == nil || v.OK || v.File != file || len(v.Findings) != 2 {
		t.Fatalf("%v, %+v", err, v)
	}
	if f := v.Findings[0]; f.Severity != "error" || f.Place != file+":7:12" || !strings.Contains(f.Text, "ring size 64") || !strings.Contains(f.Fix, "use 2048") {
		t.Errorf("finding %+v", f)
	}
	if out, _, err := check(t, Leaf, leafFile, "--offline", "-o", "json"); err != nil || !strings.Contains(out, `"findings": []`) || !checkedJSON(t, out).OK {
		t.Errorf("%v, %s", err, out)
	}
	if _, _, err := check(t, Leaf, leafFile, "-o", "yaml"); err == nil || !strings.Contains(err.Error(), "use text or json") {
		t.Errorf("an output that does not exist: %v", err)
	}
}

// TestCheckMachine: what is wrong with the machine has a place, too.
func TestCheckMachine(t *testing.T) {
	testenv.NeedRoot(t)
	a, b := testenv.NewNamespace(t, "daemon-check"), testenv.NewNamespace(t, "daemon-check")
	for _, name := range []string{"up0", "up1", "acc0"} {
		testenv.VethPair(t, a, name, b, name, testenv.VethOptions{MTU: 1500})
	}
	a.Do(t, func() {
		out, _, err := check(t, Leaf, leafFile+"peers: [10.255.0.2]\n", "-o", "json")
		v := checkedJSON(t, out)
		severities := make(map[string]string)
		for _, f := range v.Findings {
			severities[f.Place] = f.Severity
			if f.Text == "" || f.Fix == "" {
				t.Errorf("finding %+v", f)
			}
		}
		if err == nil || v.OK || severities["up0"] != "error" || severities["vtep"] != "warning" || severities["peers"] != "warning" {
			t.Errorf("%v, %s", err, out)
		}
	})
}
