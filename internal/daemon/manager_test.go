package daemon

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/loomfabric/loom/dataplane"
	"github.com/loomfabric/loom/internal/telemetry"
)

// notifySocket is a service manager's end of NOTIFY_SOCKET.
type notifySocket struct {
	t *testing.T
	c *net.UnixConn
}

func newNotifySocket(t *testing.T) *notifySocket {
	t.Helper()
	path := filepath.Join(t.TempDir(), "notify")
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	t.Setenv("NOTIFY_SOCKET", path)
	return &notifySocket{t, c}
}

// next returns the fields of the next message; nil: none came in time.
func (s *notifySocket) next(wait time.Duration) map[string]string {
	s.t.Helper()
	b := make([]byte, 4096)
	if err := s.c.SetReadDeadline(time.Now().Add(wait)); err != nil {
		s.t.Fatal(err)
	}
	n, err := s.c.Read(b)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil
	}
	if err != nil {
		s.t.Fatal(err)
	}
	fields := make(map[string]string)
	for line := range strings.SplitSeq(string(b[:n]), "\n") {
		name, value, ok := strings.Cut(line, "=")
		if !ok {
			s.t.Errorf("%q is no field", line)
		}
		fields[name] = value
	}
	return fields
}

func monotonic(t *testing.T) int64 {
	t.Helper()
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		t.Fatal(err)
	}
	return now.Nano() / 1000
}

// TestReloadProtocol: the service manager is told when a reload begins, by its clock, and
// when it is over; why one was refused stands in the status.
func TestReloadProtocol(t *testing.T) {
	s := newNotifySocket(t)
	r, _ := newReloader(t, Leaf, leafFile)
	r.manager.log = r.log
	ctx, cancel := context.WithCancel(t.Context())
	signals, done := make(chan os.Signal), make(chan struct{})
	go func() { r.run(ctx, signals); close(done) }()
	defer func() { cancel(); <-done }()

	signals <- syscall.SIGHUP
	if m := s.next(50 * time.Millisecond); m != nil {
		t.Fatalf("before the node is ready the manager is told %v", m)
	}
	r.manager.isReady()
	if m := s.next(5 * time.Second); m["READY"] != "1" {
		t.Fatalf("ready: %v", m)
	}
	for _, step := range []struct{ text, status string }{
		{leafFile + "scheme: conga\n", "forwarding"},
		{leafFile + "workers: 2\nring_size: 512\n", "configuration not reloaded: workers, ring_size of "},
		{leafFile + "vtep: none\nscheme: best\n", "configuration not reloaded: "},
		{leafFile + "scheme: conga\n", "forwarding"},
	} {
		r.write(t, step.text)
		before := monotonic(t)
		signals <- syscall.SIGHUP
		m := s.next(5 * time.Second)
		at, err := strconv.ParseInt(m["MONOTONIC_USEC"], 10, 64)
		if m["RELOADING"] != "1" || err != nil || at < before || at > monotonic(t) {
			t.Errorf("a reload begins with %v, at %d", m, before)
		}
		m = s.next(5 * time.Second)
		if refused := strings.Contains(m["STATUS"], "not reloaded"); m["READY"] != "1" || len(m) != 2 ||
			!strings.Contains(m["STATUS"], step.status) || refused != (step.status != "forwarding") {
			t.Errorf("a reload ends with %v, want the status %q", m, step.status)
		}
	}
}

// TestWatchdog: the watchdog is fed while the workers answer, not while one is stuck, and
// again from the stop on, when they drain.
func TestWatchdog(t *testing.T) {
	s := newNotifySocket(t)
	t.Setenv("WATCHDOG_PID", strconv.Itoa(os.Getpid()))
	t.Setenv("WATCHDOG_USEC", "40000")
	m := manager{log: slog.New(slog.DiscardHandler)}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	rounds, stopping, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() { m.watch(ctx, stopping, func() { <-rounds }); close(done) }()
	for range 3 {
		rounds <- struct{}{}
		if got := s.next(5 * time.Second); got["WATCHDOG"] != "1" {
			t.Fatalf("while workers answer: %v", got)
		}
	}
	if got := s.next(100 * time.Millisecond); got != nil {
		t.Fatalf("while a worker is stuck: %v", got)
	}
	close(stopping)
	for range 3 {
		if got := s.next(5 * time.Second); got["WATCHDOG"] != "1" {
			t.Fatalf("while workers drain: %v", got)
		}
	}
	close(rounds)
	cancel()
	<-done
}

// Without a watchdog nobody is asked.
func TestNoWatchdog(t *testing.T) {
	t.Setenv("WATCHDOG_USEC", "")
	m := manager{log: slog.New(slog.DiscardHandler)}
	m.watch(t.Context(), nil, func() { t.Error("the workers are asked") })
}

// TestAnnounce: a node that forwards is started, whatever it lacks besides; what it lacks
// is in the status as long as it lacks it, beside a reload that was refused.
func TestAnnounce(t *testing.T) {
	s := newNotifySocket(t)
	reason := func(name string) telemetry.Readiness {
		return telemetry.Readiness{Reasons: []dataplane.Reason{{Name: name, Detail: "for now"}}}
	}
	var now atomic.Pointer[telemetry.Readiness]
	set := func(r telemetry.Readiness) { now.Store(&r) }
	set(reason(dataplane.ReasonPortClosed))
	var log bytes.Buffer
	m := manager{log: slog.New(slog.NewTextHandler(&log, nil))}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		announce(ctx, func() telemetry.Readiness { return *now.Load() }, &m, time.Now().Add(-3*time.Second))
		close(done)
	}()
	defer func() {
		cancel()
		<-done
		_, took, _ := strings.Cut(log.String(), "msg=ready took=")
		took, _, _ = strings.Cut(took, "\n")
		if d, err := time.ParseDuration(took); err != nil || d < 3*time.Second {
			t.Errorf("three seconds had passed before anybody looked, and the log says %q", took)
		}
	}()

	if got := s.next(4 * startLook); got != nil {
		t.Fatalf("with a port closed the manager is told %v", got)
	}
	set(reason(dataplane.ReasonNoVTEP))
	for _, step := range []struct {
		do     func()
		ready  string
		status string
	}{
		{func() {}, "1", "forwarding; not ready: no_vtep: for now"},
		{func() { set(telemetry.Readiness{Ready: true}) }, "", "forwarding"},
		{func() { set(reason(dataplane.ReasonPortClosed)) }, "", "forwarding; not ready: port_closed: for now"},
		{func() { m.reloaded(errors.New("one\ntwo")) }, "1", "forwarding; not ready: port_closed: for now; configuration not reloaded: one; two"},
		{func() { set(telemetry.Readiness{Ready: true}) }, "", "forwarding; configuration not reloaded: one; two"},
	} {
		step.do()
		if got := s.next(5 * time.Second); got["READY"] != step.ready || got["STATUS"] != step.status {
			t.Errorf("the manager is told %v, want READY %q and the status %q", got, step.ready, step.status)
		}
	}
	if got := s.next(laterLook + 500*time.Millisecond); got != nil {
		t.Errorf("without news the manager is told %v", got)
	}
}
