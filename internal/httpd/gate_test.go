package httpd

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"
)

// ask sends a request to a handler.
func ask(h http.Handler) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
	return w
}

// TestGateGivesUp: a part that is stuck costs a client some time and the daemon as many
// requests as the gate lets through. When it answers again, so does the daemon.
func TestGateGivesUp(t *testing.T) {
	var log strings.Builder
	g := NewGate("metrics", 2, 20*time.Millisecond, slog.New(slog.NewTextHandler(&log, nil)))
	stuck := make(chan struct{})
	atWork := make(chan struct{}, 10)
	h := g.Bound(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		atWork <- struct{}{}
		<-stuck
		WriteJSON(w, http.StatusTeapot, "at last")
	}))
	for i := range 5 {
		start := time.Now()
		w := ask(h)
		why := "no answer within 20ms"
		if i >= 2 {
			why = "2 requests are waiting"
		}
		if w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), `{"error":"metrics: `+why) || w.Header().Get("Retry-After") == "" {
			t.Errorf("request %d: %d %v %s, want %q", i, w.Code, w.Header(), w.Body, why)
		}
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("request %d took %v", i, took)
		}
	}
	if n := len(atWork); n != 2 {
		t.Errorf("%d requests are at work, want 2", n)
	}
	if got, want := g.Refused(), (Refused{Busy: 3, Timeout: 2}); got != want {
		t.Errorf("refused %+v, want %+v", got, want)
	}
	if n := strings.Count(log.String(), "\n"); n != 1 || !strings.Contains(log.String(), "metrics") {
		t.Errorf("the log has %d lines: %s", n, log.String())
	}
	close(stuck)
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(time.Millisecond) {
		w := ask(h)
		if w.Code == http.StatusTeapot && w.Body.String() == "\"at last\"\n" && w.Header().Get("Content-Type") == "application/json" {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("after the part is free: %d %s", w.Code, w.Body)
		}
	}
}

// A handler that panics is the server's business, as without a gate; one that does so
// after its client has gone does not end the daemon. Neither keeps its slot.
func TestGateAndPanics(t *testing.T) {
	g := NewGate("metrics", 1, 10*time.Millisecond, slog.New(slog.DiscardHandler))
	wait := make(chan struct{})
	h := g.Bound(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		<-wait
		panic("broken")
	}))
	if w := ask(h); w.Code != http.StatusServiceUnavailable {
		t.Errorf("%d", w.Code)
	}
	close(wait)
	for deadline := time.Now().Add(5 * time.Second); len(g.slots) > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the request that failed has its slot")
		}
	}
	g.timeout = time.Minute
	defer func() {
		if got := recover(); got != "broken" || len(g.slots) != 0 {
			t.Errorf("the server hears of %v, %d slots are taken", got, len(g.slots))
		}
	}()
	ask(h)
}

// Without a gate nothing is bounded, and nothing counted.
func TestNoGate(t *testing.T) {
	var g *Gate
	h := http.NotFoundHandler()
	if w := ask(g.Bound(h)); w.Code != http.StatusNotFound || g.Refused() != (Refused{}) {
		t.Errorf("%d", w.Code)
	}
}

// serve serves at a socket until the test ends.
func serve(t *testing.T, h http.Handler) (path string) {
	t.Helper()
	path = socketPath(t)
	l, err := Listen("unix:"+path, "metrics", "telemetry.listen")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- Serve(ctx, l, h, "metrics", slog.New(slog.DiscardHandler)) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return path
}

func dial(t *testing.T, path string) net.Conn {
	t.Helper()
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// TestSlowClients: clients that take their time keep nobody else from an answer: one that
// reads nothing, and one that does not end its request, which is sent away.
func TestSlowClients(t *testing.T) {
	t.Parallel()
	g := NewGate("metrics", 1, time.Minute, slog.New(slog.DiscardHandler))
	large := strings.Repeat("a lot ", 1<<20) // more than a socket holds
	path := serve(t, g.Bound(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, large) })))
	lazy, endless := dial(t, path), dial(t, path)
	start := time.Now()
	fmt.Fprint(lazy, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	fmt.Fprint(endless, "GET / HTTP/1.1\r\nHost: x\r\n")
	if _, err := bufio.NewReader(lazy).ReadByte(); err != nil { // it is being answered
		t.Fatal(err)
	}
	for range 5 {
		r, err := client(path).Get("http://daemon/")
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(r.Body)
		r.Body.Close()
		if err != nil || r.StatusCode != http.StatusOK || string(body) != large {
			t.Errorf("beside slow clients: %s, %d bytes, %v", r.Status, len(body), err)
		}
	}
	for err := error(nil); err == nil; {
		fmt.Fprint(endless, "X-Slow: y\r\n")
		if err = endless.SetReadDeadline(time.Now().Add(200 * time.Millisecond)); err == nil {
			_, err = io.ReadAll(endless)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				err = nil
			} else if err == nil {
				err = io.EOF
			}
		}
		if took := time.Since(start); took > headerTimeout+5*time.Second {
			t.Fatalf("a request without an end is waited for after %v", took)
		}
	}
}

// TestConnectionsAreLimited: connections that are opened and left alone are bounded, and
// make room in time.
func TestConnectionsAreLimited(t *testing.T) {
	t.Parallel()
	path := serve(t, http.NotFoundHandler())
	for range maxConnections {
		dial(t, path)
	}
	c := client(path)
	c.Timeout = 500 * time.Millisecond
	if r, err := c.Get("http://daemon/"); err == nil {
		r.Body.Close()
		t.Errorf("connection %d of %d is served", maxConnections+1, maxConnections)
	}
	c.Timeout = headerTimeout + 5*time.Second
	r, err := c.Get("http://daemon/")
	if err != nil {
		t.Fatalf("connections that say nothing keep others out: %v", err)
	}
	r.Body.Close()
}
