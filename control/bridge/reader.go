package bridge

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/loomfabric/loom/internal/rtnl"
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
	s      *rtnl.Socket
	buffer int // the kernel's, in bytes

	mu    sync.Mutex
	queue []event
	wake  chan struct{}

	fence int // run's: bytes after which all that came before a loss has been read; 0: there was none
}

// groups are the groups of events that concern bridging.
var groups = []int{unix.RTNLGRP_LINK, unix.RTNLGRP_NEIGH, unix.RTNLGRP_TC, unix.RTNLGRP_BRVLAN, unix.RTNLGRP_TUNNEL}

// openReader subscribes to events. The kernel keeps them in a buffer of some bytes.
func openReader(buffer int) (*reader, error) {
	var subscribed []int
	s, err := rtnl.Open(unix.NETLINK_ROUTE, groups...)
	if err != nil { // a kernel before 5.18 has no group for tunnels
		subscribed = groups[:len(groups)-1]
		if s, err = rtnl.Open(unix.NETLINK_ROUTE, subscribed...); err != nil {
			return nil, err
		}
	}
	if err := errors.Join(s.SetBuffer(buffer), s.SetFilter(onlyBridges())); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return &reader{s: s, buffer: buffer, wake: make(chan struct{}, 1)}, nil
}

// onlyBridges is a filter of events. It leaves out those of neighbours that are not about
// forwarding entries: of ARP's there may be many.
func onlyBridges() []unix.SockFilter {
	// The filter sees the message. Words are read as big-endian, so single bytes are.
	low, high := uint32(4), uint32(5) // nlmsg_type
	if binary.NativeEndian.Uint16([]byte{0, 1}) == 1 {
		low, high = high, low
	}
	const load, equal, less, give = unix.BPF_LD | unix.BPF_B | unix.BPF_ABS, unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K, unix.BPF_RET | unix.BPF_K
	return []unix.SockFilter{
		{Code: load, K: high},
		{Code: equal, Jt: 0, Jf: 5, K: 0},
		{Code: load, K: low},
		{Code: less, Jt: 0, Jf: 3, K: unix.RTM_NEWNEIGH},
		{Code: less, Jt: 2, Jf: 0, K: unix.RTM_GETNEIGH},
		{Code: load, K: unix.SizeofNlMsghdr}, // ndm_family
		{Code: equal, Jt: 0, Jf: 1, K: unix.AF_BRIDGE},
		{Code: give, K: 1 << 30},
		{Code: give, K: 0},
	}
}

func (r *reader) close() error { return r.s.Close() }

// run reads until the socket is closed.
func (r *reader) run() error {
	for {
		b, err := r.s.Receive(r.drained)
		switch {
		case errors.Is(err, os.ErrClosed):
			return nil
		case errors.Is(err, unix.ENOBUFS):
			r.lost()
			continue
		case err != nil:
			return fmt.Errorf("read the kernel's events: %w", err)
		}
		r.take(b)
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
	for m := range rtnl.Messages(b) {
		switch m.Kind {
		case unix.RTM_NEWNEIGH, unix.RTM_DELNEIGH:
			if e, ok := parseEntry(m.Payload); ok {
				r.queue = append(r.queue, event{kind: m.Kind, entry: e})
			}
		default:
			r.queue = append(r.queue, event{kind: m.Kind, payload: slices.Clone(m.Payload)})
		}
	}
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
