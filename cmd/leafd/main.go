// Command leafd runs a leaf of a Loom fabric.
package main

import (
	"os"

	"github.com/loomfabric/loom/dataplane"
	"github.com/loomfabric/loom/internal/daemon"
)

// version is set by the linker.
var version string

func main() { os.Exit(daemon.Main(dataplane.Leaf, version, os.Stderr)) }
