package httpd

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"
)

// client asks over the socket at path, with a connection a request.
func client(path string) *http.Client {
	return &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", path)
		},
	}}
}

// blocked is a server over a socket, with a request in progress that ends when
// release is closed.
type blocked struct {
	path    string
	release chan struct{}
	cancel  context.CancelFunc
	served  chan error
	answer  chan string // the request's status, or its error
}

func newBlocked(t *testing.T) *blocked {
	t.Helper()
	b := &blocked{path: socketPath(t), release: make(chan struct{}), served: make(chan error, 1), answer: make(chan string, 1)}
	inside := make(chan struct{})
	handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(inside)
		<-b.release
		WriteJSON(w, http.StatusOK, "at last")
	})
	l, err := Listen("unix:"+b.path, "metrics", "telemetry.listen")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	b.cancel = cancel
	go func() { b.served <- Serve(ctx, l, handler, "metrics", slog.New(slog.DiscardHandler)) }()
	go func() {
		r, err := client(b.path).Get("http://daemon/")
		if err != nil {
			b.answer <- err.Error()
			return
		}
		defer r.Body.Close()
		if _, err := io.ReadAll(r.Body); err != nil {
			b.answer <- err.Error()
			return
		}
		b.answer <- r.Status
	}()
	<-inside
	return b
}

func TestShutdownLetsRequestsFinish(t *testing.T) {
	b := newBlocked(t)
	b.cancel()
	for refused := false; !refused; time.Sleep(time.Millisecond) {
		c, err := net.Dial("unix", b.path)
		if refused = err != nil; !refused {
			c.Close()
		}
	}
	if _, err := os.Stat(b.path); !os.IsNotExist(err) {
		t.Errorf("the socket is still there: %v", err)
	}
	select {
	case err := <-b.served:
		t.Errorf("Serve returned %v before the request was answered", err)
	default:
	}
	close(b.release)
	if got := <-b.answer; got != "200 OK" {
		t.Errorf("the request in progress got %s", got)
	}
	if err := <-b.served; err != nil {
		t.Errorf("Serve: %v", err)
	}
}

func TestShutdownDoesNotWaitForEver(t *testing.T) {
	t.Parallel()
	b := newBlocked(t)
	defer close(b.release)
	b.cancel()
	select {
	case err := <-b.served:
		if err != nil {
			t.Errorf("Serve: %v", err)
		}
	case <-time.After(shutdownWait + 8*time.Second):
		t.Fatal("Serve waits for a request that does not end")
	}
	if got := <-b.answer; !strings.Contains(got, "EOF") {
		t.Errorf("the request that does not end got %s", got)
	}
}

func TestServeReportsALostListener(t *testing.T) {
	l, err := Listen("127.0.0.1:0", "metrics", "telemetry.listen")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	err = Serve(t.Context(), l, http.NotFoundHandler(), "metrics", slog.New(slog.DiscardHandler))
	if err == nil || !strings.Contains(err.Error(), l.Addr().String()) {
		t.Errorf("the error does not name %v: %v", l.Addr(), err)
	}
}

func TestWhatCannotBeEncodedIsAnError(t *testing.T) {
	w := httptest.NewRecorder()
	WriteJSON(w, http.StatusOK, math.NaN())
	var answer struct{ Error string }
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil || w.Code != http.StatusInternalServerError || !strings.Contains(answer.Error, "NaN") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}
