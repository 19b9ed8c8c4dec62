package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	systemd "github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/sync/errgroup"

	"github.com/loomfabric/loom/control"
	"github.com/loomfabric/loom/dataplane"
	"github.com/loomfabric/loom/internal/admin"
	"github.com/loomfabric/loom/internal/events"
	"github.com/loomfabric/loom/internal/httpd"
	"github.com/loomfabric/loom/internal/telemetry"
)

// adapt takes over from the machine what the file leaves open.
func (n *node) adapt(f *control.Facts) {
	for i := range n.dp.Ports {
		n.dp.MaxMTU = max(n.dp.MaxMTU, f.Ports[n.dp.Ports[i].Name].MTU)
	}
	if n.auto() { // others may come later, and buffers are made once
		n.dp.MaxMTU = max(n.dp.MaxMTU, control.WidestPort(&f.State))
	}
	if n.dp.Seed == 0 {
		n.dp.Seed = uint64(time.Now().UnixNano())
	}
}

// logLevel returns the level that the file says.
func (n *node) logLevel() (level slog.Level) {
	if err := level.UnmarshalText([]byte(n.common.Log.Level)); err != nil {
		return slog.LevelInfo // validation has let only known ones through
	}
	return level
}

// keptEvents is how many events a daemon keeps.
const keptEvents = 4096

// logger returns the log, whose events are kept.
func (n *node) logger(level slog.Leveler, kept *events.Ring) *slog.Logger {
	o := &slog.HandlerOptions{Level: level}
	var h slog.Handler = slog.NewTextHandler(os.Stderr, o)
	if n.common.Log.Format == "json" {
		h = slog.NewJSONHandler(os.Stderr, o)
	}
	return slog.New(events.Keep(h, kept)).With("node", n.dp.Name)
}

// run is the life of a daemon. What can fail without a trace comes first: the
// checks, then the addresses for metrics and the admin API, then the ports.
//
// With takeOver the daemon that runs is asked for all that, and goes on until this one can;
// if none runs, this is a start like any other.
func (k Kind) run(ctx context.Context, file string, takeOver bool) (err error) {
	read := time.Now()
	reload := make(chan os.Signal, 1) // one that is waiting covers all that came since
	signal.Notify(reload, syscall.SIGHUP)
	defer signal.Stop(reload)
	var h *heir
	meet := func(n *node, f *control.Facts) (err error) {
		if takeOver {
			h, err = k.meet(n, f)
		}
		return err
	}
	n, findings, err := k.prepare(file, false, meet)
	var missing noDevice
	if errors.As(err, &missing) && !takeOver { // a predecessor has had a device all along
		if err = k.awaitDevice(ctx, missing.node, file, reload); err != nil || ctx.Err() != nil {
			return err
		}
		read = time.Now()
		n, findings, err = k.prepare(file, false, meet)
	}
	defer func() {
		if err != nil && h != nil {
			h.fail(err)
		}
	}()
	if err != nil {
		errs := []error{err}
		for _, f := range findings {
			errs = append(errs, errors.New(f.String()))
		}
		return errors.Join(errs...)
	}
	again := &reloader{kind: k, file: file, gather: control.GatherPorts, start: read, found: make(chan []string, 1), asked: make(chan request)}
	again.level.Set(n.logLevel())
	kept := events.NewRing(keptEvents)
	log := n.logger(&again.level, kept)
	rec := newRecorder(n.dp.Name, k.name, k.version, n.common.Record.Dir, log, kept)
	again.log, again.manager.log = log, log
	for _, f := range findings {
		log.Warn(f.Problem, "fix", f.Fix)
	}
	l, err := n.listen(h, log)
	defer l.close()
	if err != nil {
		return err
	}
	kernel, err := control.OpenNetlink(n.portNames()...)
	if err != nil {
		return err
	}
	defer kernel.Close()
	kernel.Underlay(n.dp.VTEP)
	n.dp.Look = control.Look
	var plane *dataplane.Node
	if h != nil {
		h.log = log
		plane, err = dataplane.Inherit(n.dp, &h.offer.Plane, h.files, log)
	} else {
		plane, err = dataplane.Open(n.dp, log)
	}
	if err != nil {
		return fmt.Errorf("open the ports: %w", err)
	}
	again.plane, again.follow, rec.plane = plane, kernel.SetPorts, plane
	if !n.common.Record.Off {
		plane.OnCrash(rec.crash)
	}
	again.now.Store(n)
	ports := newWatcher(again.now.Load, findings, log)
	err = k.serve(ctx, &service{n, plane, kernel, l, h, file, log, rec, kept}, again, ports, reload)
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
type listeners struct {
	metrics, admin net.Listener
	remote         net.Listener // the admin API for other machines
	successor      *net.UnixListener
}

// listen opens the listeners of a node, or takes those of its predecessor.
func (n *node) listen(h *heir, log *slog.Logger) (l listeners, err error) {
	l.metrics, err = listenAt(h, listenMetrics, n.common.Telemetry.Listen, func() (net.Listener, error) {
		return httpd.Listen(n.common.Telemetry.Listen, "metrics", "telemetry.listen")
	})
	if err != nil {
		return l, err
	}
	l.admin, err = listenAt(h, listenAdminAPI, n.common.Admin.Listen, func() (net.Listener, error) {
		return listenAdmin(n.common.Admin.Listen, standardAdmin(n.common.Admin.Listen), log)
	})
	if err != nil {
		return l, err
	}
	if l.remote, err = n.listenRemote(h); err != nil {
		return l, err
	}
	l.successor = listenForSuccessor(h, n, log)
	return l, nil
}

// named lists the listeners for an offer.
func (l *listeners) named(n *node) (all []namedListener) {
	if l.metrics != nil {
		all = append(all, namedListener{offeredListener{listenMetrics, n.common.Telemetry.Listen}, l.metrics})
	}
	if l.admin != nil {
		all = append(all, namedListener{offeredListener{listenAdminAPI, n.common.Admin.Listen}, l.admin})
	}
	if l.remote != nil {
		all = append(all, namedListener{offeredListener{listenAdminRemote, n.common.Admin.Remote.Listen}, l.remote})
	}
	if l.successor != nil {
		all = append(all, namedListener{offeredListener{listenHandover, n.handoverPath()}, l.successor})
	}
	return all
}

// own makes the files of Unix sockets this process's, to be removed in the end.
func (l *listeners) own() {
	for _, x := range []net.Listener{l.metrics, l.admin} {
		if u, ok := x.(*net.UnixListener); ok {
			u.SetUnlinkOnClose(true)
		}
	}
}

func (l *listeners) close() {
	if l.metrics != nil {
		l.metrics.Close()
	}
	if l.admin != nil {
		l.admin.Close()
	}
	if l.remote != nil {
		l.remote.Close()
	}
	if l.successor != nil {
		l.successor.Close()
	}
}

// service is a node with all that it needs to run.
type service struct {
	*node
	plane  *dataplane.Node
	kernel control.Kernel
	listeners
	heir *heir // nil: there is no predecessor
	file string
	log  *slog.Logger
	rec  *recorder

	events *events.Ring
}

// record returns what writes the flight record; nil: the node keeps none.
func (s *service) record() func(io.Writer) error {
	if s.common.Record.Off {
		return nil
	}
	return s.rec.write
}

// Bounds on requests that ask the workers, of metrics and of the admin API each. An
// answer takes a worker's time between two bursts, so that few of them are made at once.
const (
	maxRequests    = 4
	requestTimeout = 10 * time.Second
)

// serve runs the node's parts. When ctx ends the data plane drains, while
// control, telemetry and the admin API go on; they end after it.
//
// With a predecessor it answers nobody, and the workers do not run, until that one has
// stopped. When a successor has taken over it ends without a drain.
func (k Kind) serve(ctx context.Context, s *service, again *reloader, ports *watcher, reload <-chan os.Signal) error {
	n, plane, log := s.node, s.plane, s.log
	mirror := control.NewMirror(control.Options{
		Role: n.dp.Role, Ports: n.dp.Ports, Kernel: s.kernel, Overlay: n.overlay(), Overhead: again.overhead,
		Finder: n.finder(), Found: again.offer, VTEPs: n.dp.Remotes, Publisher: plane, Unresolved: plane.Unresolved(), Log: log,
	})
	again.tables = mirror
	around, stop := context.WithCancel(context.Background())
	defer stop()
	parts, around := errgroup.WithContext(around)
	bridges, err := n.openKernel(around, s.heir != nil, again, plane, mirror, log)
	if err != nil {
		return err
	}
	gate, adminGate := httpd.NewGate("metrics", maxRequests, requestTimeout, log), httpd.NewGate("the admin API", maxRequests, requestTimeout, log)
	server := telemetry.NewServer(telemetry.Options{
		Name: n.dp.Name, Role: k.name, Version: k.version, VTEP: n.dp.VTEP, Overlay: n.overlayName(),
		Stats: plane.Stats, PortInfos: plane.PortInfos, Tables: mirror.Tables, Control: mirror.Stats, Bridge: bridges.stats(), Congestion: plane.Congestion, Paths: plane.Paths,
		Reload: again.state, Findings: ports.findings, Auto: plane.Auto, Ports: plane.Ports, PerWorker: n.common.Telemetry.PerWorker, Gate: gate, AdminGate: adminGate, Log: log,
	})

	parts.Go(func() error { return mirror.Run(around) })
	parts.Go(func() error { return bridges.run(around) })
	forward, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(around, cancel)() // a part that fails ends the data plane, and the other way round
	if s.heir != nil {
		bridges.known(forward)
		if err := s.heir.takeOver(forward, plane); err != nil {
			stop()
			return errors.Join(err, parts.Wait())
		}
		s.own()
		parts.Go(bridges.takenOver)
	}
	if s.metrics != nil {
		parts.Go(func() error {
			return httpd.ServeWeb(around, s.metrics, server, "metrics and health", n.common.Telemetry.WebConfig, log)
		})
	}
	if s.admin != nil || s.remote != nil {
		api := admin.NewServer(admin.Options{
			Name: n.dp.Name, Role: k.name, Leaf: n.dp.Role == dataplane.Leaf, Version: k.version, VTEP: n.dp.VTEP,
			Node: plane, Tables: mirror.Tables, Ports: plane.Ports, Gate: adminGate,
			Config: again, Level: &again.level, Log: log, Events: s.events, Parameters: again.parameters, Record: s.record(),
			Capture: func(c dataplane.CaptureConfig) (admin.Capture, error) { return plane.Capture(c) },
		})
		if s.admin != nil {
			parts.Go(func() error { return httpd.Serve(around, s.admin, api, "the admin API", log) })
		}
		if s.remote != nil {
			parts.Go(func() error { return n.serveRemote(around, s.remote, api, log) })
		}
	}
	if !n.common.Record.Off {
		parts.Go(func() error { s.rec.run(around); return nil })
	}
	parts.Go(func() error { again.run(around, reload); return nil })
	parts.Go(func() error { ports.run(around); return nil })

	released := make(chan struct{})
	if s.successor != nil {
		parts.Go(func() error { k.awaitSuccessor(forward, s, again, released); return nil })
	}
	parts.Go(func() error {
		if s.heir != nil {
			s.heir.settle(plane) // its last act is to name this process to the service manager
		}
		announce(forward, server.Readiness, &again.manager, again.start)
		return nil
	})
	parts.Go(func() error { again.manager.watch(around, forward.Done(), plane.Await); return nil })
	defer context.AfterFunc(ctx, func() {
		log.Info("stopping", "drain", n.dp.Drain)
		again.manager.notify(systemd.SdNotifyStopping)
	})()
	err = plane.Run(forward)
	stop()
	return errors.Join(err, parts.Wait())
}

const (
	// startLook and laterLook are how often a node is asked whether it is ready, at its
	// start and from then on.
	startLook, laterLook = 50 * time.Millisecond, time.Second
	// complainAfter is how long a start takes before the log says what it waits for.
	complainAfter = 5 * time.Second
)

// announce tells systemd, and the log, as soon as the node forwards, and from then on
// what it is not ready for. The daemon began at start.
func announce(ctx context.Context, ready func() telemetry.Readiness, m *manager, start time.Time) {
	tick := time.NewTicker(startLook)
	defer tick.Stop()
	for complained := false; ; {
		r := ready()
		waits := slices.ContainsFunc(r.Reasons, func(r dataplane.Reason) bool { return !r.Forwards() })
		switch started := m.ready.Load(); {
		case !started && waits:
			if !complained && time.Since(start) > complainAfter {
				complained = true
				m.log.Warn("not ready yet", "reasons", r.Reasons)
			}
		case !started:
			m.log.Info("ready", "took", time.Since(start).Round(time.Millisecond))
			m.readiness(r.Reasons)
			m.isReady()
			tick.Reset(laterLook)
		case !m.readiness(r.Reasons):
		case r.Ready:
			m.log.Info("ready again")
		default:
			m.log.Warn("not ready", "reasons", r.Reasons)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
