package admin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"path/filepath"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/bpf"

	"github.com/loomfabric/loom/dataplane"
	"github.com/loomfabric/loom/internal/capture"
	"github.com/loomfabric/loom/internal/drop"
	"github.com/loomfabric/loom/internal/httpd"
	"github.com/loomfabric/loom/overlay"
)

// fakeCapture has as many frames as it is told.
type fakeCapture struct {
	frames  atomic.Int64 // left
	data    []byte
	made    uint64
	closed  chan struct{}
	closing atomic.Bool
}

func (c *fakeCapture) Each(do func(*capture.Frame)) (n int) {
	for ; n < 100 && c.frames.Load() > 0; n++ {
		c.frames.Add(-1)
		c.made++
		do(&capture.Frame{Port: uint16(c.made & 1), Point: capture.Out, Len: len(c.data), Data: c.data, Class: capture.None, Uplink: capture.None})
	}
	return n
}

func (c *fakeCapture) Port(n uint16) capture.Port {
	return capture.Port{Number: n, Name: fmt.Sprintf("up%d", n), Kind: "uplink"}
}
func (c *fakeCapture) Ports() []capture.Port { return []capture.Port{c.Port(0)} }
func (c *fakeCapture) Fast() []string        { return []string{"up7"} }
func (c *fakeCapture) Stats() capture.Stats {
	return capture.Stats{Ports: []capture.Count{{Port: "up0", Captured: c.made, Lost: 3}}}
}
func (c *fakeCapture) Close() {
	if !c.closing.Swap(true) {
		close(c.closed)
	}
}

// captureServer serves captures at a socket. stop ends the server.
func captureServer(t *testing.T, frames int64, data int, stall time.Duration) (client *Client, c *fakeCapture, stop func()) {
	t.Helper()
	c = &fakeCapture{closed: make(chan struct{}), data: make([]byte, data)}
	c.frames.Store(frames)
	h := NewServer(Options{Name: "L0", Role: "leafd", Leaf: true, Version: "v1", stall: stall, Capture: func(dataplane.CaptureConfig) (Capture, error) { return c, nil }})
	socket := filepath.Join(t.TempDir(), "s")
	l, err := httpd.Listen("unix:"+socket, "the admin API", "admin.listen")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- httpd.Serve(ctx, l, h, "the admin API", slog.New(slog.DiscardHandler)) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return &Client{Socket: socket}, c, cancel
}

// drain reads a stream to its end.
func drain(t *testing.T, s *CaptureStream) (frames int, ports []string, end *capture.End) {
	t.Helper()
	for {
		v, err := s.Next()
		if err != nil {
			t.Fatal(err)
		}
		switch x := v.(type) {
		case *capture.Frame:
			frames++
		case *capture.Port:
			ports = append(ports, x.Name)
		case *capture.End:
			return frames, ports, x
		}
	}
}

func (c *fakeCapture) mustClose(t *testing.T) {
	t.Helper()
	select {
	case <-c.closed:
	case <-time.After(20 * time.Second):
		t.Fatal("the capture goes on")
	}
}

// What ends a capture: the client's bound, the client's wish, the end of the daemon. Each
// time the stream says why, and what was counted.
func TestCaptureEnds(t *testing.T) {
	for _, how := range []string{"frames", "bytes", "time", "wish", "daemon"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			client, c, stop := captureServer(t, 500, 100, 0)
			q, want, count := url.Values{}, "the client has ended it", 500
			switch how {
			case "frames":
				q.Set("frames", "123")
				want, count = "123 frames were captured", 123
			case "bytes":
				q.Set("bytes", "950")
				want, count = "1000 bytes were captured", 10
			case "time":
				q.Set("time", "1500ms")
				want = "1.5s are over"
			}
			s, err := client.Capture(context.Background(), q)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			if x := s.Start(); x.Node != "L0" || len(x.Fast) != 1 {
				t.Errorf("begins with %+v", x)
			}
			switch how {
			case "wish", "daemon":
				for c.frames.Load() > 0 {
					time.Sleep(time.Millisecond)
				}
				if how == "daemon" {
					stop()
				} else if err := s.Enough(); err != nil {
					t.Fatal(err)
				}
			}
			frames, ports, end := drain(t, s)
			if frames != count || !strings.Contains(end.Why, want) || end.Sum().Lost != 3 || fmt.Sprint(ports) != "[up0 up1]" {
				t.Errorf("%d frames of %v, end %+v", frames, ports, end)
			}
			if _, err := s.Next(); !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("behind the end: %v", err)
			}
			c.mustClose(t)
		})
	}
}

// A client that goes, or that reads nothing, is found out; a capture that goes on for
// longer than any answer may take is none of these.
func TestCaptureClients(t *testing.T) {
	t.Run("gone", func(t *testing.T) {
		t.Parallel()
		client, c, _ := captureServer(t, 0, 100, 0)
		s, err := client.Capture(context.Background(), nil)
		if err != nil {
			t.Fatal(err)
		}
		s.Close()
		c.mustClose(t)
	})
	t.Run("stalled", func(t *testing.T) {
		t.Parallel()
		client, c, _ := captureServer(t, 1<<40, 1000, 300*time.Millisecond)
		s, err := client.Capture(context.Background(), url.Values{"bytes": {"1000000000000"}})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		c.mustClose(t)
	})
	t.Run("patient", func(t *testing.T) {
		t.Parallel()
		client, c, _ := captureServer(t, 0, 100, 0)
		s, err := client.Capture(context.Background(), url.Values{"frames": {"1"}})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		time.Sleep(6 * time.Second) // a request has 5 to come
		c.frames.Store(1)
		if frames, _, _ := drain(t, s); frames != 1 {
			t.Errorf("%d frames", frames)
		}
	})
}

func TestParseCapture(t *testing.T) {
	q := func(text string) url.Values {
		v, err := url.ParseQuery(text)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	r, err := parseCapture(q("port=up0,up1&point=out,drop&reason=no_route,ttl_expired&scheme=conga&flowlet=new,moved&src=10.0.0.1&dst=10.0.0.2&proto=tcp&sport=7&dport=80" +
		"&filter=2+40+0+0+12+6+0+0+262144&snaplen=96&slow=true&frames=5&bytes=6&time=7s"))
	if err != nil {
		t.Fatal(err)
	}
	want := captureRequest{frames: 5, bytes: 6, time: 7 * time.Second, CaptureConfig: dataplane.CaptureConfig{
		Ports: []string{"up0", "up1"}, Points: capture.Out | capture.Drop, Reasons: []drop.Reason{drop.NoRoute, drop.TTLExpired}, Schemes: []string{"conga"},
		Flowlets: capture.New | capture.Moved, SnapLen: 96, Slow: true, Filter: []bpf.RawInstruction{{Op: 40, K: 12}, {Op: 6, K: 262144}},
		Flow: &dataplane.Flow{Src: netip.MustParseAddr("10.0.0.1"), Dst: netip.MustParseAddr("10.0.0.2"), Proto: overlay.ProtoTCP, SrcPort: 7, DstPort: 80},
	}}
	if !reflect.DeepEqual(*r, want) {
		t.Errorf("%+v\nwant %+v", *r, want)
	}
	if r, err := parseCapture(nil); err != nil || r.bytes != defaultCaptureBytes || r.time != defaultCaptureTime || r.frames != 0 {
		t.Errorf("%+v, %v", r, err)
	}
	for text, want := range map[string]string{
		"frame=5":                              `parameter "frame" does not exist: /v1/capture has port`,
		"frames=0":                             `frames "0": use 1 to`,
		"bytes=-1":                             `bytes "-1": use 1 to`,
		"snaplen=99999":                        `snaplen "99999": use 1 to 9216`,
		"time=25h":                             `time "25h": use up to 24h`,
		"outer=maybe":                          `outer "maybe": use true or false`,
		"point=up":                             `point "up" does not exist`,
		"flowlet=old":                          `flowlet "old" does not exist`,
		"reason=none":                          `reason "none" does not exist`,
		"filter=2+40+0+0+12":                   "no program of classic BPF",
		"filter=1+40+0+0+x":                    `"x" is no number`,
		"filter=1+40+300+0+1":                  `"300" is no number`,
		"src=10.0.0.1":                         "dst is needed",
		"proto=tcp&dport=80":                   "src is needed",
		"src=10.0.0.1&dst=fd00::1":             "of two IP versions",
		"src=10.0.0.1&dst=02:00:00:00:00:01":   "give two of a kind",
		"src=10.0.0.1&dst=10.0.0.2&proto=nope": `proto "nope"`,
		"src=10.0.0.1&dst=10.0.0.2&sport=5":    `sport "5": use 0 to 65535, with proto`,
	} {
		if _, err := parseCapture(q(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// A capture that cannot be says so as other answers do.
func TestCaptureRefused(t *testing.T) {
	for err, status := range map[error]int{errors.New("there is no port eth9"): http.StatusBadRequest, dataplane.ErrCaptures: http.StatusServiceUnavailable} {
		c := writable(t, Options{Capture: func(dataplane.CaptureConfig) (Capture, error) { return nil, err }})
		var said *Error
		if _, got := c.Capture(t.Context(), nil); !errors.As(got, &said) || said.Status != status || !strings.Contains(said.Text, err.Error()) {
			t.Errorf("%v", got)
		}
	}
}
