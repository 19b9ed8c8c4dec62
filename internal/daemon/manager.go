package daemon

import (
	"context"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	systemd "github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/sys/unix"
)

// manager is the service manager, which is told by sd_notify(3) how the node is. Without
// one nothing is sent.
type manager struct {
	log   *slog.Logger
	ready atomic.Bool // it has been told so
}

// notify sends a state.
func (m *manager) notify(state ...string) {
	if _, err := systemd.SdNotify(false, strings.Join(state, "\n")); err != nil {
		m.log.Warn("cannot notify the service manager", "socket", os.Getenv("NOTIFY_SOCKET"), "state", state[0], "err", err)
	}
}

// isReady ends the start of the service.
func (m *manager) isReady() {
	m.notify(systemd.SdNotifyReady, "STATUS=forwarding")
	m.ready.Store(true)
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
	if !m.ready.Load() {
		return
	}
	status := "forwarding"
	if err != nil { // a line break would begin the next field
		status = "forwarding; configuration not reloaded: " + strings.ReplaceAll(err.Error(), "\n", "; ")
	}
	m.notify(systemd.SdNotifyReady, "STATUS="+status)
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
