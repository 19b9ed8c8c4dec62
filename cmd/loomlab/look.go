package main

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/loomfabric/loom/lab"
)

// show writes a value as a table, by write, or as JSON.
func show(c *cobra.Command, output string, v any, write func(io.Writer) error) error {
	switch output {
	case "table":
		return write(c.OutOrStdout())
	case "json":
		e := json.NewEncoder(c.OutOrStdout())
		e.SetIndent("", "  ")
		return e.Encode(v)
	}
	return fmt.Errorf("output %q is unknown: write table or json", output)
}

func lsCommand() *cobra.Command {
	var output string
	c := &cobra.Command{Use: "ls", Short: "List the labs of this machine", Args: cobra.NoArgs, RunE: func(c *cobra.Command, _ []string) error {
		all, err := lab.List()
		if err != nil {
			return err
		}
		return show(c, output, all, func(w io.Writer) error { return lab.WriteList(w, all) })
	}}
	c.Flags().StringVarP(&output, "output", "o", "table", "table or json")
	return c
}

func statusCommand(which *chosen) *cobra.Command {
	var output string
	c := &cobra.Command{Use: "status", Short: "What the nodes, hosts and links of a lab do", Args: cobra.NoArgs,
		RunE: with(which, func(c *cobra.Command, l *lab.Lab, _ []string) error {
			s, err := l.Status(c.Context())
			if err != nil {
				return err
			}
			return show(c, output, s, s.Write)
		})}
	c.Flags().StringVarP(&output, "output", "o", "table", "table or json")
	return c
}

func logsCommand(which *chosen) *cobra.Command {
	var lines int
	var follow bool
	c := &cobra.Command{Use: "logs [NODE...]", Short: "What daemons have logged, by default of all nodes",
		RunE: with(which, func(c *cobra.Command, l *lab.Lab, nodes []string) error {
			return l.Logs(c.Context(), c.OutOrStdout(), nodes, lines, follow)
		})}
	c.Flags().IntVarP(&lines, "lines", "n", 20, "lines of each node")
	c.Flags().BoolVar(&follow, "follow", false, "go on with what comes, until interrupted")
	return c
}
