package manpage

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// Each command has a page, which says the program's version and no date of its own.
func TestCommand(t *testing.T) {
	t.Setenv("SOURCE_DATE_EPOCH", "86400")
	root := &cobra.Command{Use: "prog", Short: "Do it"}
	root.AddCommand(&cobra.Command{Use: "now", Short: "At once", Run: func(*cobra.Command, []string) {}}, Command("8", "v1"))
	dir := filepath.Join(t.TempDir(), "man")
	root.SetArgs([]string{"man", dir})
	if err := root.Execute(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "prog-now.8"))
	if err != nil || !strings.Contains(string(text), "At once") || !strings.Contains(string(text), `"Jan 1970" "Loom v1"`) {
		t.Errorf("%v\n%s", err, text)
	}
	if _, err := os.Stat(filepath.Join(dir, "prog.8")); err != nil {
		t.Error(err)
	}
	if names, err := filepath.Glob(filepath.Join(dir, "prog-man.8")); err != nil || len(names) > 0 {
		t.Errorf("the hidden command has a page: %v, %v", names, err)
	}
}
