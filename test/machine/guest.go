package machine

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// GuestVar names the environment variable with the guest program. By default it is built.
const GuestVar = "LOOM_VM_GUEST"

// Guest returns the file of the guest program.
func Guest(t testing.TB) string {
	t.Helper()
	if file := os.Getenv(GuestVar); file != "" {
		return file
	}
	file := filepath.Join(t.TempDir(), "guest")
	cmd := exec.Command("go", "build", "-o", file, "github.com/loomfabric/loom/test/machine/guest")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the guest program (or name it in $%s): %v\n%s", GuestVar, err, out)
	}
	return file
}
