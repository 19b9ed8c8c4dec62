package traffic

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"

	"github.com/loomfabric/loom/sim/engine"
	"github.com/loomfabric/loom/sim/network"
)

// The headers that a trace can have. The longer one also tells workloads and
// persistent connections apart.
const (
	traceHeader = "start_ns,src,dst,bytes"
	traceLong   = "start_ns,src,dst,bytes,tag,conn"
)

// maxConn bounds what a trace can make a run keep.
const maxConn = 1 << 24

// traceReader reads flows from a CSV, one by one. Lines that start with # are
// comments. It refuses what cannot be replayed and says in which line.
type traceReader struct {
	scan   *bufio.Scanner
	stream Stream
	hosts  int
	fields int
	line   int
	made   uint64
	last   engine.Time
	conns  map[int]Pair // whose each connection is
	err    error
}

// newTraceReader returns a reader of a trace for a network with that many hosts.
// Ports, which a trace does not hold, come from the stream: a generated
// workload's flows keep theirs if the stream is that workload's.
func newTraceReader(r io.Reader, hosts int, s Stream) *traceReader {
	t := &traceReader{scan: bufio.NewScanner(r), stream: s, hosts: hosts, conns: make(map[int]Pair)}
	t.scan.Buffer(nil, 1<<16)
	return t
}

// read returns the next flow; io.EOF after the last. An error stays.
func (t *traceReader) read() (Flow, error) {
	for t.err == nil {
		if !t.scan.Scan() {
			t.err = t.end()
			break
		}
		t.line++
		text := bytes.TrimSpace(t.scan.Bytes())
		switch {
		case len(text) == 0 || text[0] == '#':
		case t.fields == 0:
			switch string(text) {
			case traceHeader:
				t.fields = 4
			case traceLong:
				t.fields = 6
			default:
				t.err = fmt.Errorf("line %d: %q: the header must be %q, or %q", t.line, text, traceHeader, traceLong)
			}
		default:
			f, err := t.parse(text)
			if err == nil {
				return f, nil
			}
			t.err = fmt.Errorf("line %d: %w", t.line, err)
		}
	}
	return Flow{}, t.err
}

func (t *traceReader) end() error {
	switch err := t.scan.Err(); {
	case err != nil:
		return fmt.Errorf("line %d: %w", t.line+1, err)
	case t.fields == 0:
		return fmt.Errorf("line %d: the trace has no header: its first line must be %q", t.line+1, traceHeader)
	}
	return io.EOF
}

func (t *traceReader) parse(text []byte) (Flow, error) {
	parts := bytes.Split(text, []byte{','})
	if len(parts) != t.fields {
		return Flow{}, fmt.Errorf("%q has %d fields, want %d", text, len(parts), t.fields)
	}
	var v [6]uint64
	for i, p := range parts {
		p = bytes.TrimSpace(p)
		if i == 5 && string(p) == "-1" {
			v[i] = math.MaxUint64
			continue
		}
		n, err := strconv.ParseUint(string(p), 10, 63)
		if err != nil {
			return Flow{}, fmt.Errorf("field %d: %w", i+1, err)
		}
		v[i] = n
	}
	return t.flow(v)
}

func (t *traceReader) flow(v [6]uint64) (Flow, error) {
	start, src, dst, size, tag, conn := v[0], v[1], v[2], v[3], v[4], v[5]
	hosts := uint64(t.hosts)
	switch {
	case start >= uint64(engine.Never/engine.Nanosecond):
		return Flow{}, fmt.Errorf("a start at %d ns lies beyond the end of time: it must be below %d", start, engine.Never/engine.Nanosecond)
	case engine.Time(start)*engine.Nanosecond < t.last:
		return Flow{}, fmt.Errorf("a start at %d ns is out of order: the flow before starts at %d ns", start, t.last/engine.Nanosecond)
	case src >= hosts || dst >= hosts:
		return Flow{}, fmt.Errorf("host %d is unknown: hosts are numbered from 0 to %d", max(src, dst), t.hosts-1)
	case src == dst:
		return Flow{}, fmt.Errorf("host %d sends to itself: name two hosts", src)
	case size == 0:
		return Flow{}, errors.New("a flow of 0 bytes: it must have at least 1")
	case tag > math.MaxInt32:
		return Flow{}, fmt.Errorf("tag %d is out of range: it must be at most %d", tag, math.MaxInt32)
	case t.fields == 6 && conn != math.MaxUint64 && conn >= maxConn:
		return Flow{}, fmt.Errorf("connection %d is out of range: it must be below %d, or -1", conn, maxConn)
	case t.made > math.MaxUint32:
		return Flow{}, fmt.Errorf("more than %d flows cannot be numbered: split the trace", t.made)
	}
	f := Flow{
		ID: network.FlowID(t.made), Start: engine.Time(start) * engine.Nanosecond,
		Src: network.HostID(src), Dst: network.HostID(dst), Bytes: size, Until: engine.Never,
		Conn: NoConn, Tag: int(tag), Key: t.stream.key(keyOfFlow, t.made),
	}
	if t.fields == 6 && conn != math.MaxUint64 {
		f.Conn, f.Key = int(conn), t.stream.key(keyOfConn, conn)
		pair := Pair{f.Src, f.Dst}
		if was, known := t.conns[f.Conn]; known && was != pair {
			return Flow{}, fmt.Errorf("connection %d goes from host %d to %d, and went from %d to %d before", conn, src, dst, was.Src, was.Dst)
		}
		t.conns[f.Conn] = pair
	}
	t.last = f.Start
	t.made++
	return f, nil
}

// ReadTrace reads a whole trace, so that what is wrong in it shows before
// anything has been simulated.
func ReadTrace(r io.Reader, hosts int, s Stream) ([]Flow, error) {
	t := newTraceReader(r, hosts, s)
	var flows []Flow
	for {
		f, err := t.read()
		if errors.Is(err, io.EOF) {
			return flows, nil
		}
		if err != nil {
			return nil, err
		}
		flows = append(flows, f)
	}
}

// traceWriter writes flows as a trace.
type traceWriter struct {
	w    *bufio.Writer
	long bool
	last engine.Time
	line []byte
	err  error
}

// newTraceWriter returns a writer of a trace. With long it holds workloads and
// persistent connections too, which other tools may not understand.
func newTraceWriter(w io.Writer, long bool) *traceWriter {
	t := &traceWriter{w: bufio.NewWriter(w), long: long}
	header := traceHeader
	if long {
		header = traceLong
	}
	_, t.err = t.w.WriteString(header + "\n")
	return t
}

// write adds a flow. Starts are rounded down to nanoseconds. Flows without an
// end by size, flows at a fixed rate and flows out of order have no line in a
// trace: they are refused.
func (t *traceWriter) write(f Flow) error {
	switch {
	case t.err != nil:
		return t.err
	case f.Bytes == 0 || f.Bytes > math.MaxInt64:
		return fmt.Errorf("flow %d of %d bytes cannot be written to a trace: it must have from 1 to %d", f.ID, f.Bytes, math.MaxInt64)
	case f.Rate != 0 || f.Until != engine.Never:
		return fmt.Errorf("flow %d has a rate of %d bit/s and stops at %v: a trace holds neither", f.ID, f.Rate, f.Until)
	case f.Start < t.last:
		return fmt.Errorf("flow %d starts at %v, before the flow written last, at %v", f.ID, f.Start, t.last)
	}
	t.last = f.Start
	b := strconv.AppendInt(t.line[:0], int64(f.Start/engine.Nanosecond), 10)
	b = strconv.AppendUint(append(b, ','), uint64(f.Src), 10)
	b = strconv.AppendUint(append(b, ','), uint64(f.Dst), 10)
	b = strconv.AppendUint(append(b, ','), f.Bytes, 10)
	if t.long {
		b = strconv.AppendInt(append(b, ','), int64(f.Tag), 10)
		b = strconv.AppendInt(append(b, ','), int64(f.Conn), 10)
	}
	t.line = append(b, '\n')
	_, t.err = t.w.Write(t.line)
	return t.err
}

// flush writes what is buffered.
func (t *traceWriter) flush() error {
	if t.err == nil {
		t.err = t.w.Flush()
	}
	return t.err
}

// WriteTrace writes all flows of a source, and returns how many there were.
func WriteTrace(w io.Writer, s Source, long bool) (int, error) {
	t := newTraceWriter(w, long)
	for n := 0; ; n++ {
		f, ok := s.Next()
		if !ok {
			return n, t.flush()
		}
		if err := t.write(f); err != nil {
			return n, err
		}
	}
}
