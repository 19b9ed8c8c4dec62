package capture

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestCommentSaysWhatIsKnown(t *testing.T) {
	for _, c := range []struct {
		f    Frame
		want string
	}{
		{Frame{Point: In, Class: None, Uplink: None}, "in; worker 0"},
		{Frame{Point: Out, Worker: 2, Here: 1500, Class: 1, Uplink: 3, Scheme: "conga", Flowlet: Moved, Why: "its last flowlet has ended"},
			"out; worker 2; here for 1.5µs; uplink 3; class 1; conga; flowlet moved; its last flowlet has ended"},
		{Frame{Point: Out, Here: 3e6, Held: 2e6, Class: None, Uplink: None}, "out; worker 0; here for 3ms; held for 2ms"},
		{Frame{Point: Out, Here: 21 * time.Millisecond, Before: true, Class: None, Uplink: None}, "out; worker 0; here since before the capture, for more than 21ms"},
		{Frame{Point: Drop, Reason: "queue_full", Class: None, Uplink: None, Made: true}, "dropped: queue_full; worker 0; made here"},
	} {
		if got := c.f.Comment(); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

func TestNames(t *testing.T) {
	var p Point
	if err := p.UnmarshalText([]byte("drop,in")); err != nil || p != In|Drop || p.String() != "in,drop" {
		t.Errorf("%v, %v", p, err)
	}
	if err := p.UnmarshalText([]byte("in,up")); err == nil || !strings.Contains(err.Error(), `"up" does not exist: use in, out, drop`) {
		t.Errorf("%v", err)
	}
	var f Flowlet
	if err := f.UnmarshalText([]byte("new,moved")); err != nil || f != New|Moved {
		t.Errorf("%v, %v", f, err)
	}
}

func someFrame(rng *rand.Rand) *Frame {
	text := func() string { return strings.Repeat("x", rng.IntN(maxText+1)) }
	data := make([]byte, rng.IntN(2000))
	for i := range data {
		data[i] = byte(rng.Uint32())
	}
	return &Frame{
		Time: time.Unix(0, rng.Int64()), Port: uint16(rng.Uint32()), Point: Out, Worker: uint8(rng.Uint32()), Len: len(data) + rng.IntN(100),
		Here: time.Duration(rng.Int64()), Held: time.Duration(rng.Int64()), Class: uint8(rng.Uint32()), Uplink: uint8(rng.Uint32()), Flowlet: Kept,
		Made: rng.IntN(2) == 1, Before: rng.IntN(2) == 1, Scheme: text(), Why: text(), Reason: text(), Data: data,
	}
}

func TestStreamComesBack(t *testing.T) {
	seed := rand.Uint64()
	t.Log("seed", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	var buf bytes.Buffer
	start := Start{Node: "L0", Role: "leafd", Version: "v1", Fast: []string{}}
	w := NewWriter(&buf, &start)
	var want []any
	say := func(v any) { want = append(want, v) }
	for range 50 {
		switch rng.IntN(3) {
		case 0:
			p := &Port{Number: 3, Name: "up1", Kind: "uplink"}
			w.Port(p)
			say(p)
		case 1:
			s := &Stats{Ports: []Count{{"up1", 1, 2, 3}}, Bytes: 9}
			w.Stats(s)
			say(s)
		case 2:
			f := someFrame(rng)
			w.Frame(f)
			say(f)
		}
	}
	w.begin(99) // of a later version
	end := &End{Why: "enough", Stats: Stats{Ports: []Count{{"a", 1, 0, 2}, {"b", 2, 5, 0}}}}
	w.End(end)
	say(end)
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	whole := buf.Bytes()
	r, err := NewReader(bytes.NewReader(whole))
	if err != nil || !reflect.DeepEqual(*r.Start(), start) {
		t.Fatalf("%+v, %v", r, err)
	}
	for i, x := range want {
		got, err := r.Next()
		if err != nil || !reflect.DeepEqual(got, x) {
			t.Fatalf("message %d: %+v, %v, want %+v", i, got, err, x)
		}
	}
	if got := end.Sum(); got != (Count{"", 3, 5, 2}) {
		t.Errorf("sum %+v", got)
	}
	for range 100 {
		n := rng.IntN(len(whole) - 1)
		r, err := NewReader(bytes.NewReader(whole[:n]))
		for err == nil {
			_, err = r.Next()
		}
		if n > 200 && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("cut off after %d bytes: %v", n, err)
		}
	}
}

func FuzzReader(f *testing.F) {
	var buf bytes.Buffer
	w := NewWriter(&buf, &Start{Node: "L0"})
	w.Port(&Port{Name: "up0"})
	w.Frame(&Frame{Time: time.Unix(1, 2), Len: 60, Scheme: "conga", Why: "why", Data: []byte("data")})
	w.End(&End{Why: "enough"})
	if err := w.Flush(); err != nil {
		f.Fatal(err)
	}
	f.Add(buf.Bytes())
	f.Add([]byte(magic))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := NewReader(bytes.NewReader(b))
		for err == nil {
			var v any
			if v, err = r.Next(); err == nil {
				if x, ok := v.(*Frame); ok {
					if y, err := decodeFrame(appendFrame(nil, x)); err != nil || !reflect.DeepEqual(*x, y) {
						t.Fatalf("%+v came back as %+v, %v", x, y, err)
					}
				}
			}
		}
	})
}
