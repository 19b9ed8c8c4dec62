package loomctl

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket/pcapgo"

	"github.com/loomfabric/loom/internal/capture"
	"github.com/loomfabric/loom/overlay"
)

// someCapture is a stream with a frame at each point: of a tenant, in its tunnel, dropped.
func someCapture(w io.Writer, cut bool) error {
	inner := []byte{2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0,
		0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 1, 0, 1, 10, 1, 0, 2, 0, 7, 0, 53, 0, 8, 0, 0}
	tunnel := overlay.MakeTunnel(vtep2, vtep3, overlay.MAC{2, 1}, overlay.MAC{2, 2}, overlay.DefaultPort)
	outer := append(make([]byte, tunnel.Headers()), inner...)
	tunnel.Encap(outer, len(inner), 100, 7, 0, nil)
	at := time.Unix(1700000000, 123456000).UTC()
	s := capture.NewWriter(w, &capture.Start{Node: "L0", Role: "leafd", Version: "v1", Fast: []string{"up1"}})
	s.Port(&capture.Port{Number: 3, Name: "acc0", Kind: "access"})
	s.Port(&capture.Port{Number: 4, Name: "up0", Kind: "uplink"})
	s.Frame(&capture.Frame{Time: at, Port: 3, Point: capture.In, Len: len(inner), Data: inner, Class: capture.None, Uplink: capture.None})
	s.Frame(&capture.Frame{Time: at.Add(1500), Port: 4, Point: capture.Out, Worker: 1, Len: len(outer) + 50, Data: outer, Here: 1500, Uplink: 0, Scheme: "conga", Flowlet: capture.New, Why: "it has had no flowlet yet"})
	s.Frame(&capture.Frame{Time: at.Add(3000), Port: 3, Point: capture.Drop, Reason: "no_route", Len: len(inner), Data: inner, Class: capture.None, Uplink: capture.None})
	if !cut {
		s.End(&capture.End{Why: "3 frames were captured", Stats: capture.Stats{Ports: []capture.Count{{Port: "acc0", Captured: 2, Lost: 5, Unseen: 1}, {Port: "up0", Captured: 1}}}})
	}
	return s.Flush()
}

// runCapture runs loomctl capture against a daemon that answers so. It returns standard
// output, standard error, and what the daemon was asked.
func runCapture(t *testing.T, cut bool, args ...string) (out, complaints string, asked url.Values, err error) {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = r.URL.Query()
		if err := someCapture(w, cut); err != nil {
			t.Error(err)
		}
	})}
	go func() { _ = server.Serve(l) }() // it ends with Close
	defer server.Close()
	var stdout, stderr bytes.Buffer
	c := Command(&stdout)
	c.SetErr(&stderr)
	c.SetArgs(append([]string{"--socket", socket, "capture"}, args...))
	err = c.Execute()
	return stdout.String(), stderr.String(), asked, err
}

func TestCapturePrints(t *testing.T) {
	out, complaints, _, err := runCapture(t, false)
	if err != nil {
		t.Fatal(err)
	}
	want := ` acc0 10.1.0.1.7 > 10.1.0.2.53 UDP, 42 bytes: in; worker 0
 up0 10.255.0.2 > 10.255.0.3 VNI 100, 10.1.0.1.7 > 10.1.0.2.53 UDP, 142 bytes: out; worker 1; here for 1.5µs; uplink 0; class 0; conga; flowlet new; it has had no flowlet yet
 acc0 10.1.0.1.7 > 10.1.0.2.53 UDP, 42 bytes: dropped: no_route; worker 0
`
	var got strings.Builder
	for line := range strings.Lines(out) {
		_, rest, _ := strings.Cut(line, " ")
		got.WriteString(" " + rest)
	}
	if got.String() != want {
		t.Errorf("printed\n%swant\n%s", got.String(), want)
	}
	if want := "XDP forwards frames of up1 by itself"; !strings.Contains(complaints, want) {
		t.Errorf("said %q, want %q", complaints, want)
	}
	if want := "3 frames captured, 5 lost for want of room, 1 not looked at as a worker was behind: 3 frames were captured\n"; !strings.HasSuffix(complaints, want) {
		t.Errorf("said %q, want %q", complaints, want)
	}
	out, _, _, err = runCapture(t, false, "-o", "json")
	if want := `"port":"up0","point":"out","worker":1,"length":142,"made":false,"here_ns":1500,"here_before":false,"held_ns":0,"class":0,"uplink":0,"scheme":"conga","flowlet":"new"`; err != nil || strings.Count(out, "\n") != 3 || !strings.Contains(out, want) {
		t.Errorf("%v, %s", err, out)
	}
}

// An independent codec reads the file: interfaces, directions, comments, what was lost.
func TestCaptureWritesPcapng(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x.pcapng")
	if err := os.WriteFile(file, []byte("somebody's"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, _, _, err := runCapture(t, false, "-w", file); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("others may read it: %v, %v", info, err)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	out, _, _, err := runCapture(t, false, "-w", "-")
	if err != nil || len(out) != len(b) {
		t.Errorf("%d bytes at standard output, %d in the file, %v", len(out), len(b), err)
	}
	r, err := pcapgo.NewNgReader(bytes.NewReader(b), pcapgo.DefaultNgReaderOptions)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []struct {
		port, comment string
		direction     pcapgo.NgEpbFlag
		length        int
	}{
		{"acc0", "in; worker 0", pcapgo.NgEpbFlagDirectionInbound, 42},
		{"up0", "out; worker 1; here for 1.5µs; uplink 0; class 0; conga; flowlet new; it has had no flowlet yet", pcapgo.NgEpbFlagDirectionOutbound, 142},
		{"acc0", "dropped: no_route; worker 0", pcapgo.NgEpbFlagDirectionUnknown, 42},
	} {
		data, ci, opts, err := r.ReadPacketDataWithOptions()
		if err != nil {
			t.Fatal(err)
		}
		port, err := r.Interface(ci.InterfaceIndex)
		if err != nil {
			t.Fatal(err)
		}
		if port.Name != want.port || len(opts.Comments) != 1 || opts.Comments[0] != want.comment || opts.Flags.Direction != want.direction || ci.Length != want.length {
			t.Errorf("frame %d: port %s, %q, %+v, %+v", i, port.Name, opts.Comments, opts.Flags, ci)
		}
		if at := time.Unix(1700000000, 123456000).Add(time.Duration(i) * 1500); !ci.Timestamp.Equal(at) || len(data) < 42 {
			t.Errorf("frame %d: at %v, want %v", i, ci.Timestamp, at)
		}
	}
	if _, _, err := r.ReadPacketData(); !errors.Is(err, io.EOF) {
		t.Errorf("behind the last frame: %v", err)
	}
	if i, err := r.Interface(0); err != nil || i.Statistics.PacketsReceived != 8 || i.Statistics.PacketsDropped != 6 {
		t.Errorf("%+v, %v", i.Statistics, err)
	}
}

func TestCaptureAsks(t *testing.T) {
	if _, err := exec.LookPath("tcpdump"); err != nil {
		t.Fatal(err) // it compiles the filter
	}
	_, _, asked, err := runCapture(t, false, "--port", "up0,up1", "--drop", "no_route", "--flow", "10.0.0.1,10.0.0.2,tcp,1,2", "--flowlet", "new", "--scheme", "conga", "--point", "out,drop",
		"-s", "96", "-c", "5", "--bytes", "6", "--time", "7s", "--slow", "--outer", "udp", "src", "port", "7")
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"port": "up0,up1", "reason": "no_route", "src": "10.0.0.1", "dst": "10.0.0.2", "proto": "tcp", "sport": "1", "dport": "2", "flowlet": "new", "scheme": "conga",
		"point": "out,drop", "snaplen": "96", "frames": "5", "bytes": "6", "time": "7s", "slow": "true", "outer": "true",
	} {
		if got := asked.Get(name); got != want {
			t.Errorf("%s %q, want %q", name, got, want)
		}
	}
	if f := asked.Get("filter"); len(strings.Fields(f)) < 9 {
		t.Errorf("filter %q", f)
	}
	if _, _, asked, err = runCapture(t, false, "--drop", "any"); err != nil || asked.Get("point") != "drop" || asked.Has("reason") {
		t.Errorf("any drop: %v, %v", asked, err)
	}
}

func TestCaptureFails(t *testing.T) {
	for _, c := range []struct {
		cut  bool
		args []string
		want string
	}{
		{false, []string{"no such filter"}, `filter "no such filter": `},
		{false, []string{"--flow", "10.0.0.1"}, "use SRC,DST or"},
		{false, []string{"--drop", "any", "--point", "in"}, "leave out --point"},
		{false, []string{"-o", "yaml"}, "use -o json"},
		{true, nil, "the capture was cut off"},
		{false, []string{"-w", "/nowhere/x.pcapng"}, "/nowhere/x.pcapng"},
	} {
		if _, _, _, err := runCapture(t, c.cut, c.args...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want %q", c.args, err, c.want)
		}
	}
	if _, err := compileFilter("no-such-tcpdump", "tcp"); err == nil || !strings.Contains(err.Error(), "apt-get install tcpdump") {
		t.Errorf("without tcpdump: %v", err)
	}
}
