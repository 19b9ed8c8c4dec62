// Package manpage has each program write its own manual pages, which packages install.
package manpage

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// Command returns the hidden command that writes a page for each command of its program
// into a directory. section is the manual's: 1 for everybody's programs, 8 for daemons.
// The date is that of SOURCE_DATE_EPOCH, if it is set.
func Command(section, version string) *cobra.Command {
	return &cobra.Command{
		Use: "man DIR", Short: "Write the manual pages into a directory", Hidden: true, Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return err
			}
			root := c.Root()
			root.DisableAutoGenTag = true
			err := doc.GenManTree(root, &doc.GenManHeader{Section: section, Source: "Loom " + version, Manual: "Loom"}, args[0])
			if err != nil {
				return fmt.Errorf("write manual pages into %s: %w", args[0], err)
			}
			return nil
		},
	}
}
