package daemon

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/loomfabric/loom/config"
)

// A socket that the file names must be had; without the standard one a node
// forwards all the same, and says so.
func TestListenAdmin(t *testing.T) {
	for _, tt := range []struct {
		name     string
		standard bool
		prepare  func(t *testing.T, path string)
		listens  bool
		err, log string
	}{
		{"named", false, nil, true, "", ""},
		{"standard", true, nil, true, "", ""},
		{"named, no directory", false, func(t *testing.T, path string) { os.Remove(filepath.Dir(path)) }, false, "set admin.listen", ""},
		{"standard, no directory", true, func(t *testing.T, path string) { os.Remove(filepath.Dir(path)) }, true, "", ""},
		{"named, in use", false, use, false, "set admin.listen", ""},
		{"standard, in use", true, use, false, "", "loomctl will not work"},
		{"standard, no directory possible", true, func(t *testing.T, path string) {
			os.Remove(filepath.Dir(path))
			if err := os.WriteFile(filepath.Dir(path), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}, false, "", "loomctl will not work"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "d", "s")
			if err := os.Mkdir(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if tt.prepare != nil {
				tt.prepare(t, path)
			}
			var out bytes.Buffer
			l, err := listenAdmin("unix:"+path, tt.standard, slog.New(slog.NewTextHandler(&out, nil)))
			if (l != nil) != tt.listens || (err != nil) != (tt.err != "") || err != nil && !strings.Contains(err.Error(), tt.err) ||
				(out.Len() > 0) != (tt.log != "") || !strings.Contains(out.String(), tt.log) {
				t.Fatalf("listener %v, error %v, log %s", l, err, &out)
			}
			if l == nil {
				return
			}
			defer l.Close()
			if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o660 {
				t.Errorf("socket %v, %v", st, err)
			}
		})
	}
	if l, err := listenAdmin("off", false, slog.New(slog.DiscardHandler)); l != nil || err != nil {
		t.Errorf("off: %v, %v", l, err)
	}
	if !standardAdmin(config.DefaultLeaf().Admin.Listen) || !standardAdmin(config.DefaultSpine().Admin.Listen) || standardAdmin("unix:/run/x") {
		t.Error("the standard sockets are not those of the defaults")
	}
}

// use has somebody listen at path.
func use(t *testing.T, path string) {
	t.Helper()
	l, err := listenAdmin("unix:"+path, false, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
}
