package web

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/loomfabric/loom/config/fabric"
	"github.com/loomfabric/loom/internal/admin"
	"github.com/loomfabric/loom/internal/buildinfo"
	"github.com/loomfabric/loom/internal/httpd"
	"github.com/loomfabric/loom/internal/manpage"
)

// DefaultListen is where the page is if nobody says otherwise.
const DefaultListen = "127.0.0.1:9480"

// Bounds on requests that ask nodes for a page.
const (
	maxRequests    = 4
	requestTimeout = 10 * time.Second
)

// options are the flags.
type options struct {
	inventory, lab  string
	listen, title   string
	names           []string
	every, keep     time.Duration
	memory          int // MiB
	webConfig       string
	public          bool
	logTo           io.Writer
	listening       func(net.Addr) // for tests
	linked, version string
}

// Command returns loomweb's command line. version is what the linker set.
func Command(version string) *cobra.Command {
	o := &options{logTo: os.Stderr, linked: version, version: buildinfo.Version(version)}
	root := &cobra.Command{
		Use: "loomweb", Short: "Show a fabric in a browser",
		Long: "loomweb asks the leaves and spines of an inventory, or of a lab, for snapshots (admin API)\n" +
			"and serves a page with a map, a heat map of paths, flowlets, reordering, drops and events.\n" +
			"It keeps what it has seen for some time, changes nothing, and needs no privileges but to\n" +
			"connect to the nodes' sockets, or a certificate for those on other machines.\n\n" +
			"The exit code is 0 after SIGTERM or SIGINT, and 1 if it could not start or go on.",
		Example: "  loomweb --lab demo\n" +
			"  loomweb --inventory /etc/loom/nodes.yaml --listen 127.0.0.1:9480",
		Args: cobra.NoArgs, SilenceUsage: true, SilenceErrors: true,
		RunE: func(c *cobra.Command, _ []string) error { return o.run(c.Context()) },
	}
	f := root.Flags()
	f.StringVar(&o.inventory, "inventory", admin.InventoryFile, "the file that says where nodes are")
	f.StringVar(&o.lab, "lab", "", "show this lab of loomlab's instead")
	f.StringVar(&o.listen, "listen", DefaultListen, "serve the page at HOST:PORT, or at unix:/PATH")
	f.StringVar(&o.title, "title", "", "the fabric's name on the page (default: the lab's name, or that of this machine)")
	f.StringSliceVar(&o.names, "name", nil, "names of this machine that browsers may ask for, besides its host name and addresses")
	f.DurationVar(&o.every, "every", time.Second, "ask the nodes this often")
	f.DurationVar(&o.keep, "keep", 15*time.Minute, "keep what was seen for this long")
	f.IntVar(&o.memory, "memory", 128, "keep at most this many MiB of it")
	f.StringVar(&o.webConfig, "web-config", "", "serve the page as this file says (TLS, client certificates, users): the format of Prometheus' exporters")
	f.BoolVar(&o.public, "public", false, "serve other machines although anybody may look")
	root.AddCommand(buildinfo.Command("loomweb", o.version), manpage.Command("1", o.version))
	return root
}

// ErrPublic is the error for an address that anybody could reach.
var ErrPublic = errors.New("the page has no password, and whoever reaches it sees the fabric")

func (o *options) check() error {
	const least, most = 100 * time.Millisecond, time.Minute
	switch {
	case o.every < least || o.every > most:
		return fmt.Errorf("--every %v: use %v to %v", o.every, least, most)
	case o.keep < o.every || o.keep > 24*time.Hour:
		return fmt.Errorf("--keep %v: use --every (%v) to 24h", o.keep, o.every)
	case o.memory < 1 || o.memory > 1<<14:
		return fmt.Errorf("--memory %d: use 1 to %d MiB", o.memory, 1<<14)
	}
	guarded := false
	if o.webConfig != "" {
		certificates, passwords, err := httpd.WebGuards(o.webConfig)
		if err = errors.Join(err, httpd.CheckWeb(o.webConfig, "--web-config")); err != nil {
			return err
		}
		guarded = certificates || passwords
	}
	if !guarded && !o.public && !private(o.listen) {
		return fmt.Errorf("--listen %s: %w: listen at 127.0.0.1, give a --web-config that asks for certificates or passwords, or say --public", o.listen, ErrPublic)
	}
	return nil
}

// private reports whether only this machine can reach an address.
func private(address string) bool {
	if strings.HasPrefix(address, "unix:") {
		return true
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return true // listening fails, and says why
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// find returns the nodes to ask, and what to call them together.
func (o *options) find() (nodes []Node, title string, err error) {
	if o.lab != "" {
		sockets, err := fabric.AdminSockets(o.lab)
		for name, path := range sockets {
			nodes = append(nodes, Node{name, &admin.Client{Socket: path}})
		}
		return nodes, o.lab, err
	}
	i, err := admin.LoadInventory(o.inventory)
	if err != nil {
		return nil, "", err
	}
	for _, name := range i.Names() {
		c, err := i.Client(name)
		if err != nil {
			return nil, "", err
		}
		nodes = append(nodes, Node{name, c})
	}
	title, _ = os.Hostname()
	return nodes, title, nil
}

func (o *options) run(ctx context.Context) error {
	if err := o.check(); err != nil {
		return err
	}
	nodes, title, err := o.find()
	if err != nil {
		return err
	}
	if o.title != "" {
		title = o.title
	}
	log := slog.New(slog.NewTextHandler(o.logTo, nil))
	l, err := httpd.Listen(o.listen, "the page", "--listen")
	if err != nil {
		return err
	}
	if l == nil {
		return fmt.Errorf("--listen %q: give HOST:PORT or unix:/PATH", o.listen)
	}
	defer l.Close()
	scheme := "http"
	if o.webConfig != "" {
		scheme = "https"
	}
	hello := Hello{Type: "hello", Title: title, Version: o.version, Every: o.every.Milliseconds(), Keep: o.keep.Milliseconds()}
	log.Info("open "+scheme+"://"+l.Addr().String()+"/", "fabric", title, "nodes", len(nodes))
	if o.listening != nil {
		o.listening(l.Addr())
	}
	return serve(ctx, l, hello, nodes, o, log)
}

// serve asks the nodes and serves the page until ctx ends.
func serve(ctx context.Context, l net.Listener, hello Hello, nodes []Node, o *options, log *slog.Logger) error {
	r := newRing(o.keep, o.memory<<20)
	s := &server{hello: hello, nodes: nodes, ring: r, hosts: hostNames(o.names)}
	gate := httpd.NewGate("the page", maxRequests, requestTimeout, log)
	parts, ctx := errgroup.WithContext(ctx)
	s.ends = ctx
	parts.Go(func() error { return newPoller(nodes, o.every, r, log).run(ctx) })
	parts.Go(func() error { return httpd.ServeWeb(ctx, l, s.handler(gate), "the page", o.webConfig, log) })
	return parts.Wait()
}
