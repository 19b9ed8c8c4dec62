// Spined is the daemon of a spine: it forwards VXLAN between leaves.
package main

import (
	"os"

	"github.com/loomfabric/loom/internal/daemon"
)

// version is set by the linker.
var version string

func main() { os.Exit(daemon.Main(daemon.Spine, version)) }
