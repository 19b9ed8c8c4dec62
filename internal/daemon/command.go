// Package daemon is what leafd and spined have in common: the command line, the
// checks before anything is touched, and the life of a node from its
// configuration to its drain. It must not forward frames or know routes; it
// only joins config, control, dataplane and telemetry.
package daemon

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/loomfabric/loom/dataplane"
)

// Command is the command line of leafd or spined. version may be empty: the
// build's own is then shown.
func Command(role dataplane.Role, version string) *cobra.Command {
	p := &program{role: role, name: "leafd", version: version}
	short := "Leaf of a Loom fabric: carries hosts' Ethernet in VXLAN over AF_XDP"
	if role == dataplane.Spine {
		p.name, short = "spined", "Spine of a Loom fabric: routes VXLAN between leaves over AF_XDP"
	}
	if p.version == "" {
		p.version = buildVersion()
	}
	root := &cobra.Command{Use: p.name, Short: short, SilenceUsage: true, SilenceErrors: true}
	root.CompletionOptions.DisableDefaultCmd = true
	root.AddCommand(p.runCommand(), p.checkCommand(), p.versionCommand())
	return root
}

// Main runs the command line and returns the exit status.
func Main(role dataplane.Role, version string, stderr io.Writer) int {
	c := Command(role, version)
	if err := c.Execute(); err != nil {
		fmt.Fprintf(stderr, "%s: %v\n", c.Name(), err)
		return 1
	}
	return 0
}

type program struct {
	role          dataplane.Role
	name, version string
}

func (p *program) runCommand() *cobra.Command {
	var file string
	c := &cobra.Command{
		Use: "run -c FILE", Short: "Forward frames until SIGTERM or SIGINT; a second signal ends at once", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return p.run(c.Context(), file, c.ErrOrStderr()) },
	}
	p.fileFlag(c, &file)
	return c
}

func (p *program) checkCommand() *cobra.Command {
	var file string
	c := &cobra.Command{
		Use: "check -c FILE", Short: "Check a configuration and this machine, and touch nothing", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			s, err := p.load(file)
			if err != nil {
				return err
			}
			warnings, err := s.preflight()
			for _, w := range warnings {
				fmt.Fprintf(c.ErrOrStderr(), "warning: %v\n", w)
			}
			if err != nil {
				return err
			}
			fmt.Fprintf(c.OutOrStdout(), "%s: OK: %s with %d ports\n", file, s.dataplane.Name, len(s.dataplane.Ports))
			return nil
		},
	}
	p.fileFlag(c, &file)
	return c
}

func (p *program) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version", Args: cobra.NoArgs,
		Run: func(c *cobra.Command, _ []string) {
			fmt.Fprintf(c.OutOrStdout(), "%s %s %s %s/%s\n", p.name, p.version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
		},
	}
}

func (p *program) fileFlag(c *cobra.Command, file *string) {
	c.Flags().StringVarP(file, "config", "c", "/etc/loom/"+p.name+".yaml", "configuration `FILE`")
}

// buildVersion is what the Go tool recorded of the source.
func buildVersion() string {
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
