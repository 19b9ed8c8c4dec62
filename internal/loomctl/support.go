package loomctl

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/loomfabric/loom/internal/doctor"
	"github.com/loomfabric/loom/internal/status"
	"github.com/loomfabric/loom/internal/support"
)

func supportCommand(o *options) *cobra.Command {
	var file string
	var interval time.Duration
	c := &cobra.Command{
		Use: "support", Short: "Write all that is known of nodes and their machines into one archive, without secrets",
		Long: "support writes a tar.gz with what doctor finds, all that the nodes answer, their metrics,\n" +
			"their configurations and logs, and what their kernels say. Keys and passwords are taken out;\n" +
			"addresses of hosts are not. Run it as root: what could not be had stands in missing.txt.\n\n" +
			"The exit code is 0 if the archive was written, whatever doctor found.",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			targets, err := o.targets()
			if err != nil {
				return err
			}
			line := status.New(c.ErrOrStderr())
			host, err := os.Hostname()
			if err != nil {
				return fmt.Errorf("the machine's name: %w", err)
			}
			name := "loom-support-" + host + "-" + time.Now().UTC().Format("20060102-150405")
			file := cmp.Or(file, name+".tar.gz")
			r, err := toFile(c.OutOrStdout(), file, func(w io.Writer) (*doctor.Report, error) {
				return support.Write(c.Context(), w, targets, support.Options{Name: name, Version: c.Root().Version, Interval: interval, Say: line.Print})
			})
			if err != nil {
				return err
			}
			if file != "-" {
				line.Print("%s: %d nodes, %d findings; secrets are removed, hosts' addresses are not", file, len(r.Nodes), len(r.Findings))
			}
			if len(r.Failed) > 0 {
				return ErrSomeFailed
			}
			return nil
		},
	}
	c.Flags().StringVarP(&file, "file", "f", "", "the archive; - for standard output (default loom-support-HOST-TIME.tar.gz)")
	c.Flags().DurationVar(&interval, "interval", doctor.DefaultInterval, "time between the two looks at counters")
	return c
}

// toFile has write make a file that only its owner may read. One that is not complete is
// removed.
func toFile(out io.Writer, name string, write func(io.Writer) (*doctor.Report, error)) (*doctor.Report, error) {
	if name == "-" {
		return write(out)
	}
	f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	r, err := write(f)
	if err = errors.Join(err, f.Close()); err != nil {
		err = errors.Join(err, os.Remove(name))
	}
	return r, err
}
