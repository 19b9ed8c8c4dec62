// Command loomctl shows what running leafds and spineds know; see
// docs/loomctl.md.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"

	"github.com/loomfabric/loom/internal/buildinfo"
	"github.com/loomfabric/loom/internal/loomctl"
	"github.com/loomfabric/loom/internal/manpage"
)

// version is set by the linker.
var version string

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM, unix.SIGHUP)
	defer stop()
	c := loomctl.Command(os.Stdout)
	v := buildinfo.Version(version)
	c.AddCommand(buildinfo.Command("loomctl", v), manpage.Command("1", v))
	if err := c.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "loomctl:", err)
		os.Exit(loomctl.ExitCode(err))
	}
}
