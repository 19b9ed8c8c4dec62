// Package httpd opens the addresses that a daemon answers HTTP at, and serves there
// until the daemon ends. It must not know what is asked.
package httpd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"golang.org/x/net/netutil"
)

// Bounds on what clients can cost.
const (
	// AnswerTimeout is how long an answer may take.
	AnswerTimeout = 30 * time.Second

	// headerTimeout is how long a request may take to come. Nobody is asked for more
	// than a line and a few headers.
	headerTimeout = 5 * time.Second
	maxHeader     = 16 << 10
	idleTimeout   = 30 * time.Second
	// maxConnections is how many clients are served at a time; the others wait.
	maxConnections = 128
	// shutdownWait is how long requests in progress have when the daemon ends.
	shutdownWait = 2 * time.Second
)

// Serve answers requests until ctx ends, lets those in progress finish for a
// short while, and closes the listener. The error says why serving ended before
// ctx did; what is served there is for it and for the log.
func Serve(ctx context.Context, l net.Listener, h http.Handler, what string, log *slog.Logger) error {
	return serveBy(ctx, l, h, what, log, (*http.Server).Serve)
}

// serveBy is Serve with what a server does with the connections that it accepts.
func serveBy(ctx context.Context, l net.Listener, h http.Handler, what string, log *slog.Logger, accept func(*http.Server, net.Listener) error) error {
	s := &http.Server{
		Handler: h, ReadTimeout: headerTimeout, WriteTimeout: AnswerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader,
		BaseContext: func(net.Listener) context.Context { return ctx }, // an answer without an end hears of the daemon's
		ErrorLog:    slog.NewLogLogger(log.Handler(), slog.LevelWarn), ConnContext: withPeer,
	}
	done := make(chan error, 1)
	go func() { done <- accept(s, netutil.LimitListener(peers{l}, maxConnections)) }()
	log.Info("serving "+what, "address", l.Addr().String())
	select {
	case err := <-done:
		return fmt.Errorf("serve %s at %s: %w", what, l.Addr(), err)
	case <-ctx.Done():
	}
	wait, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownWait)
	defer cancel()
	err := s.Shutdown(wait)
	if errors.Is(err, context.DeadlineExceeded) {
		log.Warn("requests were cut off at shutdown", "after", shutdownWait)
		err = s.Close()
	}
	if ended := <-done; err == nil && !errors.Is(ended, http.ErrServerClosed) {
		err = ended
	}
	return err
}

// WriteJSON answers with v.
func WriteJSON(w http.ResponseWriter, status int, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		status = http.StatusInternalServerError
		b, _ = json.Marshal(map[string]string{"error": "the answer cannot be encoded: " + err.Error()})
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(b, '\n')) // the client is gone: nobody to tell
}
