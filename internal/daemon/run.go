package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	systemd "github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/sync/errgroup"

	"github.com/loomfabric/loom/config"
	"github.com/loomfabric/loom/control"
	"github.com/loomfabric/loom/dataplane"
	"github.com/loomfabric/loom/internal/admin"
	"github.com/loomfabric/loom/internal/httpd"
	"github.com/loomfabric/loom/internal/telemetry"
)

// adapt takes over from the machine what the file leaves open.
func (n *node) adapt(f *control.Facts) {
	for i := range n.dp.Ports {
		n.dp.MaxMTU = max(n.dp.MaxMTU, f.Ports[n.dp.Ports[i].Name].MTU)
	}
	if n.dp.Seed == 0 {
		n.dp.Seed = uint64(time.Now().UnixNano())
	}
}

func (n *node) logger() *slog.Logger {
	var level slog.Level
	if err := level.UnmarshalText([]byte(n.common.Log.Level)); err != nil {
		level = slog.LevelInfo // validation has let only known ones through
	}
	o := &slog.HandlerOptions{Level: level}
	if n.common.Log.Format == "json" {
		return slog.New(slog.NewJSONHandler(os.Stderr, o)).With("node", n.dp.Name)
	}
	return slog.New(slog.NewTextHandler(os.Stderr, o)).With("node", n.dp.Name)
}

// run is the life of a daemon. What can fail without a trace comes first: the
// checks, then the addresses for metrics and the admin API, then the ports.
func (k Kind) run(ctx context.Context, file string) error {
	read := time.Now()
	n, findings, err := k.prepare(file, false)
	if err != nil {
		errs := []error{err}
		for _, f := range findings {
			errs = append(errs, errors.New(f.String()))
		}
		return errors.Join(errs...)
	}
	log := n.logger()
	reload := make(chan os.Signal, 1) // one that is waiting covers all that came since
	signal.Notify(reload, syscall.SIGHUP)
	defer signal.Stop(reload)
	for _, f := range findings {
		log.Warn(f.Problem, "fix", f.Fix)
	}
	var listener net.Listener
	if listener, err = httpd.Listen(n.common.Telemetry.Listen, "metrics", "telemetry.listen"); err != nil {
		return err
	}
	if listener != nil {
		defer listener.Close()
	}
	socket, err := listenAdmin(n.common.Admin.Listen, standardAdmin(n.common.Admin.Listen), log)
	if err != nil {
		return err
	}
	if socket != nil {
		defer socket.Close()
	}
	kernel, err := control.OpenNetlink(n.portNames()...)
	if err != nil {
		return err
	}
	defer kernel.Close()
	n.dp.Look = control.Look
	plane, err := dataplane.Open(n.dp, log)
	if err != nil {
		return fmt.Errorf("open the ports: %w", err)
	}
	again := &reloader{kind: k, file: file, current: n, plane: plane, log: log, start: read, manager: manager{log: log}}
	ports := newWatcher(&n.dp, findings, log)
	again.dp.Store(&n.dp)
	err = k.serve(ctx, n, plane, kernel, listeners{listener, socket}, log, again, ports, reload)
	if cerr := plane.Close(); cerr != nil {
		err = errors.Join(err, fmt.Errorf("close the ports: %w", cerr))
	}
	if err == nil {
		log.Info("stopped")
	}
	return err
}

func (n *node) portNames() []string {
	names := make([]string, len(n.dp.Ports))
	for i := range n.dp.Ports {
		names[i] = n.dp.Ports[i].Name
	}
	return names
}

// listeners are what a node answers at; nil: it does not.
type listeners struct{ metrics, admin net.Listener }

// serve runs the node's parts. When ctx ends the data plane drains, while
// control, telemetry and the admin API go on; they end after it.
func (k Kind) serve(ctx context.Context, n *node, plane *dataplane.Node, kernel control.Kernel, l listeners, log *slog.Logger, again *reloader, ports *watcher, reload <-chan os.Signal) error {
	overlay, _ := n.file.(*config.Leaf) // nil: a spine's
	mirror := control.NewMirror(control.Options{
		Role: n.dp.Role, Ports: n.dp.Ports, Kernel: kernel, Overlay: overlay, Overhead: again.overhead,
		Publisher: plane, Unresolved: plane.Unresolved(), Log: log,
	})
	server := telemetry.NewServer(telemetry.Options{
		Role: k.name, Version: k.version, Stats: plane.Stats, Tables: mirror.Tables, Control: mirror.Stats, Congestion: plane.Congestion,
		Reload: again.state, Findings: ports.findings, Auto: plane.Auto, Ports: n.dp.Ports, Log: log,
	})

	around, stop := context.WithCancel(context.Background())
	defer stop()
	parts, around := errgroup.WithContext(around)
	parts.Go(func() error { return mirror.Run(around) })
	if l.metrics != nil {
		parts.Go(func() error { return httpd.Serve(around, l.metrics, server, "metrics and health", log) })
	}
	if l.admin != nil {
		api := admin.NewServer(admin.Options{
			Name: n.dp.Name, Role: k.name, Leaf: n.dp.Role == dataplane.Leaf, Version: k.version,
			Node: plane, Tables: mirror.Tables, Ports: n.dp.Ports,
		})
		parts.Go(func() error { return httpd.Serve(around, l.admin, api, "the admin API", log) })
	}
	parts.Go(func() error { again.run(around, reload); return nil })
	parts.Go(func() error { ports.run(around); return nil })
	parts.Go(func() error { announce(around, server, &again.manager); return nil })

	// A part that fails ends the data plane, and the other way round.
	forward, cancel := context.WithCancel(ctx)
	defer cancel()
	parts.Go(func() error { again.manager.watch(around, forward.Done(), plane.Await); return nil })
	defer context.AfterFunc(around, cancel)()
	defer context.AfterFunc(ctx, func() {
		log.Info("stopping", "drain", n.dp.Drain)
		again.manager.notify(systemd.SdNotifyStopping)
	})()
	err := plane.Run(forward)
	stop()
	return errors.Join(err, parts.Wait())
}

// announce tells systemd, and the log, as soon as the node is ready.
func announce(ctx context.Context, server *telemetry.Server, m *manager) {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	start := time.Now()
	for complained := false; ; {
		r := server.Readiness()
		if r.Ready {
			m.log.Info("ready", "took", time.Since(start).Round(time.Millisecond))
			m.isReady()
			return
		}
		if !complained && time.Since(start) > 5*time.Second {
			complained = true
			m.log.Warn("not ready yet", "reasons", r.Reasons)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
