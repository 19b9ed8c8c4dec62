package web

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/loomfabric/loom/internal/httpd"
)

// TestRingForgets: by age, and by size; a reader who was too slow goes on with what is left.
func TestRingForgets(t *testing.T) {
	start := time.Unix(1e9, 0)
	put := func(r *ring, i int) {
		t.Helper()
		if err := r.add(start.Add(time.Duration(i)*time.Second), []any{&Event{Text: fmt.Sprintf("%03d", i)}}); err != nil {
			t.Fatal(err)
		}
	}
	r := newRing(10*time.Second, 1<<20)
	for i := range 100 {
		put(r, i)
	}
	got := r.after(t.Context(), 5, false)
	if len(got) != 11 || !bytes.Contains(got[0].text, []byte(`"089"`)) || got[10].seq != 100 {
		t.Errorf("%d entries, first %s", len(got), got[0].text)
	}
	if got := r.after(t.Context(), 99, false); len(got) != 1 {
		t.Errorf("%d entries after 99", len(got))
	}
	if got := r.after(t.Context(), 12345, false); len(got) != 11 {
		t.Errorf("%d entries for a page of a loomweb before this one", len(got))
	}
	one := len(got[0].text)
	r = newRing(time.Hour, 5*one)
	for i := range 100 {
		put(r, i)
	}
	if n, size := r.state(); n != 5 || size != 5*one {
		t.Errorf("%d entries of %d bytes", n, size)
	}
}

// served is a loomweb for a fabric.
type served struct {
	url  string
	stop context.CancelFunc
	done chan error
}

// serveFake runs loomweb until the test ends.
func serveFake(t testing.TB, f *fakeFabric, o *options) *served {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if o == nil {
		o = &options{every: 50 * time.Millisecond, keep: time.Minute, memory: 16}
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := &served{url: "http://" + l.Addr().String(), stop: cancel, done: make(chan error, 1)}
	hello := Hello{Type: "hello", Title: "test", Version: "v0", Every: o.every.Milliseconds(), Keep: o.keep.Milliseconds()}
	clock := make(chan struct{})
	go func() {
		defer close(clock)
		for tick := time.NewTicker(o.every); ctx.Err() == nil; <-tick.C {
			f.pass(o.every)
		}
	}()
	go func() { s.done <- serve(ctx, l, hello, f.nodes(), o, slog.New(slog.DiscardHandler)) }()
	t.Cleanup(func() {
		cancel()
		<-clock
		select {
		case err := <-s.done:
			if err != nil {
				t.Errorf("loomweb ended: %v", err)
			}
		case <-time.After(10 * time.Second):
			t.Error("loomweb does not end")
		}
	})
	return s
}

func (s *served) get(t *testing.T, method, path, body string, header ...string) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, s.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		if header[i] == "Host" {
			r.Host = header[i+1]
		}
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(b)
}

// stream reads so many messages of a stream.
func (s *served) stream(t *testing.T, last string, want int) (types []string, id string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+"/api/stream", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Last-Event-ID", last)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	for len(types) < want && lines.Scan() {
		if x, ok := strings.CutPrefix(lines.Text(), "id: "); ok {
			id = x
		}
		if x, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
			var m struct{ Type string }
			if err := json.Unmarshal([]byte(x), &m); err != nil {
				t.Fatal(err)
			}
			types = append(types, m.Type)
		}
	}
	return types, id
}

// TestStream: a page gets hello, layout and frames, and one that comes back gets what it
// missed and nothing twice.
func TestStream(t *testing.T) {
	s := serveFake(t, newFake(2, 2, 2), nil)
	types, id := s.stream(t, "", 9)
	if got := strings.Join(types, " "); got != "hello layout frame event event event event frame frame" || id != "7" {
		t.Errorf("%s, the last is %s", got, id)
	}
	if types, id = s.stream(t, id, 4); strings.Join(types, " ") != "hello layout frame frame" || id != "9" {
		t.Errorf("back again: %q, the last is %s", types, id)
	}
	// The history is the same as a file.
	resp, body := s.get(t, "GET", "/api/history", "", "Accept-Encoding", "gzip")
	z, err := gzip.NewReader(strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(z)
	if err != nil || !strings.HasPrefix(string(text), `{"type":"hello","title":"test"`) || strings.Count(string(text), `{"type":"frame"`) < 4 ||
		strings.Count(string(text), `{"type":"layout"`) != 1 || !strings.Contains(resp.Header.Get("Content-Disposition"), "attachment") {
		t.Errorf("%v, %v: %.300s", err, resp.Header, text)
	}
}

// TestSlowNode: a node that takes its time delays nobody, and is silent after a while.
func TestSlowNode(t *testing.T) {
	f := newFake(2, 1, 1)
	f.slow, f.lazy = make(chan struct{}), "L1"
	defer close(f.slow)
	r := newRing(time.Minute, 1<<20)
	p := newPoller(f.nodes(), 20*time.Millisecond, r, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- p.run(ctx) }()
	var found bool
	for seq, deadline := uint64(0), time.Now().Add(10*time.Second); !found && time.Now().Before(deadline); {
		for _, e := range r.after(ctx, seq, true) {
			seq = e.seq
			var f Frame
			if err := json.Unmarshal(e.text, &f); err != nil {
				t.Fatal(err)
			}
			// L0, S0, and then L1, which has never said what it is.
			found = found || f.Type == "frame" && len(f.Nodes) == 3 && f.Nodes[0] == NodeReady && f.Nodes[1] == NodeReady && f.Nodes[2] == NodeSilent
		}
	}
	cancel()
	if err := <-done; err != nil || !found {
		t.Errorf("run ends with %v; the others were seen beside the slow one: %v", err, found)
	}
}

// TestGuards: what browsers are told, and what is refused.
func TestGuards(t *testing.T) {
	s := serveFake(t, newFake(2, 1, 1), nil)
	resp, body := s.get(t, "GET", "/", "")
	if csp := resp.Header.Get("Content-Security-Policy"); resp.StatusCode != 200 || !strings.Contains(body, "<title>Loom</title>") || !strings.Contains(csp, "default-src 'none'") ||
		strings.Contains(csp, "unsafe") || resp.Header.Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("%d %v", resp.StatusCode, resp.Header)
	}
	if strings.Contains(body, "style=") || strings.Contains(body, "<style") || strings.Contains(body, "onclick") || strings.Contains(body, "http://") || strings.Contains(body, "https://") {
		t.Error("the page has styles, scripts or addresses of its own")
	}
	for _, c := range []struct {
		name, method, path, body string
		header                   []string
		code                     int
		says                     string
	}{
		{"another name", "GET", "/", "", []string{"Host", "evil.example"}, 421, "--name evil.example"},
		{"our name", "GET", "/", "", []string{"Host", "localhost:9480"}, 200, "Loom"},
		{"another site", "POST", "/api/play", "", []string{"Sec-Fetch-Site", "cross-site"}, 403, "cross-origin"},
		{"no file", "POST", "/api/play", "loom\n", nil, 400, "line 1"},
		{"a file", "POST", "/api/play", string(snapshots(newFake(2, 1, 1), 2)), nil, 200, `"type":"frame"`},
		{"no node", "GET", "/api/explain?node=L7", "", nil, 404, "no node"},
		{"a mistake", "GET", "/api/explain?node=L0", "", nil, 400, "src is needed"},
		{"a question", "GET", "/api/explain?node=L0&src=1.2.3.4&dst=1.2.3.5", "", nil, 200, "least metric"},
		{"what is not for pages", "GET", "/api/config?node=L0", "", nil, 404, ""},
		{"a bad place", "GET", "/api/stream?after=x", "", nil, 400, "not a number"},
		{"no file of the page", "GET", "/assets/../command.go", "", nil, 404, ""},
		{"health", "GET", "/healthz", "", nil, 200, "messages"},
	} {
		resp, body := s.get(t, c.method, c.path, c.body, c.header...)
		if resp.StatusCode != c.code || !strings.Contains(body, c.says) {
			t.Errorf("%s: %d %.200s, want %d and %q", c.name, resp.StatusCode, body, c.code, c.says)
		}
	}
}

// TestEndsWithOpenPages: pages that listen keep loomweb from nothing.
func TestEndsWithOpenPages(t *testing.T) {
	s := serveFake(t, newFake(2, 1, 1), nil)
	resp, err := http.Get(s.url + "/api/stream")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	start := time.Now()
	s.stop()
	if _, err := io.ReadAll(resp.Body); err != nil {
		t.Logf("the stream ended with %v", err)
	}
	if err := <-s.done; err != nil || time.Since(start) > 15*time.Second {
		t.Errorf("%v after %v", err, time.Since(start))
	}
	s.done <- nil // for the end of the test
}

// TestFlags: what cannot be is refused before anything is opened.
func TestFlags(t *testing.T) {
	for args, want := range map[string]string{
		"--listen 0.0.0.0:0": "has no password", "--every 1ms": "use 100ms", "--keep 100h": "24h", "--memory 0": "MiB", "--web-config /nowhere": "/nowhere", "--inventory /nowhere/nodes.yaml": "/nowhere/nodes.yaml", "--lab nosuchlab": "nosuchlab", "more": "unknown command",
	} {
		c := Command(t.Name())
		c.SetArgs(strings.Fields(args))
		if err := c.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", args, err, want)
		}
	}
}

// TestTooManyPages: as many streams as are allowed, and no more.
func TestTooManyPages(t *testing.T) {
	s := &server{ring: newRing(time.Minute, 1<<20), ends: t.Context()}
	h := s.handler(httpd.NewGate("the page", 1, time.Second, slog.New(slog.DiscardHandler)))
	for range maxStreams {
		s.streams <- struct{}{}
	}
	w := &recorder{header: make(http.Header)}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1/api/stream", nil)
	if err != nil {
		t.Fatal(err)
	}
	h.ServeHTTP(w, r)
	if w.code != http.StatusServiceUnavailable || !strings.Contains(w.body.String(), "close one") {
		t.Errorf("%d %s", w.code, w.body.String())
	}
}

type recorder struct {
	header http.Header
	code   int
	body   bytes.Buffer
}

func (r *recorder) Header() http.Header         { return r.header }
func (r *recorder) WriteHeader(code int)        { r.code = code }
func (r *recorder) Write(b []byte) (int, error) { return r.body.Write(b) }
