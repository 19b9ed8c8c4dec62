package daemon

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/loomfabric/loom/internal/testenv"
)

const units = "../../deploy/systemd/"

// unitKeys returns the values of each key of a unit file, in their order.
func unitKeys(t *testing.T, file string) map[string][]string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	keys := make(map[string][]string)
	for line := range strings.Lines(string(b)) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok && !strings.HasPrefix(key, "#") {
			keys[key] = append(keys[key], value)
		}
	}
	return keys
}

// TestUnits: what the units and the daemon rely on of each other.
func TestUnits(t *testing.T) {
	for _, c := range []struct {
		name  string
		types []string // systemd before 253 keeps the first
	}{
		{"leafd", []string{"notify", "notify-reload"}},
		{"spined", []string{"notify"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			keys := unitKeys(t, units+c.name+".service")
			for key, want := range map[string][]string{
				"Type": c.types, "User": {"loom"}, "Group": {"loom"}, "WatchdogSec": {"30"},
				// The admin sockets' directory is shared, and its parent is open to the group.
				"RuntimeDirectory": {c.name + " loom"}, "RuntimeDirectoryPreserve": {"yes"}, "DynamicUser": nil,
			} {
				if got := keys[key]; !slices.Equal(got, want) {
					t.Errorf("%s is %q, want %q", key, got, want)
				}
			}
		})
	}
}

// TestUnitWithoutPrivileges: loomweb gets no capability and no user.
func TestUnitWithoutPrivileges(t *testing.T) {
	keys := unitKeys(t, units+"loomweb.service")
	for key, want := range map[string][]string{
		"DynamicUser": {"yes"}, "User": nil, "SupplementaryGroups": {"loom"}, "CapabilityBoundingSet": {""}, "AmbientCapabilities": {""}, "NoNewPrivileges": {"yes"},
	} {
		if got := keys[key]; !slices.Equal(got, want) {
			t.Errorf("%s is %q, want %q", key, got, want)
		}
	}
}

// TestSysusers: systemd makes the user and the group of the units of the file.
func TestSysusers(t *testing.T) {
	testenv.NeedRoot(t)
	file, err := filepath.Abs(units + "sysusers.d/loom.conf")
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	if err := os.Mkdir(filepath.Join(root, "etc"), 0o755); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "systemd-sysusers", "--root="+root, file).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, name := range []string{"passwd", "group"} {
		b, err := os.ReadFile(filepath.Join(root, "etc", name))
		if err != nil || !strings.HasPrefix(string(b), "loom:") || strings.Count(string(b), "\n") != 1 {
			t.Errorf("/etc/%s is %q, error %v: want loom and nobody else", name, b, err)
		}
	}
}

// TestUnitsAreValid: systemd finds no fault with the units. The type that is new in
// systemd 253 may be unknown to it.
func TestUnitsAreValid(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"leafd", "spined", "loomweb"} {
		b, err := os.ReadFile(units + name + ".service")
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(t.TempDir(), name+".service")
		if err := os.WriteFile(file, []byte(strings.ReplaceAll(string(b), "/usr/bin/"+name, "/bin/true")), 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := exec.CommandContext(t.Context(), analyze, "verify", "--man=no", file).CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for line := range strings.Lines(string(out)) {
			if !strings.Contains(line, "notify-reload") {
				t.Errorf("%s: %s", name, line)
			}
		}
	}
}
