// Package daemon is what leafd and spined have in common: their commands, and
// the order in which the parts of a node start and stop. It joins the other
// packages and decides nothing about frames.
package daemon

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/loomfabric/loom/config"
	"github.com/loomfabric/loom/control/bridge"
	"github.com/loomfabric/loom/dataplane"
	"github.com/loomfabric/loom/internal/buildinfo"
	"github.com/loomfabric/loom/internal/httpd"
	"github.com/loomfabric/loom/internal/manpage"
	"github.com/loomfabric/loom/overlay"
)

// Kind is one of the two daemons.
type Kind struct {
	name, short string
	hup         string // what SIGHUP does, for the help
	version     string
	// load reads a file, or a text in its place if that is not nil.
	load func(file string, text []byte, interfaces []string) (*node, error)
}

// The daemons.
var (
	Leaf  = Kind{name: "leafd", short: "carry hosts' frames through the fabric (a leaf)", hup: "; SIGHUP reads the file again", load: loadLeaf}
	Spine = Kind{name: "spined", short: "forward VXLAN between leaves (a spine)", hup: "; SIGHUP reads the file again", load: loadSpine}
)

// node is a file's contents in the terms of the packages that use them.
type node struct {
	file   any // *config.Leaf or *config.Spine
	common config.Common
	dp     dataplane.Config

	// Of a leaf whose overlay is the kernel's:
	leaf      *config.Leaf  // the file with what the kernel's bridges say; nil: nobody has looked
	model     *bridge.Model // what they say
	addresses int           // that they had at the start, and that are usable
}

// overlay is what a leaf's file says, with what the kernel says if the overlay is the
// kernel's; nil: the file is a spine's.
func (n *node) overlay() *config.Leaf {
	if n.leaf != nil {
		return n.leaf
	}
	l, _ := n.file.(*config.Leaf)
	return l
}

// overlayName says who has a leaf's addresses, in the words of its configuration; "" on
// a spine.
func (n *node) overlayName() string {
	switch {
	case n.dp.Role != dataplane.Leaf:
		return ""
	case n.dp.KernelOverlay:
		return "kernel"
	default:
		return "file"
	}
}

func loadLeaf(file string, text []byte, interfaces []string) (*node, error) {
	read := config.LoadLeaf
	if text != nil {
		read = func(file string, interfaces []string) (*config.Leaf, error) {
			return config.ParseLeaf(file, text, interfaces)
		}
	}
	l, err := read(file, interfaces)
	if err != nil {
		return nil, err
	}
	n := &node{file: l, common: l.Common, dp: l.ToDataplane()}
	if l.ControlKeyFile != "" {
		if n.dp.Keys, err = readKeys(l.ControlKeyFile); err != nil {
			return nil, err
		}
	}
	return n, n.checkWeb()
}

// checkWeb reads who may ask for metrics, with the certificates.
func (n *node) checkWeb() error {
	if n.common.Telemetry.WebConfig == "" {
		return nil
	}
	return httpd.CheckWeb(n.common.Telemetry.WebConfig, "telemetry.web_config")
}

// readKeys reads the keys of control packets. Everybody on the machine who could read
// them, too, could speak for a leaf.
func readKeys(file string) (overlay.Keys, error) {
	info, err := os.Stat(file)
	if err != nil {
		return nil, fmt.Errorf("control_key_file: %w", err)
	}
	if mode := info.Mode().Perm(); mode&0o007 != 0 {
		return nil, fmt.Errorf("control_key_file: %s has mode %04o: everybody can use the keys; run `chmod o= %s`", file, mode, file)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("control_key_file: %w", err)
	}
	keys, err := overlay.ParseKeys(string(text))
	if err != nil {
		return nil, fmt.Errorf("control_key_file: %s: %w", file, err)
	}
	return keys, nil
}

func loadSpine(file string, text []byte, interfaces []string) (*node, error) {
	read := config.LoadSpine
	if text != nil {
		read = func(file string, interfaces []string) (*config.Spine, error) {
			return config.ParseSpine(file, text, interfaces)
		}
	}
	s, err := read(file, interfaces)
	if err != nil {
		return nil, err
	}
	n := &node{file: s, common: s.Common, dp: s.ToDataplane()}
	return n, n.checkWeb()
}

// Main runs the daemon's command line and returns the exit code. version is
// what the linker set; empty: what the Go tool recorded.
func Main(k Kind, version string) int {
	k.version = buildinfo.Version(version)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	go func() {
		<-signals
		cancel()
		<-signals
		os.Exit(130) // a second signal means: do not wait for the drain
	}()
	if err := k.command(os.Stdout).ExecuteContext(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", k.name, err)
		return 1
	}
	return 0
}

// command returns the daemon's command line, which prints to out.
func (k Kind) command(out io.Writer) *cobra.Command {
	var file string
	var takeOver bool
	root := &cobra.Command{Use: k.name, Short: k.short, SilenceUsage: true, SilenceErrors: true}
	root.SetOut(out)
	withFile := func(c *cobra.Command) *cobra.Command {
		c.Args = cobra.NoArgs
		c.Flags().StringVarP(&file, "config", "c", "/etc/loom/"+k.name+".yaml", "configuration file")
		return c
	}
	run := withFile(&cobra.Command{
		Use: "run", Short: "Forward frames until SIGTERM or SIGINT" + k.hup,
		RunE: func(c *cobra.Command, _ []string) error { return k.run(c.Context(), file, takeOver) },
	})
	run.Flags().BoolVar(&takeOver, "takeover", false, "take over from the daemon that runs, without losing a frame; without one start as usual")
	root.AddCommand(run, withFile(k.upgradeCommand(&file, out)), withFile(k.checkCommand(&file, out)), buildinfo.Command(k.name, k.version), manpage.Command("8", k.version))
	return root
}
