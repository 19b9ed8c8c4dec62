package bridge

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

// event is something that the kernel has said.
type event struct {
	kind    uint16 // RTM_*; 0: events were lost, all those before this one are older
	entry   Entry  // of RTM_NEWNEIGH and RTM_DELNEIGH
	payload []byte // of others
}

// queueLimit is how many events wait at most. Beyond it they count as lost.
const queueLimit = 1 << 20

// reader reads events as fast as they come, so that the kernel's buffer does not overflow
// while somebody else works on them.
type reader struct {
	s      *socket
	buffer int // the kernel's, in bytes

	mu     sync.Mutex
	queue  []event
	wake   chan struct{}
	closed bool // by close

	fence int // run's: bytes after which all that came before a loss has been read; 0: there was none
}

// groups are the groups of events that concern bridging.
var groups = []int{unix.RTNLGRP_LINK, unix.RTNLGRP_NEIGH, unix.RTNLGRP_TC, unix.RTNLGRP_NEXTHOP, unix.RTNLGRP_BRVLAN, unix.RTNLGRP_TUNNEL}

// openReader subscribes to events. The kernel keeps them in a buffer of some bytes.
func openReader(buffer int) (*reader, error) {
	var subscribed []int
	s, err := openSocket(unix.NETLINK_ROUTE, groups...)
	if err != nil { // a kernel before 5.18 has no group for tunnels
		subscribed = groups[:len(groups)-1]
		if s, err = openSocket(unix.NETLINK_ROUTE, subscribed...); err != nil {
			return nil, err
		}
	}
	if err := errors.Join(s.setBuffer(buffer), s.onlyBridges()); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return &reader{s: s, buffer: buffer, wake: make(chan struct{}, 1)}, nil
}

func (r *reader) close() error {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	return r.s.close()
}

// run reads until the socket is closed.
func (r *reader) run() error {
	for {
		n, err := r.s.receive(r.drained)
		r.mu.Lock()
		closed := r.closed
		r.mu.Unlock()
		switch {
		case closed || errors.Is(err, os.ErrClosed):
			return nil
		case errors.Is(err, unix.ENOBUFS):
			r.lost()
			continue
		case err != nil:
			return fmt.Errorf("read the kernel's events: %w", err)
		}
		r.take(r.s.buf[:n])
	}
}

// lost notes that events were lost. The kernel gives none any more until what is in the
// buffer has been read: that is older than what was lost, and has to be taken before
// anything is listed. So the loss is put into the queue behind it.
func (r *reader) lost() { r.fence = 2 * r.buffer } // the kernel doubles what it is asked for

// take puts the events of b into the queue.
func (r *reader) take(b []byte) {
	r.mu.Lock()
	if len(r.queue) >= queueLimit {
		r.queue = append(r.queue[:0], event{})
	}
	messages(b, func(kind, _ uint16, _ uint32, payload []byte) bool {
		switch kind {
		case unix.RTM_NEWNEIGH, unix.RTM_DELNEIGH:
			if e, ok := parseEntry(payload); ok {
				r.queue = append(r.queue, event{kind: kind, entry: e})
			}
		default:
			r.queue = append(r.queue, event{kind: kind, payload: slices.Clone(payload)})
		}
		return true
	})
	r.mu.Unlock()
	r.signal()
	if r.fence > 0 {
		if r.fence = max(r.fence-len(b), 1); r.fence == 1 {
			r.drained()
		}
	}
}

// drained is called when all that came before a loss is in the queue, if there was one.
func (r *reader) drained() {
	if r.fence == 0 {
		return
	}
	r.fence = 0
	r.mu.Lock()
	r.queue = append(r.queue, event{})
	r.mu.Unlock()
	r.signal()
}

func (r *reader) signal() {
	select {
	case r.wake <- struct{}{}:
	default: // one that is waiting covers this one
	}
}

// keep is how many events the room is kept for.
const keep = 1 << 16

// get returns the events that have come since the last call, in their order. It takes
// back, for later, the slice that it returned before.
func (r *reader) get(old []event) []event {
	if cap(old) > keep {
		old = nil
	}
	clear(old)
	r.mu.Lock()
	defer r.mu.Unlock()
	q := r.queue
	r.queue = old[:0]
	return q
}
