// Command loomctl shows what a running leafd or spined knows; see
// docs/loomctl.md.
package main

import (
	"fmt"
	"os"

	"github.com/loomfabric/loom/internal/loomctl"
)

func main() {
	if err := loomctl.Command(os.Stdout).Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "loomctl:", err)
		os.Exit(loomctl.ExitCode(err))
	}
}
