package dataplane

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/loomfabric/loom/internal/drop"
	"github.com/loomfabric/loom/internal/mono"
)

const (
	// backlogWait is how long a worker sleeps when a TX ring or the kernel had
	// no room: nothing tells when there is some again.
	backlogWait = 50 * time.Microsecond
	maxSleep    = 100 * time.Millisecond
)

// run is the life of a worker: rounds until ctx ends, then the drain.
func (w *worker) run(ctx context.Context) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := w.settle(); err != nil {
		return err
	}
	w.begin()
	defer w.end()
	stop := context.AfterFunc(ctx, w.mail.nudge)
	defer stop()

	fds := make([]unix.PollFd, 0, len(w.ports)+1)
	lastFrame := now()
	for ctx.Err() == nil && !w.handed.Load() {
		t := now()
		if w.round(t) > 0 {
			lastFrame = t
			continue
		}
		switch w.cfg.Polling {
		case Busy:
		case Adaptive:
			if t.Sub(lastFrame) >= w.cfg.SpinFor {
				fds = w.sleep(fds, t)
			}
		case Interrupt:
			fds = w.sleep(fds, t)
		}
	}
	if !w.handed.Load() {
		w.drain()
	}
	return nil
}

// settle prepares the worker's thread: its core, and timers that are not
// rounded to 50 µs.
func (w *worker) settle() error {
	if w.id < len(w.cfg.Cores) {
		var set unix.CPUSet
		set.Set(w.cfg.Cores[w.id])
		if err := unix.SchedSetaffinity(0, &set); err != nil {
			return fmt.Errorf("worker %d: run on core %d: %w (check `cores` against `nproc`)", w.id, w.cfg.Cores[w.id], err)
		}
	}
	if err := unix.Prctl(unix.PR_SET_TIMERSLACK, 1000, 0, 0, 0); err != nil {
		return fmt.Errorf("worker %d: set timer slack: %w", w.id, err)
	}
	return nil
}

// sleep waits for a frame, a call, or the next deadline.
func (w *worker) sleep(fds []unix.PollFd, t mono.Time) []unix.PollFd {
	deadline, backlog := w.nextDeadline(t)
	wait := min(maxSleep, deadline.Sub(t))
	if backlog {
		wait = min(wait, backlogWait)
	}
	if wait <= 0 {
		return fds
	}
	fds = append(fds[:0], unix.PollFd{Fd: int32(w.mail.wake), Events: unix.POLLIN})
	for _, p := range w.open {
		fds = append(fds, unix.PollFd{Fd: int32(p.link.FD()), Events: unix.POLLIN})
	}
	ts := unix.NsecToTimespec(int64(wait))
	w.sleeps++
	// EINTR ends the sleep early, which is always allowed; any other error
	// would repeat at once, and the next round finds out what it is.
	_, _ = unix.Ppoll(fds, &ts, nil)
	if fds[0].Revents != 0 {
		w.mail.slept()
	}
	return fds
}

// drain forwards what its sockets have received until they were taken away (Node.yield),
// and sends what is queued until the time allowed for it is over.
func (w *worker) drain() {
	end := now().Add(w.cfg.Drain)
	for t := now(); t < end && w.view != nil; t = now() {
		if got, _ := w.receive(t); got == 0 {
			break
		}
		w.output(t, false)
	}
	if w.leaf != nil {
		w.leaf.flush(now())
	}
	for w.held() > 0 || w.unsent() {
		t := now()
		if t >= end {
			break
		}
		w.output(t, true)
		w.holds.expire(w, t)
		if d, backlog := w.sendDeadline(t); backlog || d > t {
			time.Sleep(min(backlogWait, max(0, d.Sub(t))))
		}
	}
	for i := range w.ports {
		w.ports[i].egress.flush(func(f *frame) { w.discard(f, drop.Shutdown) })
	}
	w.holds.visit(w, func(HopID, *heldFrame) (drop.Reason, bool) { return drop.Shutdown, true })
}

// unsent reports whether a TX ring holds frames that the kernel has not taken.
func (w *worker) unsent() bool {
	return slices.ContainsFunc(w.open, func(p *port) bool { return p.unkicked > 0 })
}
