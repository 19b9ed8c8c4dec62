package dataplane

import (
	"encoding/binary"
	"sync/atomic"
	"time"

	"github.com/loomfabric/loom/internal/capture"
	"github.com/loomfabric/loom/internal/drop"
	"github.com/loomfabric/loom/internal/mono"
)

// tapRing carries records from a worker to the reader of a capture: one writer, one
// reader, neither of which ever waits. A record is in one piece: what is left at the end of
// the memory is skipped.
type tapRing struct {
	head atomic.Uint64 // next to read; written by the reader
	_    [56]byte
	tail atomic.Uint64 // next to write; written by the writer
	_    [56]byte
	next uint64 // tail, once the reserved record is written; the writer's
	buf  []byte // a power of two
}

// tapSkip in place of a record's length says that the next one is at the start.
const tapSkip = ^uint32(0)

// reserve returns room for a record of n bytes; nil: there is none.
func (r *tapRing) reserve(n int) []byte {
	size := uint64(n+7) &^ 7
	tail, end := r.tail.Load(), uint64(len(r.buf))
	at := tail & (end - 1)
	skip := uint64(0)
	if at+size > end {
		skip = end - at
	}
	if tail+skip+size-r.head.Load() > end {
		return nil
	}
	if skip > 0 {
		binary.LittleEndian.PutUint32(r.buf[at:], tapSkip)
		at = 0
	}
	r.next = tail + skip + size
	return r.buf[at : at+uint64(n)]
}

// commit lets the reader have the record that was reserved last.
func (r *tapRing) commit() { r.tail.Store(r.next) }

// front returns the oldest record; nil: there is none.
func (r *tapRing) front() []byte {
	for {
		head := r.head.Load()
		if head == r.tail.Load() {
			return nil
		}
		b := r.buf[head&uint64(len(r.buf)-1):]
		n := binary.LittleEndian.Uint32(b)
		if n != tapSkip {
			return b[:n]
		}
		r.head.Store(head + uint64(len(b)))
	}
}

// pop removes the record that front returned.
func (r *tapRing) pop() {
	head := r.head.Load()
	n := binary.LittleEndian.Uint32(r.buf[head&uint64(len(r.buf)-1):])
	r.head.Store(head + (uint64(n)+7)&^7)
}

// A record is its length 4, time 8, port 2, point 1, reason 1, length of the frame 4, here
// 8, held 8, class 1, uplink 1, flowlet 1, flags 1, lengths of the two texts 1 each, padding
// 2, then the texts and the data.
const tapHead = 44

// Flags of a record.
const (
	tapMade   = 1 << iota // the node made the frame
	tapBefore             // the frame was here when the capture began
)

// record is what a worker writes of a frame.
type record struct {
	at     mono.Time
	since  mono.Time // when the capture began; what was here then may have come any time before
	port   PortID
	point  capture.Point
	reason drop.Reason
	uplink uint8
	note   *tapNote
}

// put writes a record, with the first bytes of b. It reports false if there is no room.
func (r *tapRing) put(x *record, b []byte, snap int) (n int, ok bool) {
	data := b[:min(len(b), snap)]
	scheme, why := x.note.scheme, x.note.why
	scheme, why = scheme[:min(len(scheme), 255)], why[:min(len(why), 255)]
	to := r.reserve(tapHead + len(scheme) + len(why) + len(data))
	if to == nil {
		return 0, false
	}
	binary.LittleEndian.PutUint32(to, uint32(len(to)))
	binary.LittleEndian.PutUint64(to[4:], uint64(x.at))
	binary.LittleEndian.PutUint16(to[12:], uint16(x.port))
	to[14], to[15] = byte(x.point), byte(x.reason)
	binary.LittleEndian.PutUint32(to[16:], uint32(len(b)))
	here, flags := mono.Time(0), byte(0)
	switch x.note.state {
	case noteCame:
		here = x.at - x.note.came
	case noteBefore:
		here, flags = x.at-x.since, tapBefore
	}
	if x.note.state == noteMade || x.note.copied {
		flags |= tapMade
	}
	binary.LittleEndian.PutUint64(to[20:], uint64(here))
	binary.LittleEndian.PutUint64(to[28:], uint64(x.note.held))
	to[36], to[37], to[38], to[39] = x.note.class, x.uplink, byte(x.note.flowlet), flags
	to[40], to[41], to[42], to[43] = byte(len(scheme)), byte(len(why)), 0, 0
	rest := to[tapHead:]
	rest = rest[copy(rest, scheme):]
	rest = rest[copy(rest, why):]
	copy(rest, data)
	r.commit()
	return len(data), true
}

func recordTime(b []byte) mono.Time { return mono.Time(binary.LittleEndian.Uint64(b[4:])) }

// readRecord fills f, whose data are those of the record.
func readRecord(b []byte, f *capture.Frame) {
	f.Port, f.Point = binary.LittleEndian.Uint16(b[12:]), capture.Point(b[14])
	if r := drop.Reason(b[15]); r != drop.None {
		f.Reason = r.String()
	}
	f.Len = int(binary.LittleEndian.Uint32(b[16:]))
	f.Here, f.Held = time.Duration(binary.LittleEndian.Uint64(b[20:])), time.Duration(binary.LittleEndian.Uint64(b[28:]))
	f.Class, f.Uplink, f.Flowlet, f.Made = b[36], b[37], capture.Flowlet(b[38]), b[39]&tapMade != 0
	f.Before = b[39]&tapBefore != 0
	scheme, why := int(b[40]), int(b[41])
	b = b[tapHead:]
	f.Scheme, f.Why, f.Data = string(b[:scheme]), string(b[scheme:scheme+why]), b[scheme+why:]
}
