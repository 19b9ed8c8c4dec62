// Leafd is the daemon of a leaf: it carries the frames of hosts through the
// fabric.
package main

import (
	"os"

	"github.com/loomfabric/loom/internal/daemon"
)

func main() { os.Exit(daemon.Main(daemon.Leaf)) }
