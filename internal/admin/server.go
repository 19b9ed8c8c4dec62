package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/loomfabric/loom/dataplane"
)

const (
	headerTimeout = 5 * time.Second
	answerTimeout = 30 * time.Second
	shutdownWait  = 2 * time.Second

	// The numbers of entries that are listed by default, and at most.
	defaultFlowlets = 100
	defaultFDB      = 1000
	maxLimit        = 1 << 24
)

// Node answers as a [dataplane.Node] does.
type Node interface {
	Stats() dataplane.Stats
	Congestion() []dataplane.PeerState
	Flowlets(limit int) []dataplane.FlowletTable
	FDB(limit int) dataplane.FDBTable
	ConWeave(limit int) *dataplane.ConWeaveState
	Explain(f *dataplane.Flow) (*dataplane.Explanation, error)
}

// Options says what is served. Its functions are called at each request, from
// several goroutines at a time.
type Options struct {
	Name    string // of the node
	Role    string // "leafd" or "spined"
	Leaf    bool
	Version string
	Node    Node
	Tables  func() *dataplane.Tables // nil result: none were published yet
	Ports   []dataplane.PortConfig   // by PortID
	Log     *slog.Logger
}

// Server answers the admin API.
type Server struct {
	Options
	mux *http.ServeMux
}

// endpoint answers a query; the error is a mistake of the caller's.
type endpoint struct {
	path       string
	leaf       bool     // a spine has nothing to say
	parameters []string // that it knows
	answer     func(*Server, url.Values) (any, error)
}

var endpoints = []endpoint{
	{"ports", false, nil, func(s *Server, _ url.Values) (any, error) {
		st := s.Node.Stats()
		return ports(s.Ports, &st, s.Tables()), nil
	}},
	{"peers", true, nil, func(s *Server, _ url.Values) (any, error) {
		st := s.Node.Stats()
		return peers(s.Ports, &st, s.Tables(), s.Node.Congestion()), nil
	}},
	{"conga", true, nil, func(s *Server, _ url.Values) (any, error) {
		return Conga{orEmpty(s.Node.Congestion())}, nil
	}},
	{"flowlets", true, []string{"limit"}, func(s *Server, q url.Values) (any, error) {
		n, err := limit(q, defaultFlowlets)
		if err != nil {
			return nil, err
		}
		return Flowlets{orEmpty(s.Node.Flowlets(n))}, nil
	}},
	{"conweave", true, []string{"limit"}, answerConWeave},
	{"fdb", true, []string{"limit"}, func(s *Server, q url.Values) (any, error) {
		n, err := limit(q, defaultFDB)
		if err != nil {
			return nil, err
		}
		return s.Node.FDB(n), nil
	}},
	{"explain", true, flowParameters, func(s *Server, q url.Values) (any, error) {
		f, err := parseFlow(q, s.Tables())
		if err != nil {
			return nil, err
		}
		return s.Node.Explain(f)
	}},
	{"stats", false, nil, func(s *Server, _ url.Values) (any, error) {
		st := s.Node.Stats()
		answer := stats(&st)
		answer.Name, answer.Role, answer.Version = s.Name, s.Role, s.Version
		return answer, nil
	}},
}

// orEmpty makes a list that JSON does not write as null.
func orEmpty[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}

func limit(q url.Values, def int) (int, error) {
	text := q.Get("limit")
	if text == "" {
		return def, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 || n > maxLimit {
		return 0, fmt.Errorf("limit %q: use 0 to %d", text, maxLimit)
	}
	return n, nil
}

// NewServer returns a server; [Server.Serve] does the work.
func NewServer(o Options) *Server {
	s := &Server{Options: o, mux: http.NewServeMux()}
	known := make([]string, len(endpoints))
	for i := range endpoints {
		e := &endpoints[i]
		known[i] = "/v1/" + e.path
		s.mux.HandleFunc(known[i], func(w http.ResponseWriter, r *http.Request) { s.serve(e, w, r) })
	}
	s.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		s.write(w, http.StatusNotFound, Failure{fmt.Sprintf("%s does not exist; there are %s", r.URL.Path, strings.Join(known, ", "))})
	})
	return s
}

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

func (s *Server) serve(e *endpoint, w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		s.write(w, http.StatusMethodNotAllowed, Failure{r.Method + " is not possible: the API only reads, use GET"})
		return
	}
	if e.leaf && !s.Leaf {
		s.write(w, http.StatusNotFound, Failure{fmt.Sprintf("a spine has no %s: ask a leaf", e.path)})
		return
	}
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err == nil {
		err = checkParameters(e, q)
	}
	if err != nil {
		s.write(w, http.StatusBadRequest, Failure{err.Error()})
		return
	}
	if e.path == "explain" && s.Tables() == nil {
		s.write(w, http.StatusServiceUnavailable, Failure{"the node has no tables yet: try again when it is ready"})
		return
	}
	answer, err := e.answer(s, q)
	if err != nil {
		s.write(w, http.StatusBadRequest, Failure{err.Error()})
		return
	}
	s.write(w, http.StatusOK, answer)
}

// checkParameters refuses what would be ignored.
func checkParameters(e *endpoint, q url.Values) error {
	for name, values := range q {
		if !slices.Contains(e.parameters, name) {
			if len(e.parameters) == 0 {
				return fmt.Errorf("parameter %q does not exist: /v1/%s has none", name, e.path)
			}
			return fmt.Errorf("parameter %q does not exist: /v1/%s has %s", name, e.path, strings.Join(e.parameters, ", "))
		}
		if len(values) > 1 {
			return fmt.Errorf("parameter %q is given %d times", name, len(values))
		}
	}
	return nil
}

func (s *Server) write(w http.ResponseWriter, status int, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		s.Log.Error("encode answer", "err", err)
		http.Error(w, `{"error": "the answer cannot be encoded; the daemon's log says why"}`, http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(b, '\n')) // the client is gone: nobody to tell
}

// Serve answers requests until ctx ends, lets those in progress finish for a
// short while, and closes the listener. The error says why serving ended before
// ctx did.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	h := &http.Server{
		Handler: s, ReadHeaderTimeout: headerTimeout, WriteTimeout: answerTimeout,
		ErrorLog: slog.NewLogLogger(s.Log.Handler(), slog.LevelWarn),
	}
	done := make(chan error, 1)
	go func() { done <- h.Serve(l) }()
	s.Log.Info("serving the admin API", "address", l.Addr().String())
	select {
	case err := <-done:
		return fmt.Errorf("serve the admin API at %s: %w", l.Addr(), err)
	case <-ctx.Done():
	}
	wait, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownWait)
	defer cancel()
	err := h.Shutdown(wait)
	if errors.Is(err, context.DeadlineExceeded) {
		err = h.Close()
	}
	if ended := <-done; err == nil && !errors.Is(ended, http.ErrServerClosed) {
		err = ended
	}
	return err
}
