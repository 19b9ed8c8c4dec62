package xsk

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Desc is a packet in the area, laid out as the kernel's struct xdp_desc.
type Desc struct {
	Addr    uint64 // of the first byte, offset into the area
	Len     uint32 // bytes
	Options uint32 // 0
}

// KickResult says what the kernel answered to a system call on a ring. None of
// the answers is fatal; those that are errors are counted in [Counters].
type KickResult uint8

// The results of a kick.
const (
	KickIdle      KickResult = iota // no system call was needed
	KickDone                        // the kernel did what it could
	KickAgain                       // the kernel wants to be asked again, later: EAGAIN, EBUSY
	KickNoBuffers                   // the kernel has no memory for it now: ENOBUFS, ENOMEM
	KickDown                        // the interface is down; frames wait on the ring: ENETDOWN
	KickGone                        // the interface does not exist any more; reopen: ENXIO
	KickFailed                      // something else
)

// String names the result.
func (r KickResult) String() string {
	switch r {
	case KickIdle:
		return "idle"
	case KickDone:
		return "done"
	case KickAgain:
		return "again"
	case KickNoBuffers:
		return "no buffers"
	case KickDown:
		return "interface down"
	case KickGone:
		return "interface gone"
	}
	return "failed"
}

// Socket is one AF_XDP socket: one queue of one interface, with its RX, TX,
// fill and completion rings.
//
// Owned by one worker; not safe for concurrent use.
type Socket struct {
	rx         consumerRing[Desc]
	tx         producerRing[Desc]
	fill       producerRing[uint64]
	completion consumerRing[uint64]

	fd         uintptr
	pending    int // transmitted and not yet completed
	kickLimit  int // most system calls of one Kick
	zeroCopy   bool
	needWakeup bool
	counters   Counters

	umem   *Umem
	cfg    SocketConfig
	maps   [4][]byte
	closed bool
}

// FD returns the socket's descriptor, for poll(2) and for the XSKMAP.
func (s *Socket) FD() int { return int(s.fd) }

// ZeroCopy reports whether the driver moves frames without a copy.
func (s *Socket) ZeroCopy() bool { return s.zeroCopy }

// Receive takes up to len(d) received packets off the RX ring and returns how
// many there were. The frames are the caller's from then on.
func (s *Socket) Receive(d []Desc) int { return s.rx.consume(d) }

// Transmit puts packets on the TX ring and returns how many fit; the others
// stay the caller's. The kernel may start on them at once, or wait for Kick.
func (s *Socket) Transmit(d []Desc) int {
	n := s.tx.produce(d)
	s.pending += n
	if n < len(d) {
		s.counters.TXFull++
	}
	return n
}

// TXFree returns how many packets Transmit would take.
func (s *Socket) TXFree() int { return int(s.tx.free()) }

// TXQueued returns how many packets lie on the TX ring that the kernel has not
// taken yet.
func (s *Socket) TXQueued() int { return int(s.tx.size() - s.tx.free()) }

// TXPending returns how many transmitted frames have not come back by Complete.
func (s *Socket) TXPending() int { return s.pending }

// Fill gives the kernel frames to receive into, and returns how many fit.
func (s *Socket) Fill(addrs []uint64) int { return s.fill.produce(addrs) }

// FillFree returns how many frames Fill would take.
func (s *Socket) FillFree() int { return int(s.fill.free()) }

// Complete takes back up to len(addrs) transmitted frames and returns how many
// there were. In copy mode the kernel stops sending while the completion ring
// is full.
func (s *Socket) Complete(addrs []uint64) int {
	n := s.completion.consume(addrs)
	s.pending -= n
	return n
}

// NeedsTXWakeup reports whether packets on the TX ring wait for Kick.
func (s *Socket) NeedsTXWakeup() bool {
	return (!s.needWakeup || s.tx.needWakeup()) && (s.zeroCopy || s.tx.free() < s.tx.size())
}

// NeedsRXWakeup reports whether the kernel waits for WakeRX before it goes on
// with the fill ring.
func (s *Socket) NeedsRXWakeup() bool { return s.needWakeup && s.fill.needWakeup() }

// fruitlessKicks is how often Kick repeats a system call that took no frame off
// the TX ring.
const fruitlessKicks = 2

// Kick makes the kernel send what is on the TX ring, if it needs to be told. In
// copy mode a system call sends a limited number of frames and stops at
// an invalid descriptor; Kick repeats it while the ring gets shorter, within a
// bound. After KickAgain, or when TXQueued says that packets are left (the
// completion ring is full), complete frames and kick again in the next round.
func (s *Socket) Kick() KickResult {
	if !s.NeedsTXWakeup() {
		return KickIdle
	}
	room, fruitless := s.tx.free(), 0
	for range s.kickLimit {
		s.counters.Kicks++
		_, _, errno := unix.Syscall6(unix.SYS_SENDTO, s.fd, 0, 0, unix.MSG_DONTWAIT, 0, 0)
		result := s.counters.count(errno)
		if result > KickAgain || result == KickDone && s.zeroCopy {
			return result
		}
		free := s.tx.free()
		switch {
		case free != room:
			room, fruitless = free, 0
		case result == KickDone:
			return KickDone
		default:
			if fruitless++; fruitless > fruitlessKicks {
				return KickAgain
			}
		}
		if free == s.tx.size() {
			return KickDone
		}
	}
	return KickAgain
}

// WakeRX makes the kernel look at the fill ring, if it asked for that.
func (s *Socket) WakeRX() KickResult {
	if !s.NeedsRXWakeup() {
		return KickIdle
	}
	s.counters.RXWakeups++
	return s.counters.count(s.poke())
}

// poke is a receive call that moves nothing. ENXIO says that the socket is not
// bound to an interface any more.
func (s *Socket) poke() unix.Errno {
	_, _, errno := unix.Syscall6(unix.SYS_RECVFROM, s.fd, 0, 0, unix.MSG_DONTWAIT, 0, 0)
	return errno
}

// Close closes the socket and unmaps its rings. The frames that were on them
// are the caller's again: see [Pool.Reclaim], and [ReleaseTime] in zero-copy
// mode. The queue stays busy for some milliseconds. Closing twice is harmless.
func (s *Socket) Close() error {
	if s.closed {
		return nil
	}
	s.closed = true
	s.umem.mu.Lock()
	s.umem.forget(s)
	s.umem.inUse--
	s.umem.mu.Unlock()
	if err := s.release(); err != nil {
		return fmt.Errorf("xsk: close %s: %w", s.cfg.label(), err)
	}
	return nil
}

// release gives back whatever the socket has: it also clears up after an Open
// that failed half way.
func (s *Socket) release() error {
	var errs []error
	// The rings point into what is about to be unmapped: a stray call must
	// panic instead of touching what may be mapped there next.
	s.rx, s.tx = consumerRing[Desc]{}, producerRing[Desc]{}
	s.fill, s.completion = producerRing[uint64]{}, consumerRing[uint64]{}
	for i, m := range s.maps {
		if m == nil {
			continue
		}
		if err := unix.Munmap(m); err != nil {
			errs = append(errs, fmt.Errorf("unmap %s ring: %w", ringNames[i], err))
		}
		s.maps[i] = nil
	}
	if fd := s.FD(); fd >= 0 {
		s.fd = ^uintptr(0)
		if err := unix.Close(fd); err != nil {
			errs = append(errs, fmt.Errorf("close descriptor %d: %w", fd, err))
		}
	}
	return errors.Join(errs...)
}

// The layouts that are shared with the kernel.
var (
	_ [16]byte = [unsafe.Sizeof(Desc{})]byte{}
	_ [32]byte = [unsafe.Sizeof(unix.XDPUmemReg{})]byte{}
)
