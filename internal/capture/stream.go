package capture

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
)

// A stream is magic, and messages behind it:
//
//	kind (1 byte)   length of the body (4 bytes)   body
//
// All numbers are little-endian. The body of a frame is binary, see appendFrame; those of
// the others are JSON. A reader skips kinds that it does not know.
const magic = "LOOMCAP1"

// The kinds of messages.
const (
	kindStart = 1 + iota
	kindPort
	kindFrame
	kindStats
	kindEnd
)

const (
	headLen  = 5
	maxBody  = 1 << 20
	fixedLen = 40 // of a frame's body
	maxText  = 255
)

// Writer writes a stream. The first error stays.
type Writer struct {
	w   io.Writer
	buf []byte
	err error
}

// NewWriter returns a writer that begins with s.
func NewWriter(w io.Writer, s *Start) *Writer {
	x := &Writer{w: w, buf: append(make([]byte, 0, 64<<10), magic...)}
	x.json(kindStart, s)
	return x
}

// Port says which port a number stands for from now on.
func (w *Writer) Port(p *Port) { w.json(kindPort, p) }

// Stats says how the capture goes.
func (w *Writer) Stats(s *Stats) { w.json(kindStats, s) }

// End says why nothing follows.
func (w *Writer) End(e *End) { w.json(kindEnd, e) }

// Frame writes a frame.
func (w *Writer) Frame(f *Frame) {
	at := w.begin(kindFrame)
	w.buf = appendFrame(w.buf, f)
	w.end(at)
}

// Buffered returns how many bytes Flush would write.
func (w *Writer) Buffered() int { return len(w.buf) }

// Flush writes what was said so far, and returns the first error.
func (w *Writer) Flush() error {
	if w.err == nil && len(w.buf) > 0 {
		_, w.err = w.w.Write(w.buf)
	}
	w.buf = w.buf[:0]
	return w.err
}

func (w *Writer) begin(kind byte) (at int) {
	at = len(w.buf)
	w.buf = append(w.buf, kind, 0, 0, 0, 0)
	return at
}

func (w *Writer) end(at int) {
	binary.LittleEndian.PutUint32(w.buf[at+1:], uint32(len(w.buf)-at-headLen))
}

func (w *Writer) json(kind byte, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		w.err = errors.Join(w.err, err)
		return
	}
	at := w.begin(kind)
	w.buf = append(w.buf, b...)
	w.end(at)
}

// Flags of a frame's body.
const (
	flagMade = 1 << iota
	flagBefore
)

// appendFrame writes a frame's body: time 8, port 2, point 1, worker 1, length 4, here 8,
// held 8, class 1, uplink 1, flowlet 1, flags 1, number of data bytes 4; then three texts,
// each behind its length of 1 byte, and the data.
func appendFrame(b []byte, f *Frame) []byte {
	b = binary.LittleEndian.AppendUint64(b, uint64(f.Time.UnixNano()))
	b = binary.LittleEndian.AppendUint16(b, f.Port)
	b = append(b, byte(f.Point), f.Worker)
	b = binary.LittleEndian.AppendUint32(b, uint32(f.Len))
	b = binary.LittleEndian.AppendUint64(b, uint64(f.Here))
	b = binary.LittleEndian.AppendUint64(b, uint64(f.Held))
	flags := byte(0)
	if f.Made {
		flags |= flagMade
	}
	if f.Before {
		flags |= flagBefore
	}
	b = append(b, f.Class, f.Uplink, byte(f.Flowlet), flags)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(f.Data)))
	for _, text := range []string{f.Scheme, f.Why, f.Reason} {
		text = text[:min(len(text), maxText)]
		b = append(append(b, byte(len(text))), text...)
	}
	return append(b, f.Data...)
}

var errShort = errors.New("a frame of the capture is cut short")

func decodeFrame(b []byte) (f Frame, err error) {
	if len(b) < fixedLen {
		return f, errShort
	}
	f = Frame{
		Time: time.Unix(0, int64(binary.LittleEndian.Uint64(b))), Port: binary.LittleEndian.Uint16(b[8:]), Point: Point(b[10]), Worker: b[11],
		Len: int(binary.LittleEndian.Uint32(b[12:])), Here: time.Duration(binary.LittleEndian.Uint64(b[16:])), Held: time.Duration(binary.LittleEndian.Uint64(b[24:])),
		Class: b[32], Uplink: b[33], Flowlet: Flowlet(b[34]), Made: b[35]&flagMade != 0, Before: b[35]&flagBefore != 0,
	}
	data := binary.LittleEndian.Uint32(b[36:])
	b = b[fixedLen:]
	for _, text := range []*string{&f.Scheme, &f.Why, &f.Reason} {
		if len(b) == 0 {
			return f, errShort
		}
		n := 1 + int(b[0])
		if len(b) < n {
			return f, errShort
		}
		*text, b = string(b[1:n]), b[n:]
	}
	if uint64(len(b)) != uint64(data) || f.Len < len(b) {
		return f, errShort
	}
	f.Data = b
	return f, nil
}

// Reader reads a stream.
type Reader struct {
	r     *bufio.Reader
	start Start
}

// NewReader returns a reader of a stream, of which it reads the beginning.
func NewReader(r io.Reader) (*Reader, error) {
	x := &Reader{r: bufio.NewReaderSize(r, 64<<10)}
	head := make([]byte, len(magic))
	if _, err := io.ReadFull(x.r, head); err != nil || string(head) != magic {
		return nil, errors.New("what the daemon sends is no capture that this version can read: use a loomctl of the daemon's version")
	}
	v, err := x.Next()
	if err != nil {
		return nil, err
	}
	s, ok := v.(*Start)
	if !ok {
		return nil, fmt.Errorf("a capture begins with %T", v)
	}
	x.start = *s
	return x, nil
}

// Buffered reports whether Next has something to return at once.
func (r *Reader) Buffered() bool { return r.r.Buffered() > 0 }

// Start returns what the stream began with.
func (r *Reader) Start() *Start { return &r.start }

// Next returns the next message: a *Port, a *Frame, a *Stats, or an *End. A stream that
// ends without an End has been cut off: the error is then io.ErrUnexpectedEOF.
func (r *Reader) Next() (any, error) {
	for {
		var head [headLen]byte
		if _, err := io.ReadFull(r.r, head[:]); err != nil {
			return nil, cut(err)
		}
		n := binary.LittleEndian.Uint32(head[1:])
		if n > maxBody {
			return nil, fmt.Errorf("a message of %d bytes in the capture", n)
		}
		body := make([]byte, n)
		if _, err := io.ReadFull(r.r, body); err != nil {
			return nil, cut(err)
		}
		var v any
		switch head[0] {
		case kindStart:
			v = new(Start)
		case kindPort:
			v = new(Port)
		case kindStats:
			v = new(Stats)
		case kindEnd:
			v = new(End)
		case kindFrame:
			f, err := decodeFrame(body)
			return &f, err
		default:
			continue
		}
		if err := json.Unmarshal(body, v); err != nil {
			return nil, fmt.Errorf("a message in the capture: %w", err)
		}
		return v, nil
	}
}

// cut says that a stream ended before its End.
func cut(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
