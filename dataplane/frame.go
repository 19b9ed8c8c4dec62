package dataplane

import (
	"github.com/loomfabric/loom/dataplane/xsk"
	"github.com/loomfabric/loom/overlay"
)

// frame is a worker's handle on one UMEM frame while it is between an RX ring
// and a TX ring. Exactly one handle exists for a frame: it is in the vector
// being processed, in one queue, or gone.
type frame struct {
	off   uint32 // first byte, as an offset into the UMEM area
	len   uint16
	in    PortID // port it came in by; its drops are charged there
	hash  uint32 // flow hash
	flags uint16 // overlay.FlagIPv4 or FlagIPv6 of the IP header at l3
	l3    uint8  // offset of the outermost IP header; 0: none
	kind  uint8  // kind... bits, and on its way into the fabric the class
}

// maxArea is the largest UMEM that frame.off can point into.
const maxArea = 1 << 32

// Bits of frame.kind.
const (
	kindControl = 1 << iota // belongs in the control queue
	kindCapable             // a VXLAN header with the fabric's fields lies at vxlanAt(flags)
	kindFlood               // flooded: yields to others where there is little room
	kindClass   = 4         // from this bit on: traffic class, 0 to leaf.MaxClasses-1
)

// vxlanAt returns where a frame has its VXLAN header when the outer IP header, of the
// family in flags, has no options.
func vxlanAt(flags uint16) uint32 { return uint32(overlay.Headers(flags) - overlay.VXLANLen) }

// desc is the frame as a ring knows it.
func (f *frame) desc() xsk.Desc { return xsk.Desc{Addr: uint64(f.off), Len: uint32(f.len)} }

// fifo is a bounded queue of frames in a ring. Owned by one worker.
type fifo struct {
	buf        []frame // power of two
	head, tail uint32  // free-running; tail-head frames are queued
	bytes      uint64
}

func newFIFO(size int) fifo { return fifo{buf: make([]frame, size)} }

func (q *fifo) len() int { return int(q.tail - q.head) }

func (q *fifo) full() bool { return int(q.tail-q.head) == len(q.buf) }

// push appends f; the caller has checked full.
func (q *fifo) push(f *frame) {
	// Field by field: f was just written that way, and one wide load would
	// have to wait for all those stores.
	s := &q.buf[q.tail&uint32(len(q.buf)-1)]
	s.off, s.len, s.in, s.hash = f.off, f.len, f.in, f.hash
	s.flags, s.l3, s.kind = f.flags, f.l3, f.kind
	q.tail++
	q.bytes += uint64(f.len)
}

// front returns the oldest frame; the caller has checked len.
func (q *fifo) front() *frame { return &q.buf[q.head&uint32(len(q.buf)-1)] }

// pop removes the oldest frame; the caller has checked len.
func (q *fifo) pop() {
	q.bytes -= uint64(q.front().len)
	q.head++
}
