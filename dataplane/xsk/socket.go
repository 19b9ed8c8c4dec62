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
	Options uint32 // 0, or More
}

// More marks a descriptor behind which the next one is of the same packet (XDP_PKT_CONTD).
const More = unix.XDP_PKT_CONTD

// KickResult is the kernel's answer to a system call on a ring. No answer is fatal: what
// is on the ring waits there. [Counters] counts the errors.
type KickResult uint8

// The results of a kick.
const (
	KickIdle   KickResult = iota // no system call was needed
	KickDone                     // the call succeeded
	KickAgain                    // call again later: EAGAIN, EBUSY
	KickDown                     // the interface is down: ENETDOWN
	KickGone                     // the interface does not exist any more; reopen: ENXIO
	KickFailed                   // something else, as no memory for it now: ENOBUFS, ENOMEM
)

// Socket is one AF_XDP socket: one queue of one interface, with its RX, TX,
// fill and completion rings.
//
// A socket is owned by one worker; it is not safe for concurrent use.
type Socket struct {
	rx         consumerRing[Desc]
	tx         producerRing[Desc]
	fill       producerRing[uint64]
	completion consumerRing[uint64]

	fd         uintptr
	pending    int // transmitted and not yet completed
	kickLimit  int // most system calls of one Kick
	budget     int // frames that one of them sends in copy mode
	zeroCopy   bool
	refusal    error
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

// Refusal says why the driver does not do zero-copy although [CopyAuto] tried it; nil: it
// does, or was not asked.
func (s *Socket) Refusal() error { return s.refusal }

// Receive takes up to len(d) descriptors off the RX ring and returns their number. The
// caller owns the frames then. All descriptors of a packet are on the ring at once.
func (s *Socket) Receive(d []Desc) int { return s.rx.consume(d) }

// Transmit puts descriptors on the TX ring and returns how many fit. The caller keeps
// the others; half a packet must not be among them. The kernel may start at once, or wait
// for Kick. Each descriptor is completed by its address.
func (s *Socket) Transmit(d []Desc) int {
	n := s.tx.produce(d)
	s.pending += n
	return n
}

// TXFree returns the number of free slots on the TX ring.
func (s *Socket) TXFree() int { return int(s.tx.free()) }

// TXQueued returns the number of packets on the TX ring that the kernel has not
// taken yet.
func (s *Socket) TXQueued() int { return int(s.tx.size() - s.tx.free()) }

// TXPending returns the number of transmitted frames that Complete has not returned.
func (s *Socket) TXPending() int { return s.pending }

// Fill gives the kernel frames to receive into, and returns how many fit.
func (s *Socket) Fill(addrs []uint64) int { return s.fill.produce(addrs) }

// FillFree returns the number of free slots on the fill ring.
func (s *Socket) FillFree() int { return int(s.fill.free()) }

// Complete takes back up to len(addrs) transmitted frames and returns their number.
// In copy mode the kernel stops sending while the completion ring is full.
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

// fruitlessKicks bounds how often Kick repeats a system call that took no frame off
// the TX ring.
const fruitlessKicks = 2

// Kick makes the kernel send the packets on the TX ring, if it needs a wake-up. In
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

// WakeRX makes the kernel look at the fill ring, if it needs a wake-up.
func (s *Socket) WakeRX() KickResult {
	if !s.NeedsRXWakeup() {
		return KickIdle
	}
	return s.counters.count(s.poke())
}

// poke makes a receive call that moves no data. It returns ENXIO if the socket is no
// longer bound to an interface.
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

// release unmaps the rings and closes the descriptor, also of a socket that is only
// half open.
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
			errs = append(errs, fmt.Errorf("unmap %s ring: %w", rings[i].name, err))
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
