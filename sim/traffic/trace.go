package traffic

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

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

// trace is a trace that is being read.
type trace struct {
	stream Stream
	hosts  int
	fields int // 0: the header is still to come
	flows  []Flow
	conns  map[int]Pair // whose each connection is
}

// ReadTrace reads flows from a CSV for a network with that many hosts. Lines that
// start with # are comments. It refuses what cannot be replayed and says in which line.
// Ports, which a trace does not hold, come from the stream: a generated workload's
// flows keep theirs if the stream is that workload's.
func ReadTrace(r io.Reader, hosts int, s Stream) ([]Flow, error) {
	t := trace{stream: s, hosts: hosts, conns: make(map[int]Pair)}
	scan := bufio.NewScanner(r)
	scan.Buffer(nil, 1<<16)
	line := 1
	for ; scan.Scan(); line++ {
		if text := strings.TrimSpace(scan.Text()); text != "" && text[0] != '#' {
			if err := t.add(text); err != nil {
				return nil, fmt.Errorf("line %d: %w", line, err)
			}
		}
	}
	switch err := scan.Err(); {
	case err != nil:
		return nil, fmt.Errorf("line %d: %w", line, err)
	case t.fields == 0:
		return nil, fmt.Errorf("line %d: the trace has no header: its first line must be %q", line, traceHeader)
	}
	return t.flows, nil
}

// add reads a line: the header if there was none, or else a flow.
func (t *trace) add(text string) error {
	if t.fields == 0 {
		if text != traceHeader && text != traceLong {
			return fmt.Errorf("%q: the header must be %q, or %q", text, traceHeader, traceLong)
		}
		t.fields = strings.Count(text, ",") + 1
		return nil
	}
	parts := strings.Split(text, ",")
	if len(parts) != t.fields {
		return fmt.Errorf("%q has %d fields, want %d", text, len(parts), t.fields)
	}
	v := [6]uint64{5: ownConn}
	for i, p := range parts {
		if p = strings.TrimSpace(p); i == 5 && p == "-1" {
			continue
		}
		var err error
		if v[i], err = strconv.ParseUint(p, 10, 63); err != nil {
			return fmt.Errorf("field %d: %w", i+1, err)
		}
	}
	return t.flow(v)
}

// ownConn stands for the connection -1, which a flow has that opens its own.
const ownConn = math.MaxUint64

func (t *trace) flow(v [6]uint64) error {
	start, src, dst, size, tag, conn := v[0], v[1], v[2], v[3], v[4], v[5]
	made, last := uint64(len(t.flows)), engine.Time(0)
	if made > 0 {
		last = t.flows[made-1].Start
	}
	switch hosts := uint64(t.hosts); {
	case start >= uint64(engine.Never/engine.Nanosecond):
		return fmt.Errorf("a start at %d ns lies beyond the end of time: it must be below %d", start, engine.Never/engine.Nanosecond)
	case engine.Time(start)*engine.Nanosecond < last:
		return fmt.Errorf("a start at %d ns is out of order: the flow before starts at %d ns", start, last/engine.Nanosecond)
	case src >= hosts || dst >= hosts:
		return fmt.Errorf("host %d is unknown: hosts are numbered from 0 to %d", max(src, dst), t.hosts-1)
	case src == dst:
		return fmt.Errorf("host %d sends to itself: name two hosts", src)
	case size == 0:
		return errors.New("a flow of 0 bytes: it must have at least 1")
	case tag > math.MaxInt32:
		return fmt.Errorf("tag %d is out of range: it must be at most %d", tag, math.MaxInt32)
	case conn != ownConn && conn >= maxConn:
		return fmt.Errorf("connection %d is out of range: it must be below %d, or -1", conn, maxConn)
	case made > math.MaxUint32:
		return fmt.Errorf("more than %d flows cannot be numbered: split the trace", made)
	}
	pair := Pair{network.HostID(src), network.HostID(dst)}
	f := t.stream.flow(made, engine.Time(start)*engine.Nanosecond, pair, size)
	if conn != ownConn {
		f.Conn, f.Key = int(conn), t.stream.key(keyOfConn, conn)
		if was, known := t.conns[f.Conn]; known && was != pair {
			return fmt.Errorf("connection %d goes from host %d to %d, and went from %d to %d before", conn, src, dst, was.Src, was.Dst)
		}
		t.conns[f.Conn] = pair
	}
	t.flows = append(t.flows, f)
	return nil
}

// WriteTrace writes all flows of a source, and returns how many there were. With long
// the trace holds workloads and persistent connections too, which other tools may not
// understand. Starts are rounded down to nanoseconds. Flows without an end by size,
// flows at a fixed rate and flows out of order have no line in a trace: they are
// refused.
func WriteTrace(w io.Writer, s Source, long bool) (int, error) {
	header := traceHeader
	if long {
		header = traceLong
	}
	out := bufio.NewWriter(w)
	fmt.Fprintln(out, header)
	last := engine.Time(0)
	for n := 0; ; n++ {
		f, ok := s.Next()
		switch {
		case !ok:
			return n, out.Flush()
		case f.Bytes == 0 || f.Bytes > math.MaxInt64:
			return n, fmt.Errorf("flow %d of %d bytes cannot be written to a trace: it must have from 1 to %d", f.ID, f.Bytes, math.MaxInt64)
		case f.Rate != 0 || f.Until != engine.Never:
			return n, fmt.Errorf("flow %d has a rate of %d bit/s and stops at %v: a trace holds neither", f.ID, f.Rate, f.Until)
		case f.Start < last:
			return n, fmt.Errorf("flow %d starts at %v, before the flow written last, at %v", f.ID, f.Start, last)
		}
		last = f.Start
		fmt.Fprintf(out, "%d,%d,%d,%d", f.Start/engine.Nanosecond, f.Src, f.Dst, f.Bytes)
		if long {
			fmt.Fprintf(out, ",%d,%d", f.Tag, f.Conn)
		}
		fmt.Fprintln(out)
	}
}
