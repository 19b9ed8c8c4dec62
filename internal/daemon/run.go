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
	"sync"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/loomfabric/loom/config"
	"github.com/loomfabric/loom/control"
	"github.com/loomfabric/loom/dataplane"
	"github.com/loomfabric/loom/telemetry"
)

// run is the life of a daemon.
func (p *program) run(ctx context.Context, file string, stderr io.Writer) error {
	s, err := p.load(file)
	if err != nil {
		return err
	}
	log := logger(&s.common.Log, stderr).With("node", s.dataplane.Name)
	warnings, err := s.preflight()
	for _, w := range warnings {
		log.Warn(w.Error())
	}
	if err != nil {
		return err
	}
	ctx, stop := untilSignal(ctx, log)
	defer stop()

	listener, err := telemetry.Listen(s.common.Telemetry.Listen)
	if err != nil {
		return err
	}
	node, err := dataplane.Open(s.dataplane, log)
	if err != nil {
		if listener != nil {
			err = errors.Join(err, listener.Close())
		}
		return err
	}
	err = p.serve(ctx, s, node, listener, log)
	log.Info("stopped")
	return errors.Join(err, node.Close())
}

// serve runs control, data plane and telemetry until ctx ends or one fails.
func (p *program) serve(ctx context.Context, s *settings, node *dataplane.Node, listener net.Listener, log *slog.Logger) error {
	names := make([]string, len(s.dataplane.Ports))
	for i := range s.dataplane.Ports {
		names[i] = s.dataplane.Ports[i].Name
	}
	kernel, err := control.OpenNetlink(names...)
	if err != nil {
		return err
	}
	defer kernel.Close()
	started := &readiness{log: log}
	mirror := control.NewMirror(control.Options{
		Role: s.dataplane.Role, Ports: s.dataplane.Ports, Kernel: kernel, Source: s.source,
		Publisher: publisher{node, log, started}, Unresolved: node.Unresolved(), Log: log,
	})
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return mirror.Run(ctx) })
	g.Go(func() error { return node.Run(ctx) })
	if listener != nil {
		server := telemetry.NewServer(telemetry.Options{
			Role: p.name, Version: p.version, Stats: node.Stats, Tables: mirror.Tables, Control: mirror.Stats,
			Ports: s.dataplane.Ports, Log: log,
		})
		g.Go(func() error { return server.Serve(ctx, listener) })
		log.Info("telemetry", "address", s.common.Telemetry.Listen)
	}
	return g.Wait()
}

// publisher hands the mirror's tables to the node.
type publisher struct {
	node  *dataplane.Node
	log   *slog.Logger
	ready *readiness
}

// Publish implements control.Publisher.
func (p publisher) Publish(t *dataplane.Tables) {
	if err := p.node.Publish(t); err != nil {
		p.log.Error("tables refused; the last ones stay in force", "error", err)
		return
	}
	p.ready.once.Do(p.ready.tell)
}

// readiness tells the service manager when the first tables are in force.
type readiness struct {
	once sync.Once
	log  *slog.Logger
}

func (r *readiness) tell() {
	r.log.Info("ready")
	if err := notify("READY=1"); err != nil {
		r.log.Warn("tell the service manager", "error", err)
	}
}

// notify sends one message by sd_notify(3)'s protocol, if a service manager
// wants to be told.
func notify(state string) error {
	path := os.Getenv("NOTIFY_SOCKET")
	if path == "" {
		return nil
	}
	c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		return fmt.Errorf("NOTIFY_SOCKET: %w", err)
	}
	defer c.Close()
	_, err = c.Write([]byte(state))
	return err
}

// untilSignal returns a context that the first SIGTERM or SIGINT ends; the
// second ends the process.
func untilSignal(parent context.Context, log *slog.Logger) (context.Context, func()) {
	ctx, cancel := context.WithCancel(parent)
	c := make(chan os.Signal, 2)
	signal.Notify(c, unix.SIGTERM, unix.SIGINT)
	go func() {
		select {
		case s := <-c:
			log.Info("draining; a second signal ends at once", "signal", s.String())
			cancel()
		case <-ctx.Done():
			return
		}
		<-c
		log.Warn("ended without draining")
		os.Exit(1)
	}()
	return ctx, func() { signal.Stop(c); cancel() }
}

func logger(c *config.Log, w io.Writer) *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(c.Level)) // package config has checked it
	o := &slog.HandlerOptions{Level: level}
	if c.Format == "json" {
		return slog.New(slog.NewJSONHandler(w, o))
	}
	return slog.New(slog.NewTextHandler(w, o))
}
