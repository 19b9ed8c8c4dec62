package loomctl

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/loomfabric/loom/internal/admin"
	"github.com/loomfabric/loom/internal/doctor"
)

// ErrUnhealthy says that doctor has found something.
var ErrUnhealthy = errors.New("something is wrong")

// ErrSilent says that doctor could not look at all nodes.
var ErrSilent = errors.New("not all nodes could be looked at")

func doctorCommand(o *options) *cobra.Command {
	var interval time.Duration
	c := &cobra.Command{
		Use: "doctor [SOCKET...]", Short: "What is wrong with the node and its machine, and the commands that mend it",
		Long: "doctor looks at nodes and at the machines below them, twice at what they count, and says\n" +
			"what is wrong and which command mends it. It changes nothing. Given the admin sockets of\n" +
			"several nodes it also looks at what they have to agree in. What it looks for is listed in\n" +
			"docs/doctor.md. Run it as root: what it may not look at, it names.\n\n" +
			"The exit code is 0 if nothing is wrong, 2 if there are findings (notes do not count), and\n" +
			"1 if a node could not be looked at.",
		RunE: func(c *cobra.Command, sockets []string) error {
			r, err := doctor.Examine(c.Context(), targets(o, sockets), interval)
			if err != nil {
				return err
			}
			if err := printReport(c.OutOrStdout(), o.output, r); err != nil {
				return err
			}
			switch {
			case len(r.Failed) > 0:
				return ErrSilent
			case !r.Healthy():
				return ErrUnhealthy
			}
			return nil
		},
	}
	c.Flags().DurationVar(&interval, "interval", doctor.DefaultInterval, "time between the two looks at counters")
	return c
}

// targets are the nodes to look at: those that are named, or the one of the options.
func targets(o *options, sockets []string) (all []doctor.Target) {
	if len(sockets) == 0 {
		sockets = []string{o.socket}
		if o.socket == "" {
			sockets[0] = findSocket()
		}
	}
	for _, s := range sockets {
		all = append(all, doctor.Target{Name: s, Asker: &admin.Client{Socket: s}, Socket: s})
	}
	return all
}

// printReport writes a report as a table or as JSON.
func printReport(w io.Writer, output string, r *doctor.Report) error {
	switch output {
	case "json":
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(r)
	case "table":
		r.Print(w)
		return nil
	}
	return fmt.Errorf("output %q is unknown: use table or json", output)
}
