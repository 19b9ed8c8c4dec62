// Command loomweb shows a fabric in a browser; see docs/loomweb.md.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"

	"github.com/loomfabric/loom/internal/web"
)

// version is set by the linker.
var version string

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM, unix.SIGHUP)
	defer stop()
	if err := web.Command(version).ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "loomweb:", err)
		os.Exit(1)
	}
}
