package overlay

import (
	"slices"
	"time"
	"unsafe"
)

// fdbHead says, in front of a table that others read, how old an entry may be. It is as
// long as a bucket.
type fdbHead struct {
	refresh int32 // ticks; an entry older than that is to be noted again
	doubt   int32 // ticks; an entry behind a port and older than that may not count
	age     int32 // ticks; likewise behind a peer: no flush takes those
	_       [52]byte
}

const (
	fdbHeadLen   = int(unsafe.Sizeof(fdbHead{}))
	fdbBucketLen = int(unsafe.Sizeof(fdbBucket{}))
)

// FDBMemory returns how many bytes a table for up to size addresses takes in the memory of
// [NewFDBIn].
func FDBMemory(size int) int { return fdbHeadLen + fdbBuckets(size)*fdbBucketLen }

// NewFDBIn returns the table of [NewFDB] in memory that is all zero, aligned to 8 bytes
// and [FDBMemory] long. Others may read it there, and write nothing: the XDP programs of the
// fast path do (bpf/fast_leaf.h).
//
// A reader that runs beside the table's owner reads key, place and time of an entry, and the
// key again. An entry is empty before it gets another key, so a place that was read between
// two reads of one key belongs to it.
func NewFDBIn(memory []byte, size int, age time.Duration, vnis, ports int) *FDB {
	n := fdbBuckets(size)
	_ = memory[:FDBMemory(size)]
	f := newFDB(unsafe.Slice((*fdbBucket)(unsafe.Pointer(&memory[fdbHeadLen])), n), size, age, vnis, ports)
	f.head = (*fdbHead)(unsafe.Pointer(&memory[0]))
	f.head.refresh, f.head.age = f.refresh, f.age
	f.setDoubt(f.doubt)
	return f
}

// Withdraw moves the table out of the memory that it was made in, which may go then.
func (f *FDB) Withdraw() {
	if f.head != nil {
		f.buckets, f.head = slices.Clone(f.buckets), nil
	}
}
