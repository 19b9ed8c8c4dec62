package loomctl

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/loomfabric/loom/internal/record"
)

func recordCommand(o *options) *cobra.Command {
	parent := &cobra.Command{Use: "record", Short: "The daemon's flight record"}
	parent.AddCommand(&cobra.Command{
		Use: "dump FILE", Short: "Write what the daemon kept of its last minutes into a file, for loomsim replay", Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			client, err := o.one()
			if err != nil {
				return err
			}
			var b bytes.Buffer
			if err := client.Record(c.Context(), &b); err != nil {
				return err
			}
			d, err := record.Read(bytes.NewReader(b.Bytes()))
			if err != nil {
				return fmt.Errorf("what the daemon sends: %w", err)
			}
			f, err := createPrivate(args[0]) // it has the beginnings of tenants' frames
			if err != nil {
				return err
			}
			_, err = f.Write(b.Bytes())
			if err = errors.Join(err, f.Close()); err != nil {
				return err
			}
			fmt.Fprintf(c.OutOrStdout(), "%s: %d samples, %d flows, %d decisions, %d events, %d dropped frames of %s\n",
				args[0], len(d.Samples), len(d.Flows), len(d.Decisions), len(d.Events), len(d.Drops), d.Node)
			return nil
		},
	})
	return parent
}
