package dataplane

import (
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// mailbox lets others run a function on a worker's thread, between two bursts:
// how links come and go and how counters are read without a lock on the path
// of a packet.
type mailbox struct {
	box     chan func()
	waiting atomic.Bool // there is a function in box
	wake    int         // eventfd that ends a sleep; -1: none
	// nudging keeps close away from a nudge under way. Nobody waits for the
	// nudge with which a context ends; without the lock it could write to
	// whatever has got the descriptor's number since.
	nudging sync.Mutex
}

func (m *mailbox) init() {
	m.box = make(chan func(), 1)
	m.wake = -1
}

// open gives the mailbox the means to wake a sleeping worker.
func (m *mailbox) open() error {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return fmt.Errorf("eventfd for a worker: %w", err)
	}
	m.wake = fd
	return nil
}

func (m *mailbox) close() {
	m.nudging.Lock()
	defer m.nudging.Unlock()
	if m.wake >= 0 {
		_ = unix.Close(m.wake) // an eventfd has nothing to lose
		m.wake = -1
	}
}

// nudge ends the worker's sleep.
func (m *mailbox) nudge() {
	m.nudging.Lock()
	defer m.nudging.Unlock()
	if m.wake < 0 {
		return
	}
	var one [8]byte
	binary.NativeEndian.PutUint64(one[:], 1)
	_, _ = unix.Write(m.wake, one[:]) // EAGAIN: it is awake already
}

// read runs what has come in. Called by the worker.
func (m *mailbox) read() {
	if m.waiting.Load() && m.waiting.CompareAndSwap(true, false) {
		(<-m.box)()
	}
}

// slept empties the eventfd.
func (m *mailbox) slept() {
	var n [8]byte
	_, _ = unix.Read(m.wake, n[:]) // EAGAIN: something else ended the sleep
}

// call runs f on the worker's thread and waits for it. While the worker does
// not run, f runs here instead: nobody else is there.
func (w *worker) call(f func()) {
	w.callers.Lock() // one call at a time: box never blocks
	defer w.callers.Unlock()
	w.life.Lock()
	if !w.running {
		defer w.life.Unlock()
		f()
		return
	}
	done := make(chan struct{})
	w.mail.box <- func() { f(); close(done) }
	w.mail.waiting.Store(true)
	w.life.Unlock()
	w.mail.nudge()
	<-done
}

// begin and end bracket the time in which call must go through the mailbox.
func (w *worker) begin() {
	w.life.Lock()
	w.running = true
	w.life.Unlock()
}

func (w *worker) end() {
	w.life.Lock()
	w.running = false
	w.life.Unlock()
	w.mail.read() // a call that came just before
}
