package daemon

import (
	"context"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/loomfabric/loom/control"
	"github.com/loomfabric/loom/dataplane"
)

// recheck is how often interfaces are checked again.
const recheck = 5 * time.Second

// watcher repeats the start-up checks of interfaces while the node runs: ports appear,
// and get addresses, other MTUs and other queues.
type watcher struct {
	node   func() *node // as configured now
	gather func(*dataplane.Config) (*control.Facts, error)
	log    *slog.Logger
	start  []control.Finding // logged at the start
	shown  atomic.Pointer[[]control.Finding]
	failed bool // the last look
}

// newWatcher returns a watcher that does not log again what the start found.
func newWatcher(node func() *node, start []control.Finding, log *slog.Logger) *watcher {
	return &watcher{node: node, gather: control.GatherPorts, start: start, log: log}
}

// findings returns what is wrong now. Any goroutine may call it.
func (w *watcher) findings() []control.Finding {
	if f := w.shown.Load(); f != nil {
		return *f
	}
	return nil
}

// run checks until ctx ends.
func (w *watcher) run(ctx context.Context) {
	tick := time.NewTicker(recheck)
	defer tick.Stop()
	for {
		w.look()
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// look checks once and logs what has changed.
func (w *watcher) look() {
	n := w.node()
	facts, err := w.gather(&n.dp)
	if err != nil {
		if !w.failed {
			w.log.Warn("cannot check the interfaces again; trying again", "err", err, "every", recheck)
		}
		w.failed = true
		return
	}
	w.failed = false
	old, now := w.findings(), control.CheckPorts(&n.dp, n.overlay(), facts)
	if n.model != nil {
		now = append(now, leftFindings(n.model)...)
	}
	w.shown.Store(&now)
	for _, f := range now {
		if slices.Contains(old, f) || slices.Contains(w.start, f) {
			continue
		}
		level := slog.LevelWarn
		if f.Fatal {
			level = slog.LevelError
		}
		w.log.Log(context.Background(), level, f.Problem, "fix", f.Fix)
	}
	w.start = nil
	for _, f := range old {
		if !slices.Contains(now, f) {
			w.log.Info("no longer so: "+f.Problem, "about", f.Place)
		}
	}
}
