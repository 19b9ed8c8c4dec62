// Package netns tests leafd and spined as an operator runs them: the real
// programs in network namespaces, with real hosts' traffic. It knows of them
// only what a user can see: files, signals, metrics, and frames on the wire.
package netns

import (
	"fmt"
	"os"
	"testing"

	"github.com/loomfabric/loom/internal/testenv"
	"github.com/loomfabric/loom/lab"
)

// daemons is the folder with leafd and spined.
var daemons string

// TestMain lets the test binary stand in for loomlab, which starts itself as
// guard.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "guard" {
		if err := lab.Guard(os.Args[2], os.Stdin); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if os.Geteuid() != 0 {
		os.Exit(m.Run()) // every test skips itself
	}
	dir, remove, err := testenv.Daemons(raceDetector)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	daemons = dir
	code := m.Run()
	if err := remove(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}
