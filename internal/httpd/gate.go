package httpd

import (
	"bytes"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"sync"
	"time"
)

// quietFor is how long a gate says nothing more about requests that it refused.
const quietFor = time.Minute

// Gate bounds what requests cost that ask a part of the daemon which may not answer: how
// many are at work at a time, and how long each client waits for its own. A request that
// takes too long is at work until it ends, although its client has been told; so a part
// that is stuck has a few requests waiting for it and not all that ever came.
type Gate struct {
	what    string
	timeout time.Duration
	slots   chan struct{}
	log     *slog.Logger

	mu    sync.Mutex
	stats Refused
	spoke time.Time // when the log was told last
}

// Refused counts requests that got an error for an answer.
type Refused struct {
	_ struct{} `stat:"http"`

	Busy    uint64 `stat:"requests_refused{reason=busy}" help:"HTTP requests that were answered with 503." about:"As many as may be were waiting for their answers."`
	Timeout uint64 `stat:"requests_refused{reason=timeout}" help:"HTTP requests that were answered with 503." about:"The answer took too long: a worker is stuck, or the machine is overloaded."`
}

// NewGate returns a gate that lets so many requests through at a time, and gives each of
// them so long. what is for errors and the log.
func NewGate(what string, requests int, timeout time.Duration, log *slog.Logger) *Gate {
	return &Gate{what: what, timeout: timeout, slots: make(chan struct{}, requests), log: log}
}

// Refused returns what was refused so far. It is 0 of no gate (nil).
func (g *Gate) Refused() Refused {
	if g == nil {
		return Refused{}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.stats
}

// Bound returns h behind the gate. h must be done with the request when it returns. Its
// answer is kept until it is complete: who reads slowly keeps nobody else out. No gate
// (nil) bounds nothing.
func (g *Gate) Bound(h http.Handler) http.Handler {
	if g == nil {
		return h
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case g.slots <- struct{}{}:
		default:
			g.refuse(w, &g.stats.Busy, fmt.Sprintf("%d requests are waiting for their answers: try again", cap(g.slots)))
			return
		}
		a := &answer{header: make(http.Header)}
		done, late := make(chan any, 1), time.NewTimer(g.timeout)
		defer late.Stop()
		go func() {
			defer func() {
				<-g.slots
				done <- recover() // nil: it returned
			}()
			h.ServeHTTP(a, r)
		}()
		select {
		case failure := <-done:
			if failure != nil {
				panic(failure) // for the server, which logs it and closes the connection
			}
			a.send(w)
		case <-late.C:
			g.refuse(w, &g.stats.Timeout, fmt.Sprintf("no answer within %v: a worker is stuck, or the machine is overloaded; see the log", g.timeout))
			go func() {
				if failure := <-done; failure != nil {
					g.log.Error("a request for "+g.what+" failed after its client was told that it takes too long", "path", r.URL.Path, "panic", failure)
				}
			}()
		}
	})
}

// refuse answers with an error, counts it, and logs it unless it did so lately.
func (g *Gate) refuse(w http.ResponseWriter, counter *uint64, why string) {
	g.mu.Lock()
	*counter++
	speak := time.Since(g.spoke) >= quietFor
	if speak {
		g.spoke = time.Now()
	}
	s := g.stats
	g.mu.Unlock()
	if speak {
		g.log.Warn("a request was refused", "for", g.what, "why", why, "busy", s.Busy, "timeout", s.Timeout)
	}
	w.Header().Set("Retry-After", "1")
	WriteJSON(w, http.StatusServiceUnavailable, map[string]string{"error": g.what + ": " + why})
}

// answer keeps what a handler answers.
type answer struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (a *answer) Header() http.Header { return a.header }

func (a *answer) WriteHeader(status int) {
	if a.status == 0 {
		a.status = status
	}
}

func (a *answer) Write(b []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	return a.body.Write(b)
}

func (a *answer) send(w http.ResponseWriter) {
	maps.Copy(w.Header(), a.header)
	a.WriteHeader(http.StatusOK)
	w.WriteHeader(a.status)
	_, _ = w.Write(a.body.Bytes()) // the client is gone: nobody to tell
}
