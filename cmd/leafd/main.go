// Leafd is the daemon of a leaf: it carries the frames of hosts through the
// fabric.
package main

import (
	"os"

	"github.com/loomfabric/loom/internal/daemon"
)

// version is set by the linker.
var version string

func main() { os.Exit(daemon.Main(daemon.Leaf, version)) }
