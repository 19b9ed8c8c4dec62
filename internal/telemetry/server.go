package telemetry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/loomfabric/loom/control"
	"github.com/loomfabric/loom/dataplane"
)

// Bounds on what clients can cost. A scrape takes a worker's time between two
// bursts, so that few of them run at once.
const (
	maxScrapes    = 4
	scrapeTimeout = 10 * time.Second
	headerTimeout = 5 * time.Second
	idleTimeout   = 2 * time.Minute
	// shutdownWait is how long requests in progress have when the daemon ends.
	shutdownWait = 2 * time.Second
)

// Options says what is served. Its functions are called at each request, from
// several goroutines at a time.
type Options struct {
	Role    string // "leafd" or "spined"; the latter has no FDB to show
	Version string
	Stats   func() dataplane.Stats
	Tables  func() *dataplane.Tables // nil result: none were published yet
	Control func() control.Stats     // may be nil
	// Congestion is what a leaf knows of its peers; may be nil.
	Congestion func() []dataplane.PeerState
	// Auto is what a leaf derives from round trips; may be nil, and so may its
	// result: nothing is derived.
	Auto   func() *dataplane.AutoState
	Reload func() Reload          // may be nil
	Ports  []dataplane.PortConfig // by PortID
	Log    *slog.Logger           // may be nil
}

// Reload is what became of the configuration file when it was read last.
type Reload struct {
	_ struct{} `stat:"config"`

	Successful  bool      `stat:"last_reload_successful" help:"1 if the configuration file was taken over, or found unchanged, when it was read last; 0: it was refused, and the older one is in force."`
	LastSuccess time.Time `stat:"last_reload_success_timestamp" help:"Unix time at which the configuration file was last read with success: at the start, or at a SIGHUP."`
}

// Server answers HTTP: /metrics, /healthz, /readyz and /debug/stats, without
// authentication.
type Server struct {
	Options
	mux *http.ServeMux
}

// NewServer returns a server; [Server.Serve] does the work.
func NewServer(o Options) *Server {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	s := &Server{Options: o, mux: http.NewServeMux()}
	registry := prometheus.NewRegistry()
	registry.MustRegister(NewCollector(o), collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	s.mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{
		ErrorLog: slog.NewLogLogger(o.Log.Handler(), slog.LevelWarn), ErrorHandling: promhttp.HTTPErrorOnError,
		MaxRequestsInFlight: maxScrapes, Timeout: scrapeTimeout,
	}))
	s.mux.HandleFunc("GET /healthz", s.health)
	s.mux.HandleFunc("GET /readyz", s.ready)
	s.mux.HandleFunc("GET /debug/stats", s.debug)
	return s
}

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

// Serve answers requests until ctx ends, lets those in progress finish for a
// short while, and closes the listener. A nil listener serves nobody: Serve
// then only waits. The error says why serving ended before ctx did.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	if l == nil {
		<-ctx.Done()
		return nil
	}
	h := &http.Server{
		Handler: s, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout,
		ErrorLog: slog.NewLogLogger(s.Log.Handler(), slog.LevelWarn),
	}
	done := make(chan error, 1)
	go func() { done <- h.Serve(l) }()
	s.Log.Info("serving metrics and health", "address", l.Addr().String())
	select {
	case err := <-done:
		return fmt.Errorf("serve metrics at %s: %w", l.Addr(), err)
	case <-ctx.Done():
	}
	wait, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownWait)
	defer cancel()
	err := h.Shutdown(wait)
	if errors.Is(err, context.DeadlineExceeded) {
		s.Log.Warn("requests were cut off at shutdown", "after", shutdownWait)
		err = h.Close()
	}
	if ended := <-done; err == nil && !errors.Is(ended, http.ErrServerClosed) {
		err = ended
	}
	return err
}
