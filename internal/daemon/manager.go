package daemon

import (
	"context"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	systemd "github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/sys/unix"

	"github.com/loomfabric/loom/dataplane"
)

// manager is the service manager, which is told by sd_notify(3) how the node is. Without
// one nothing is sent.
type manager struct {
	log   *slog.Logger
	ready atomic.Bool // it has been told so

	mu      sync.Mutex
	reasons string // why the node is not ready, as it was told last
	refused string // why the last reload was refused
}

// notify sends a state.
func (m *manager) notify(state ...string) {
	if _, err := systemd.SdNotify(false, strings.Join(state, "\n")); err != nil {
		m.log.Warn("cannot notify the service manager", "socket", os.Getenv("NOTIFY_SOCKET"), "state", state[0], "err", err)
	}
}

// isReady ends the start of the service.
func (m *manager) isReady() {
	m.notify(systemd.SdNotifyReady, m.status())
	m.ready.Store(true)
}

// status is the line that `systemctl status` shows. A line break would begin the next
// field.
func (m *manager) status() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := "STATUS=forwarding"
	if m.reasons != "" {
		s += "; not ready: " + m.reasons
	}
	if m.refused != "" {
		s += "; configuration not reloaded: " + m.refused
	}
	return strings.ReplaceAll(s, "\n", "; ")
}

// readiness tells the manager what has become of the node's readiness since its start.
// It reports whether that is news.
func (m *manager) readiness(reasons []dataplane.Reason) (news bool) {
	words := make([]string, len(reasons))
	for i := range reasons {
		words[i] = reasons[i].String()
	}
	m.mu.Lock()
	before := m.reasons
	m.reasons = strings.Join(words, "; ")
	news = m.reasons != before
	m.mu.Unlock()
	if news && m.ready.Load() {
		m.notify(m.status())
	}
	return news
}

// reloading begins a reload. The manager, which has sent the signal, tells by the time
// that this is the answer to it (systemd.service(5), Type=notify-reload). Before the node
// is ready it is told nothing: what ends a reload would end the start, too.
func (m *manager) reloading() {
	if !m.ready.Load() {
		return
	}
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		m.log.Warn("cannot tell the service manager of a reload: read the clock", "err", err)
		return
	}
	m.notify(systemd.SdNotifyReloading, "MONOTONIC_USEC="+strconv.FormatInt(t.Nano()/1000, 10))
}

// reloaded ends a reload. The protocol has no word for one that was refused, after which
// the service is ready as before: the status says it.
func (m *manager) reloaded(err error) {
	m.mu.Lock()
	m.refused = ""
	if err != nil {
		m.refused = err.Error()
	}
	m.mu.Unlock()
	if m.ready.Load() {
		m.notify(systemd.SdNotifyReady, m.status())
	}
}

// watch feeds the manager's watchdog, if it has one, while workers return: they do so when
// each worker has come to its next round. From stopping on, workers drain and answer
// nobody; how long that takes has a limit of its own.
func (m *manager) watch(ctx context.Context, stopping <-chan struct{}, workers func()) {
	timeout, err := systemd.SdWatchdogEnabled(false)
	if err != nil {
		m.log.Warn("no watchdog", "WATCHDOG_USEC", os.Getenv("WATCHDOG_USEC"), "err", err)
	}
	if err != nil || timeout == 0 {
		return
	}
	tick := time.NewTicker(timeout / 4)
	defer tick.Stop()
	for {
		answered := make(chan struct{})
		go func(ask func()) {
			ask()
			close(answered)
		}(workers)
		select {
		case <-answered:
		case <-stopping:
			workers = func() {}
		case <-ctx.Done():
			return
		}
		m.notify(systemd.SdNotifyWatchdog)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}
