package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/loomfabric/loom/cmd/internal/matrix"
	"github.com/loomfabric/loom/lab"
)

func upCommand(which *chosen) *cobra.Command {
	var page string
	cmd := &cobra.Command{
		Use: "up", Short: "Build the fabric and start its daemons", Args: cobra.NoArgs,
		RunE: with(which, func(c *cobra.Command, l *lab.Lab, _ []string) error {
			matrix.Warn(c.ErrOrStderr(), l.File, "")
			l.Progress = c.ErrOrStderr()
			if page != "" { // what is missing is missed before anything is built
				if err := l.CheckWeb(); err != nil {
					return err
				}
			}
			if err := l.Up(c.Context()); err != nil {
				return err
			}
			l.Next(c.OutOrStdout(), os.Args[0])
			if page == "" {
				return nil
			}
			url, err := l.StartWeb(c.Context(), page)
			if err != nil {
				return fmt.Errorf("the fabric is up, its picture is not: %w", err)
			}
			_, err = fmt.Fprintf(c.OutOrStdout(), "open %s to see the fabric; loomlab down ends it\n", url)
			return err
		}),
	}
	cmd.Flags().StringVar(&page, "web", "", "show the fabric in a browser (loomweb), at this address, or at 127.0.0.1:9480 without one: --web or --web=HOST:PORT")
	cmd.Flags().Lookup("web").NoOptDefVal = "127.0.0.1:9480"
	return cmd
}
