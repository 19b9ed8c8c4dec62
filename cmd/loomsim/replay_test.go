package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/loomfabric/loom/internal/record"
)

// dumpFile writes a record of a leaf whose flows collide: all at once, over two uplinks.
func dumpFile(t *testing.T, change func(*record.Dump)) string {
	t.Helper()
	d := &record.Dump{Header: record.Header{Node: "L0", VTEP: "10.0.0.1", Scheme: "ecmp", Ports: []record.Port{
		{Number: 0, Name: "up0", Kind: "uplink", Rate: 1e9}, {Number: 1, Name: "up1", Kind: "uplink", Rate: 1e9}, {Number: 2, Name: "h0", Kind: "access", Rate: 1e9},
	}}}
	for i := range 12 {
		start := int64(1e18) + int64(i)*1e6
		d.Flows = append(d.Flows, record.Flow{Start: start, End: start + 2e7, Src: "10.0.0.1", Dst: "10.0.0.2", Hash: uint32(i) * 0x9E3779B1, Frames: 1000, Bytes: 1514000})
	}
	d.Flows = append(d.Flows, record.Flow{Start: 1e18, End: 1e18, Src: "10.0.0.1", Dst: "10.0.0.2", Frames: 500, Bytes: 500 * 66})
	sample := func(a, b, drops uint64) record.Sample {
		return record.Sample{Ports: []record.PortSample{{Number: 0, TxBytes: a}, {Number: 1, TxBytes: b, Dropped: drops}, {Number: 2}}}
	}
	d.Samples = []record.Sample{sample(0, 0, 5), sample(3000, 1000, 12)}
	if change != nil {
		change(d)
	}
	path := filepath.Join(t.TempDir(), "x.loom")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := d.Write(f); err != nil {
		t.Fatal(err)
	}
	return path
}

// The same flows run under each scheme; what was stands above.
func TestReplay(t *testing.T) {
	var out bytes.Buffer
	if err := replay(t.Context(), &out, []string{dumpFile(t, nil)}, []string{"ecmp", "reed"}, 0, 0); err != nil {
		t.Fatal(err)
	}
	text := out.String()
	if want := "12 flows of 11ms between 2 leaves by 2 uplinks of 1Gbit, hosts' links of 1Gbit; 1 flows of short frames are left out"; !strings.HasPrefix(text, want) {
		t.Errorf("want %q in\n%s", want, text)
	}
	lines := strings.Split(strings.TrimSpace(text), "\n")
	if len(lines) != 6 {
		t.Fatalf("%s", text)
	}
	if f := strings.Fields(lines[3]); f[1] != "ecmp" || f[2] != "12" || f[4] != "20ms" || f[7] != "100%" || f[9] != "75.0%" || f[10] != "25.0%" || f[11] != "7" {
		t.Errorf("what was: %q", f)
	}
	for i, scheme := range []string{"ecmp", "reed"} {
		if f := strings.Fields(lines[4+i]); f[0] != scheme || f[1] != "12" || f[2] != "0" {
			t.Errorf("%q", f)
		}
	}
	if lines[4] == strings.Replace(lines[5], "reed", "ecmp", 1) {
		t.Error("two schemes do the same")
	}
}

func TestReplayRefuses(t *testing.T) {
	spine := dumpFile(t, func(d *record.Dump) { d.VTEP = "" })
	quiet := dumpFile(t, func(d *record.Dump) { d.Flows = nil })
	slow := dumpFile(t, func(d *record.Dump) { d.Ports[0].Rate, d.Ports[1].Rate = 0, 0 })
	for file, want := range map[string]string{spine: "it is of a spine", quiet: "no flows", slow: "give --rate", "/nowhere/x.loom": "/nowhere/x.loom"} {
		if err := replay(t.Context(), new(bytes.Buffer), []string{file}, []string{"ecmp"}, 0, 0); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", file, err, want)
		}
	}
	if err := replay(t.Context(), new(bytes.Buffer), []string{slow}, []string{"ecmp"}, 1e9, 0); err != nil {
		t.Errorf("with --rate: %v", err)
	}
	if err := replay(t.Context(), new(bytes.Buffer), []string{dumpFile(t, nil)}, []string{"nonesuch"}, 0, 0); err == nil || !strings.Contains(err.Error(), "nonesuch") {
		t.Errorf("a scheme that does not exist: %v", err)
	}
}
