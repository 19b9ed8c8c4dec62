// Package snapshot writes and reads what a daemon leaves to its successor: sections, each
// with a name, a version, a length and a checksum. A reader takes those that it knows in
// just that version. The package knows nothing of what is in them, and reads no clock.
//
// A snapshot comes from a process of the same user on the same machine, which may be of
// another version. So nothing in it is believed without a check: [Reader] never reads
// beyond a section, and a count is held against the bytes that are left before anything
// is made of that size.
package snapshot

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

// magic begins a snapshot. It changes only if the frame of sections does.
const magic = "loomsnap"

// Writer builds a snapshot. The zero value is ready to use.
type Writer struct {
	b     []byte
	start int // of the open section's contents; 0: none is open
}

// Begin starts a section. Versions count from 1.
func (w *Writer) Begin(name string, version uint16) {
	if len(w.b) == 0 {
		w.b = append(w.b, magic...)
	}
	w.b = append(w.b, byte(len(name)))
	w.b = append(w.b, name...)
	w.b = binary.LittleEndian.AppendUint16(w.b, version)
	w.b = append(w.b, 0, 0, 0, 0, 0, 0, 0, 0) // length, checksum
	w.start = len(w.b)
}

// End completes the section.
func (w *Writer) End() {
	body := w.b[w.start:]
	binary.LittleEndian.PutUint32(w.b[w.start-8:], uint32(len(body)))
	binary.LittleEndian.PutUint32(w.b[w.start-4:], crc32.ChecksumIEEE(body))
	w.start = 0
}

// Bytes returns the snapshot. All sections have ended.
func (w *Writer) Bytes() []byte {
	if len(w.b) == 0 {
		return []byte(magic)
	}
	return w.b
}

// Reset empties the writer and keeps its memory.
func (w *Writer) Reset() { w.b = w.b[:0] }

// Grow makes room for n more bytes.
func (w *Writer) Grow(n int) {
	if cap(w.b)-len(w.b) < n {
		w.b = append(make([]byte, 0, len(w.b)+n), w.b...)
	}
}

// U8 appends a byte. The others below append what their names say, little endian.
func (w *Writer) U8(v uint8) { w.b = append(w.b, v) }

// U16 appends two bytes.
func (w *Writer) U16(v uint16) { w.b = binary.LittleEndian.AppendUint16(w.b, v) }

// U32 appends four bytes.
func (w *Writer) U32(v uint32) { w.b = binary.LittleEndian.AppendUint32(w.b, v) }

// U64 appends eight bytes.
func (w *Writer) U64(v uint64) { w.b = binary.LittleEndian.AppendUint64(w.b, v) }

// Bool appends a byte, 0 or 1.
func (w *Writer) Bool(v bool) {
	if v {
		w.U8(1)
	} else {
		w.U8(0)
	}
}

// Blob appends a length of four bytes and the bytes.
func (w *Writer) Blob(b []byte) {
	w.U32(uint32(len(b)))
	w.b = append(w.b, b...)
}

// Open starts a blob whose length is known only when Close ends it. It returns what Close
// wants.
func (w *Writer) Open() (at int) {
	w.U32(0)
	return len(w.b)
}

// Close ends the blob that Open started.
func (w *Writer) Close(at int) { binary.LittleEndian.PutUint32(w.b[at-4:], uint32(len(w.b)-at)) }

// String appends a string as Blob does.
func (w *Writer) String(s string) {
	w.U32(uint32(len(s)))
	w.b = append(w.b, s...)
}

// Section is one section of a snapshot.
type Section struct {
	Name    string
	Version uint16
	Body    []byte
	// Broken says why the section must not be read; nil: its checksum is right.
	Broken error
}

// Sections returns the sections of a snapshot in their order. A section with a wrong
// checksum is among them, with the reason. An error means that the snapshot is none, or
// ends in the middle of a section; the sections before it are returned.
func Sections(b []byte) ([]Section, error) {
	if len(b) < len(magic) || string(b[:len(magic)]) != magic {
		return nil, fmt.Errorf("%d bytes are not a snapshot", len(b))
	}
	var all []Section
	for r := NewReader(b[len(magic):]); r.Len() > 0; {
		var s Section
		s.Name = string(r.take(int(r.U8())))
		s.Version = r.U16()
		n, sum := r.U32(), r.U32()
		s.Body = r.take(int(n))
		if r.Err() != nil {
			return all, fmt.Errorf("section %q: %w", s.Name, r.Err())
		}
		if have := crc32.ChecksumIEEE(s.Body); have != sum {
			s.Broken = fmt.Errorf("its checksum is %08x, and should be %08x", have, sum)
		}
		all = append(all, s)
	}
	return all, nil
}

// Reader reads the contents of a section in the order in which they were written. After
// the first error, which Err returns, everything is zero.
type Reader struct {
	b   []byte
	err error
}

// NewReader returns a reader of b.
func NewReader(b []byte) *Reader { return &Reader{b: b} }

// Err returns what went wrong; nil: nothing.
func (r *Reader) Err() error { return r.err }

// Len returns the number of bytes that are left.
func (r *Reader) Len() int { return len(r.b) }

// Fail makes err the reader's error, if it has none yet.
func (r *Reader) Fail(err error) {
	if r.err == nil {
		r.err, r.b = err, nil
	}
}

func (r *Reader) take(n int) []byte {
	if n < 0 || n > len(r.b) {
		r.Fail(fmt.Errorf("%d bytes are left where %d should be", len(r.b), n))
		return nil
	}
	b := r.b[:n:n]
	r.b = r.b[n:]
	return b
}

// U8 reads a byte. The others below read what their names say.
func (r *Reader) U8() uint8 {
	if b := r.take(1); b != nil {
		return b[0]
	}
	return 0
}

// U16 reads two bytes.
func (r *Reader) U16() uint16 {
	if b := r.take(2); b != nil {
		return binary.LittleEndian.Uint16(b)
	}
	return 0
}

// U32 reads four bytes.
func (r *Reader) U32() uint32 {
	if b := r.take(4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

// U64 reads eight bytes.
func (r *Reader) U64() uint64 {
	if b := r.take(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

// Bool reads a byte. Anything but 0 and 1 is an error.
func (r *Reader) Bool() bool {
	v := r.U8()
	if v > 1 {
		r.Fail(fmt.Errorf("%d is neither true nor false", v))
	}
	return v == 1
}

// Blob reads what [Writer.Blob] wrote. The bytes are the snapshot's.
func (r *Reader) Blob() []byte { return r.take(int(r.U32())) }

// String reads what [Writer.String] wrote.
func (r *Reader) String() string { return string(r.Blob()) }

// Count reads a number of things that have at least size bytes each. More than the rest
// can hold is an error, so that whoever makes room for them makes no more than was sent.
func (r *Reader) Count(size int) int {
	n := int(r.U32())
	if n > len(r.b)/max(size, 1) {
		r.Fail(fmt.Errorf("%d things of %d bytes or more do not fit the %d that are left", n, size, len(r.b)))
		return 0
	}
	return n
}

// Done returns the error, or one if there are bytes left: then the section is not what
// the reader takes it for.
func (r *Reader) Done() error {
	if r.err == nil && len(r.b) > 0 {
		return fmt.Errorf("%d bytes are left at the end", len(r.b))
	}
	return r.err
}
