package xsk

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Counters are the socket's own counters. They only grow.
type Counters struct {
	Kicks      uint64 // system calls to send
	KickAgain  uint64 // of all system calls, answered EAGAIN or EBUSY
	KickErrors uint64 // of all system calls, answered with another error
}

// count classifies the answer to a system call and counts it.
func (c *Counters) count(errno unix.Errno) KickResult {
	switch errno {
	case 0:
		return KickDone
	case unix.EAGAIN, unix.EBUSY, unix.EINTR:
		c.KickAgain++
		return KickAgain
	}
	c.KickErrors++
	switch errno {
	case unix.ENETDOWN:
		return KickDown
	case unix.ENXIO:
		return KickGone
	}
	return KickFailed
}

// Stats holds the kernel's counters of a socket (XDP_STATISTICS), in packets or
// descriptors, and the socket's own.
type Stats struct {
	RXDropped uint64 // dropped because there was no frame, or the packet did not fit one
	// RXInvalid counts invalid descriptors of the receive side. Linux 6.18
	// checks only the RX ring, which it writes itself. An invalid address on the
	// fill ring shows in FillEmpty and RXDropped.
	RXInvalid  uint64
	TXInvalid  uint64 // invalid descriptors on the TX ring
	RXRingFull uint64 // dropped because the RX ring was full
	FillEmpty  uint64 // times a frame was wanted and the fill ring was empty
	TXEmpty    uint64 // times the kernel looked at an empty TX ring
	Counters
}

// Stats asks the kernel for its counters and adds the socket's own. Kernels
// before 5.9 know only the first three and report the others as 0.
func (s *Socket) Stats() (Stats, error) {
	var k unix.XDPStatistics
	if err := getsockopt(s.FD(), unix.XDP_STATISTICS, unsafe.Pointer(&k), unsafe.Sizeof(k)); err != nil {
		return Stats{}, fmt.Errorf("xsk: statistics of %s: %w", s.cfg.label(), err)
	}
	return Stats{
		RXDropped:  k.Rx_dropped,
		RXInvalid:  k.Rx_invalid_descs,
		TXInvalid:  k.Tx_invalid_descs,
		RXRingFull: k.Rx_ring_full,
		FillEmpty:  k.Rx_fill_ring_empty_descs,
		TXEmpty:    k.Tx_ring_empty_descs,
		Counters:   s.counters,
	}, nil
}
