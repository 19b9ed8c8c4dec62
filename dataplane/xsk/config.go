package xsk

import (
	"fmt"
	"time"
)

// CopyMode is the way that frames take between the driver and the area.
type CopyMode uint8

// The copy modes.
const (
	CopyAuto  CopyMode = iota // zero-copy, or copy if the driver refuses
	ForceZero                 // zero-copy, or fail
	ForceCopy                 // copy
)

// String returns the mode's name.
func (m CopyMode) String() string {
	switch m {
	case CopyAuto:
		return "auto"
	case ForceZero:
		return "zero-copy"
	case ForceCopy:
		return "copy"
	}
	return fmt.Sprintf("CopyMode(%d)", uint8(m))
}

// DefaultRetry is how long Open retries a busy queue by default. A queue stays busy
// for 10 to 15 ms after its owner has exited.
const DefaultRetry = time.Second

// ReleaseTime is how long a zero-copy driver may still write to the frames of a
// socket after it was closed: the kernel takes the queue from the driver in
// deferred work, in the same 10 to 15 ms for which the queue answers EBUSY.
const ReleaseTime = 50 * time.Millisecond

// maxRing bounds ring sizes: 2^20 entries of 16 bytes are 16 MiB a ring.
const maxRing = 1 << 20

// SocketConfig describes a socket: its queue and its rings.
type SocketConfig struct {
	Ifindex int    // interface, in the calling thread's network namespace
	Name    string // its name, for error messages
	Queue   int    // RX and TX queue, from 0

	// Entries of the rings, each a power of two.
	RX, TX, Fill, Completion int

	CopyMode CopyMode
	// Generic is set when the XDP program is attached in generic (skb) mode. Only
	// copies work there, and CopyAuto does not try zero-copy.
	Generic bool
	// Retry is how long to retry while the queue is busy. 0 means DefaultRetry;
	// Open does not retry if it is negative.
	Retry time.Duration
}

// Validate reports the name of the first field that makes no sense.
func (c SocketConfig) Validate() error {
	if c.Ifindex <= 0 {
		return fmt.Errorf("xsk: SocketConfig.Ifindex is %d: the index of an interface is positive", c.Ifindex)
	}
	if c.Queue < 0 || c.Queue > maxQueue {
		return fmt.Errorf("xsk: SocketConfig.Queue is %d: queues are numbered from 0 to at most %d", c.Queue, maxQueue)
	}
	for _, r := range []struct {
		field string
		size  int
	}{{"RX", c.RX}, {"TX", c.TX}, {"Fill", c.Fill}, {"Completion", c.Completion}} {
		if r.size <= 0 || r.size > maxRing || r.size&(r.size-1) != 0 {
			return fmt.Errorf("xsk: SocketConfig.%s is %d: the size of a ring is a power of two, at most %d", r.field, r.size, maxRing)
		}
	}
	switch {
	case c.CopyMode > ForceCopy:
		return fmt.Errorf("xsk: SocketConfig.CopyMode is %d: use CopyAuto, ForceZero or ForceCopy", c.CopyMode)
	case c.CopyMode == ForceZero && c.Generic:
		return fmt.Errorf("xsk: SocketConfig.CopyMode is zero-copy, which generic XDP (SocketConfig.Generic) cannot do: use native XDP or copy mode")
	}
	return nil
}

// maxQueue is the largest queue number that fits the kernel's XDP receive queue
// information; no device has that many.
const maxQueue = 1<<16 - 1

// label names the queue in errors: "eth0 (ifindex 3) queue 0".
func (c *SocketConfig) label() string {
	name := c.Name
	if name == "" {
		name = "interface"
	}
	return fmt.Sprintf("%s (ifindex %d) queue %d", name, c.Ifindex, c.Queue)
}
