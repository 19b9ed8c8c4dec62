package loomctl

import (
	"encoding/json"
	"errors"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/loomfabric/loom/internal/doctor"
)

func doctorCommand(o *options) *cobra.Command {
	var interval time.Duration
	c := &cobra.Command{
		Use: "doctor", Short: "What is wrong with the node and its machine, and the commands that mend it",
		Long: "doctor looks at a node and at the machine below it, twice at what they count, and says\n" +
			"what is wrong and which command mends it. It changes nothing. With --lab or --node it looks\n" +
			"at several nodes, and at what they have to agree in. docs/doctor.md lists what it looks for.\n" +
			"Run it as root: what it may not look at, it names.\n\n" +
			"The exit code is 0 if nothing is wrong, 2 if there are findings (notes do not count), 1 if no\n" +
			"node answers, and 3 if some do not.",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := o.check(); err != nil {
				return err
			}
			if o.watch > 0 {
				return errors.New("doctor looks twice, and ends: leave out --watch")
			}
			targets, err := o.targets()
			if err != nil {
				return err
			}
			r, err := doctor.Examine(c.Context(), targets, interval)
			if err != nil {
				return err
			}
			if err := o.printReport(c.OutOrStdout(), r); err != nil {
				return err
			}
			switch {
			case len(r.Failed) > 0:
				return ErrSomeFailed
			case !r.Healthy():
				return ErrUnhealthy
			}
			return nil
		},
	}
	c.Flags().DurationVar(&interval, "interval", doctor.DefaultInterval, "time between the two looks at counters")
	return c
}

// targets are the nodes that the flags mean, as doctor wants them.
func (o *options) targets() (all []doctor.Target, err error) {
	nodes, _, err := o.choose()
	for i := range nodes {
		n := &nodes[i]
		t := doctor.Target{Name: n.name, Asker: n.client, Socket: n.client.Socket}
		if t.Name == "" {
			t.Name = n.client.String()
		}
		all = append(all, t)
	}
	return all, err
}

// printReport writes a report as --output says.
func (o *options) printReport(w io.Writer, r *doctor.Report) error {
	if o.output == asTable {
		r.Print(w)
		return nil
	}
	raw, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return o.document(w, raw)
}
