package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/config"
	"github.com/loomfabric/loom/control"
	"github.com/loomfabric/loom/dataplane"
	"github.com/loomfabric/loom/internal/telemetry"
)

// reloader takes over what may change in the file of a running daemon: schemes
// and traffic classes. It is all or nothing, so that what runs is always what
// one state of the file says.
type reloader struct {
	kind    Kind
	file    string
	current *node
	now     atomic.Pointer[node] // current, for other goroutines
	plane   interface {
		SetSchemes(scheme string, o balance.Options, classes []dataplane.Class) error
	}
	log     *slog.Logger
	manager manager
	result  atomic.Pointer[telemetry.Reload] // nil: nothing was read since the start
	start   time.Time
}

// state is for metrics, which ask from goroutines of their own.
func (r *reloader) state() telemetry.Reload {
	if s := r.result.Load(); s != nil {
		return *s
	}
	return telemetry.Reload{Successful: true, LastSuccess: r.start}
}

// overhead returns what uplinks' MTU must exceed hosts' by under the schemes in force.
// The control plane asks from a goroutine of its own.
func (r *reloader) overhead() int { return r.now.Load().dp.Overhead() }

// note keeps what became of the file that was just read.
func (r *reloader) note(err error) {
	s := telemetry.Reload{Successful: err == nil, LastSuccess: time.Now()}
	if err != nil {
		s.LastSuccess = r.state().LastSuccess
	}
	r.result.Store(&s)
}

// run reloads at each signal until ctx ends.
func (r *reloader) run(ctx context.Context, signals <-chan os.Signal) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-signals:
		}
		r.manager.reloading()
		changed, err := r.reload()
		r.note(err)
		r.manager.reloaded(err)
		switch {
		case err != nil:
			r.log.Error("configuration not reloaded: everything stays as it was", "file", r.file, "err", err)
		case !changed:
			r.log.Info("configuration reloaded: nothing has changed", "file", r.file)
		default:
			dp := &r.current.dp
			r.log.Info("configuration reloaded", "file", r.file, "scheme", dp.Scheme, "classes", len(dp.Classes))
			for _, f := range control.CheckGaps(dp) {
				r.log.Warn(f.Problem, "fix", f.Fix)
			}
		}
	}
}

// load reads the file. Frames are being forwarded, and what the file says may
// be anything: a parser's panic must not end that.
func (r *reloader) load() (n *node, err error) {
	defer func() {
		if p := recover(); p != nil {
			n, err = nil, fmt.Errorf("read %s: panic: %v: this is a bug of the parser; simplify the YAML", r.file, p)
		}
	}()
	return r.kind.load(r.file, nil)
}

// reload reads the file again. Interfaces are not looked for: those that are in
// use may be gone for a moment, and others would need a restart.
func (r *reloader) reload() (changed bool, err error) {
	n, err := r.load()
	if err != nil {
		return false, err
	}
	if keys := config.NeedsRestart(r.current.file, n.file); len(keys) > 0 {
		return false, fmt.Errorf("%s of %s can only change by a restart: restart %s, or take the change back",
			strings.Join(keys, ", "), r.file, r.kind.name)
	}
	if len(config.Diff(r.current.file, n.file)) == 0 {
		return false, nil
	}
	if err := r.plane.SetSchemes(n.dp.Scheme, n.dp.Options, n.dp.Classes); err != nil {
		return false, err
	}
	r.current = n
	r.now.Store(n)
	return true, nil
}
