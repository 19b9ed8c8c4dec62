// Package testenv gives tests root's privileges, namespaces and daemons to work with.
// Only tests may import it.
package testenv

import (
	"os"
	"testing"
)

// NeedRoot skips the test when it does not run as root. It is the only skip
// that the suite allows: as root, a missing kernel feature is a failure.
func NeedRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: network namespaces, XDP and AF_XDP; run `sudo make test`")
	}
}
