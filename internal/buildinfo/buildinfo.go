// Package buildinfo says which version of a program runs.
package buildinfo

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// Version returns what the linker set or, for want of it, what the Go tool recorded.
func Version(linked string) string {
	if linked != "" {
		return linked
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return s.Value[:min(len(s.Value), 12)]
		}
	}
	return info.Main.Version
}

// Command returns a program's command that prints its version.
func Command(program, version string) *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			_, err := fmt.Fprintf(c.OutOrStdout(), "%s %s %s %s/%s\n", program, version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return err
		},
	}
}
