package record

import (
	"bytes"
	"compress/gzip"
	"reflect"
	"strings"
	"testing"
)

func someDump() *Dump {
	return &Dump{
		Header:    Header{Node: "L0", Role: "leafd", Why: "asked", Start: 1, End: 9, VTEP: "10.0.0.1", Scheme: "conga", Ports: []Port{{3, "up0", "uplink", 1e9}}, Peers: []string{"10.0.0.2"}},
		Samples:   []Sample{{At: 2, Ports: []PortSample{{Number: 3, TxBytes: 7}}, Drops: map[string]uint64{"no_route": 1}}},
		Flows:     []Flow{{Start: 1, End: 5, Src: "10.0.0.1", Dst: "10.0.0.2", Hash: 5, Frames: 2, Bytes: 3000}, {Start: 2}},
		Decisions: []Decision{{At: 3, Scheme: "conga", Uplink: 1, Uplinks: []UplinkSample{{1, 2, 3, 4}}}},
		Events:    []Event{{4, "WARN", "port down"}},
		Drops:     []Drop{{At: 5, Port: 3, Reason: "no_route", Length: 60, Data: []byte("frame")}},
	}
}

func TestRecordComesBack(t *testing.T) {
	var b bytes.Buffer
	want := someDump()
	if err := want.Write(&b); err != nil {
		t.Fatal(err)
	}
	got, err := Read(bytes.NewReader(b.Bytes()))
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Fatalf("%+v, %v", got, err)
	}
	for n := range b.Len() {
		if _, err := Read(bytes.NewReader(b.Bytes()[:n])); err == nil {
			t.Fatalf("%d of %d bytes are taken for a whole record", n, b.Len())
		}
	}
}

func TestRecordRefuses(t *testing.T) {
	zip := func(text string) []byte {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		if _, err := z.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
		z.Close()
		return b.Bytes()
	}
	for want, b := range map[string][]byte{
		"not a flight record: gzip":    []byte("hello there"),
		"does not begin with":          zip(`{"format":"other"}`),
		"of version 2, and this":       zip(`{"format":"loom flight record","version":2}`),
		"line 2 of the flight record:": zip("{\"format\":\"loom flight record\",\"version\":1}\n{\"flow\":7}\n"),
		"was cut off":                  zip("{\"format\":\"loom flight record\",\"version\":1}\n{\"later\":7}\n"),
	} {
		if _, err := Read(bytes.NewReader(b)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func FuzzRead(f *testing.F) {
	var b bytes.Buffer
	if err := someDump().Write(&b); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		d, err := Read(bytes.NewReader(b))
		if err != nil {
			return
		}
		var again bytes.Buffer
		if err := d.Write(&again); err != nil {
			t.Fatal(err)
		}
		if e, err := Read(&again); err != nil || len(e.Flows) != len(d.Flows) {
			t.Fatalf("written again: %v", err)
		}
	})
}
