package admin

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/loomfabric/loom/internal/events"
	"github.com/loomfabric/loom/internal/httpd"
)

// fakeConfig says what it was asked.
type fakeConfig struct {
	name, text string
	sum        [sha256.Size]byte
}

func (c *fakeConfig) Diff() ConfigDiff { return ConfigDiff{File: "f"} }

func (c *fakeConfig) Check(name string, text []byte) ConfigDiff {
	c.name, c.text = name, string(text)
	return ConfigDiff{File: "f", Live: []string{"scheme"}}
}

func (c *fakeConfig) Reload(_ context.Context, sum [sha256.Size]byte) ConfigDiff {
	c.sum = sum
	return ConfigDiff{File: "f", Applied: true}
}

// writable serves an API on a socket that everybody may connect to.
func writable(t *testing.T, o Options) *Client {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	l, err := httpd.Listen("unix:"+path, "the admin API", "admin.listen")
	if err != nil {
		t.Fatal(err)
	}
	for dir := filepath.Dir(path); len(dir) > len(os.TempDir()); dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(path, 0o777); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- httpd.Serve(ctx, l, NewServer(o), "the admin API", slog.New(slog.DiscardHandler)) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return &Client{Socket: path}
}

func TestActions(t *testing.T) {
	cfg, level := &fakeConfig{}, new(slog.LevelVar)
	c := writable(t, Options{Config: cfg, Level: level, Log: slog.New(slog.DiscardHandler)})
	raw, err := c.Post(t.Context(), "config/check", url.Values{"name": {"new.yaml"}}, []byte("scheme: conga"))
	if err != nil || cfg.name != "new.yaml" || cfg.text != "scheme: conga" || !strings.Contains(string(raw), `"live":["scheme"]`) {
		t.Errorf("check: %s, %v; asked %+v", raw, err, cfg)
	}
	sum := sha256.Sum256([]byte("scheme: conga"))
	raw, err = c.Post(t.Context(), "config/reload", url.Values{"sha256": {hex.EncodeToString(sum[:])}}, nil)
	if err != nil || cfg.sum != sum || !strings.Contains(string(raw), `"applied":true`) {
		t.Errorf("reload: %s, %v", raw, err)
	}
	raw, err = c.Post(t.Context(), "log", url.Values{"level": {"debug"}}, nil)
	if err != nil || level.Level() != slog.LevelDebug || !strings.Contains(string(raw), `"debug"`) {
		t.Errorf("log: %s, %v, level %v", raw, err, level)
	}
	if raw, err = c.Get(t.Context(), "log", nil); err != nil || !strings.Contains(string(raw), `"debug"`) {
		t.Errorf("log: %s, %v", raw, err)
	}
	for _, tt := range []struct {
		path string
		q    url.Values
		says string
	}{
		{"log", url.Values{"level": {"loud"}}, "use debug, info, warn or error"},
		{"log", url.Values{"level": {"info+1"}}, "use debug"},
		{"log", url.Values{"lvl": {"info"}}, "has level"},
		{"config/reload", nil, "give the sum"},
		{"stats", nil, "use GET"},
	} {
		if _, err := c.Post(t.Context(), tt.path, tt.q, nil); err == nil || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s %v: %v, want %q", tt.path, tt.q, err, tt.says)
		}
	}
	if _, err := c.Post(t.Context(), "config/check", nil, make([]byte, maxBody+1)); err == nil || !strings.Contains(err.Error(), "at most") {
		t.Errorf("a long file: %v", err)
	}
	if _, err := c.Get(t.Context(), "config/check", nil); err == nil || !strings.Contains(err.Error(), "use POST") {
		t.Errorf("a question: %v", err)
	}
}

// Somebody who may connect, and is neither root nor the daemon's user, changes nothing.
// Neither does who comes by another way than the Unix socket.
func TestActionsAreForFew(t *testing.T) {
	cfg, level := &fakeConfig{}, new(slog.LevelVar)
	o := Options{Config: cfg, Level: level, Log: slog.New(slog.DiscardHandler), Events: events.NewRing(1)}
	r := httptest.NewRecorder()
	NewServer(o).ServeHTTP(r, httptest.NewRequest(http.MethodPost, "/v1/log?level=debug", nil))
	if r.Code != http.StatusForbidden || level.Level() != slog.LevelInfo {
		t.Errorf("by another way: %d %s", r.Code, r.Body)
	}
	if os.Geteuid() != 0 {
		t.Skip("only root can be somebody else")
	}
	c := writable(t, o)
	failed := make(chan error, 2)
	go func() {
		runtime.LockOSThread() // and end with the thread, which is somebody else by then
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, 65534, 65534, 65534); errno != 0 {
			failed <- errno
			failed <- errno
			return
		}
		conn, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
		if err == nil {
			err = unix.Connect(conn, &unix.SockaddrUnix{Name: c.Socket})
		}
		if err != nil {
			failed <- err
			failed <- err
			return
		}
		defer unix.Close(conn)
		failed <- exchange(conn, "POST /v1/log?level=debug HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n", "user 65534 may look, and change nothing")
		failed <- exchange(conn, "GET /v1/log HTTP/1.1\r\nHost: x\r\n\r\n", `"info"`)
	}()
	for range 2 {
		if err := <-failed; err != nil {
			t.Error(err)
		}
	}
	if level.Level() != slog.LevelInfo {
		t.Errorf("the level is %v", level)
	}
}

// exchange sends a request and looks for a part of the answer.
func exchange(conn int, request, want string) error {
	if _, err := unix.Write(conn, []byte(request)); err != nil {
		return err
	}
	b := make([]byte, 4096)
	n, err := unix.Read(conn, b)
	if err == nil && !strings.Contains(string(b[:n]), want) {
		err = errors.New(string(b[:n]))
	}
	return err
}

func TestEvents(t *testing.T) {
	ring := events.NewRing(4)
	log := slog.New(events.Keep(slog.DiscardHandler, ring))
	for _, text := range []string{"a", "b", "c"} {
		log.Info(text)
	}
	s := NewServer(Options{Events: ring})
	for path, want := range map[string]string{
		"/v1/events": `"last":3,"lost":0`, "/v1/events?since=2": `"text":"c"`, "/v1/events?limit=1": `"lost":2`, "/v1/events?since=3": `"events":[]`, "/v1/events?since=-1": `since \"-1\"`,
	} {
		if _, body := ask(t, s, "GET", path); !strings.Contains(body, want) {
			t.Errorf("%s: %s, want %s", path, body, want)
		}
	}
}
