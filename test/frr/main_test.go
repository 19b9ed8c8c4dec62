// Package frr tests a fabric whose routes and addresses are FRR's: real zebra, bgpd,
// ospfd and isisd in network namespaces, the kernel's own EVPN leaf, and leafd and
// spined on top. What holds of a leaf is first tested of the kernel alone, which is the
// control: a test that fails there tests nothing of Loom's.
//
// The events and variants that `make test` leaves out run by `make test-frr`.
package frr

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/loomfabric/loom/internal/testenv"
	"github.com/loomfabric/loom/lab"
)

// all adds what takes too long for every run of the tests.
var all = flag.Bool("all", false, "run every event and variant, too")

// daemons is the folder with leafd, spined and loomctl.
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
	flag.Parse()
	// Fabrics that are built side by side wait for BGP, not for the processors.
	if err := flag.Set("test.parallel", "4"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if os.Geteuid() != 0 {
		os.Exit(m.Run()) // every test skips itself
	}
	dir, remove, err := testenv.Daemons(false)
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

// nexthopObjects says whether leafd reads routes of which the kernel tells only the
// number of a nexthop object.
const nexthopObjects = true

// overlayKernel says whether leafd can follow the kernel's bridges (overlay: kernel).
const overlayKernel = false
