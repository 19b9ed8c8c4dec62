package traffic

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/loomfabric/loom/sim/engine"
)

// TestTraceRoundTrip: a generated workload that is written and read back is the
// same: all of it in the long form; in the plain one all but workloads and
// connections.
func TestTraceRoundTrip(t *testing.T) {
	for _, conns := range []int{0, 3} {
		for _, long := range []bool{false, true} {
			c := base()
			c.Conns = conns
			want := collect(&limited{NewPoisson(c), 2000})
			var file bytes.Buffer
			n, err := WriteTrace(&file, NewReplay(want), long)
			if err != nil || n != len(want) {
				t.Fatalf("wrote %d flows: %v", n, err)
			}
			got, err := ReadTrace(&file, 16, c.Stream)
			if err != nil {
				t.Fatal(err)
			}
			if !long && conns > 0 { // the plain form has no connections
				for i := range got {
					got[i].Conn, got[i].Key = want[i].Conn, want[i].Key
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("conns %d, long %v: flows differ", conns, long)
			}
		}
	}
}

func TestTraceRefused(t *testing.T) {
	const h = traceHeader + "\n"
	const l = traceLong + "\n"
	for _, c := range []struct{ name, in, want string }{
		{"empty", "", "line 1: the trace has no header"},
		{"only comments", "# a\n\n", "line 3: the trace has no header"},
		{"wrong header", "start,src,dst,bytes\n", `line 1: "start,src,dst,bytes": the header must be`},
		{"unknown source", h + "0,4,1,1\n", "line 2: host 4 is unknown: hosts are numbered from 0 to 3"},
		{"unknown destination", h + "0,1,2,1\n0,1,9,1\n", "line 3: host 9 is unknown"},
		{"out of order", h + "# x\n5,0,1,1\n4,0,1,1\n", "line 4: a start at 4 ns is out of order: the flow before starts at 5 ns"},
		{"zero bytes", h + "0,0,1,0\n", "line 2: a flow of 0 bytes"},
		{"to itself", h + "0,2,2,7\n", "line 2: host 2 sends to itself"},
		{"three fields", h + "0,0,1\n", `line 2: "0,0,1" has 3 fields, want 4`},
		{"five fields", h + "0,0,1,2,3\n", "has 5 fields, want 4"},
		{"text", h + "0,0,one,2\n", "line 2: field 3:"},
		{"negative", h + "-1,0,1,2\n", "line 2: field 1:"},
		{"fraction", h + "1.5,0,1,2\n", "line 2: field 1:"},
		{"too large", h + "0,0,1,9223372036854775808\n", "line 2: field 4:"},
		{"beyond time", h + "9223372036854775,0,1,2\n", "beyond the end of time"},
		{"long line", h + strings.Repeat("1", 1<<17), "line 2: bufio.Scanner: token too long"},
		{"connection", l + "0,0,1,2,0,-2\n", "line 2: field 6:"},
		{"connection of two pairs", l + "0,0,1,2,0,7\n0,0,1,2,0,7\n0,1,0,2,0,7\n", "line 4: connection 7 goes from host 1 to 0, and went from 0 to 1 before"},
		{"connection too large", l + "0,0,1,2,0,16777216\n", "line 2: connection 16777216 is out of range"},
		{"tag", l + "0,0,1,2,2147483648,-1\n", "line 2: tag 2147483648"},
	} {
		if _, err := ReadTrace(strings.NewReader(c.in), 4, Stream{}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", c.name, err, c.want)
		}
	}
}

// TestTraceReads: blanks, comments and equal starts are fine.
func TestTraceReads(t *testing.T) {
	flows, err := ReadTrace(strings.NewReader("# made by hand\n"+traceHeader+"\n\n 7, 0 ,1, 99 \r\n7,1,0,1\n"), 2, Stream{Number: 3})
	if err != nil || len(flows) != 2 {
		t.Fatal(flows, err)
	}
	for i, want := range []uint64{99, 1} {
		f := flows[i]
		if f.Bytes != want || f.Start != 7*engine.Nanosecond || int(f.ID) != i || f.Conn != NoConn || f.Until != engine.Never || f.Tag != 3 {
			t.Errorf("flow %d: %+v", i, f)
		}
	}
	if flows, err := ReadTrace(strings.NewReader(traceHeader), 2, Stream{}); err != nil || flows != nil {
		t.Errorf("a trace of no flows: %v, %v", flows, err)
	}
}

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, errors.New("disk is full") }

func TestTraceWriterRefuses(t *testing.T) {
	good := Flow{Dst: 1, Bytes: 1, Until: engine.Never, Start: 50}
	for _, c := range []struct {
		name   string
		change func(f *Flow)
		want   string
	}{
		{"endless", func(f *Flow) { f.Bytes = Endless }, "cannot be written"},
		{"empty", func(f *Flow) { f.Bytes = 0 }, "cannot be written"},
		{"rate", func(f *Flow) { f.Rate = 9 }, "rate of 9 bit/s"},
		{"stops", func(f *Flow) { f.Until = engine.Second }, "stops at 1s"},
		{"order", func(f *Flow) { f.Start = 49 }, "before the flow written last"},
	} {
		f := good
		c.change(&f)
		if n, err := WriteTrace(io.Discard, NewReplay([]Flow{good, f}), false); n != 1 || err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", c.name, err, c.want)
		}
	}
	if _, err := WriteTrace(fullDisk{}, NewReplay([]Flow{good}), false); err == nil {
		t.Error("a full disk was not noticed")
	}
}

// FuzzTrace: whatever is accepted keeps its promises and survives being written
// and read again.
func FuzzTrace(f *testing.F) {
	f.Add([]byte(traceHeader + "\n0,0,1,1000\n10,3,2,1\n"))
	f.Add([]byte(traceLong + "\n0,0,1,1000,3,-1\n10,3,2,1,0,4\n"))
	f.Add([]byte("# c\n\n" + traceHeader + "\r\n 5 ,0,1,9223372036854775807\n"))
	f.Add([]byte(traceHeader + "\n1,0,1,1\n0,0,1,1\n"))
	f.Add([]byte(traceHeader + "\n0,0,0,1\n"))
	f.Fuzz(func(t *testing.T, in []byte) {
		const hosts = 4
		s := Stream{Seed: 1}
		flows, err := ReadTrace(bytes.NewReader(in), hosts, s)
		if err != nil {
			if flows != nil || !strings.HasPrefix(err.Error(), "line ") {
				t.Fatalf("%d flows and error %v", len(flows), err)
			}
			return
		}
		last := engine.Time(0)
		for i, x := range flows {
			if x.Start < last || x.Src >= hosts || x.Dst >= hosts || x.Src == x.Dst || x.Bytes == 0 || int(x.ID) != i || x.Conn < NoConn {
				t.Fatalf("flow %+v after %v", x, last)
			}
			last = x.Start
		}
		var out bytes.Buffer
		if _, err := WriteTrace(&out, NewReplay(flows), true); err != nil {
			t.Fatal(err)
		}
		again, err := ReadTrace(&out, hosts, s)
		if err != nil || !slices.Equal(flows, again) {
			t.Fatalf("read again: %v", err)
		}
	})
}
