// Package telemetry shows what a daemon counts to Prometheus, says whether it is
// alive and ready, and answers the lab in JSON. The metrics follow from the tags of
// the types that count (package stat). It reads copies when it is asked, and keeps
// no counter of its own; it must not change anything.
package telemetry

import (
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/loomfabric/loom/control"
	"github.com/loomfabric/loom/control/bridge"
	"github.com/loomfabric/loom/dataplane"
	"github.com/loomfabric/loom/internal/httpd"
)

// Options says what is served. Its functions are called at each request, from
// several goroutines at a time.
type Options struct {
	Name    string // of the node
	Role    string // "leafd" or "spined"; the latter has no FDB to show
	Version string
	VTEP    netip.Addr // of a leaf
	Overlay string     // of a leaf: "file" or "kernel", as its configuration says
	Stats   func() dataplane.Stats
	Tables  func() *dataplane.Tables // nil result: none were published yet
	// PortInfos is what Stats says of ports, without the workers.
	PortInfos func() []dataplane.PortInfo
	Control   func() control.Stats // may be nil
	Bridge    func() bridge.Stats  // of a leaf whose overlay is the kernel's; may be nil
	// Congestion is what a leaf knows of its peers; may be nil.
	Congestion func() []dataplane.PeerState
	// Paths is which of a leaf's paths deliver; may be nil.
	Paths func() []dataplane.PeerPaths
	// Auto is what a leaf derives from round trips; may be nil, and so may its
	// result: nothing is derived.
	Auto   func() *dataplane.AutoState
	Reload func() Reload // may be nil
	// Findings are what is wrong with interfaces now; may be nil.
	Findings func() []control.Finding
	Ports    func() []dataplane.PortConfig // by PortID; those without a name are nobody's
	// PerWorker shows what ports count of each worker.
	PerWorker bool
	// Gate is what requests that ask the workers pass; nil: they are not bounded.
	// AdminGate is that of the admin API, whose refusals are shown; nil: there is none.
	Gate, AdminGate *httpd.Gate
	Log             *slog.Logger
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
	http.Handler
	o Options
}

// NewServer returns a server.
func NewServer(o Options) *Server {
	mux := http.NewServeMux()
	s := &Server{mux, o}
	registry := prometheus.NewRegistry()
	registry.MustRegister(timed{NewCollector(o), scrapeTimes()}, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	mux.Handle("GET /metrics", o.Gate.Bound(promhttp.HandlerFor(registry, promhttp.HandlerOpts{
		ErrorLog: slog.NewLogLogger(o.Log.Handler(), slog.LevelWarn), ErrorHandling: promhttp.HTTPErrorOnError,
	})))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "ok\n") // the client is gone: nobody to tell
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		r, status := s.Readiness(), http.StatusOK
		if !r.Ready {
			status = http.StatusServiceUnavailable
		}
		httpd.WriteJSON(w, status, r)
	})
	mux.Handle("GET /debug/stats", o.Gate.Bound(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		httpd.WriteJSON(w, http.StatusOK, s.debug())
	})))
	return s
}

// scrapeTimes counts how long collecting takes: in a native histogram for those who scrape
// these, and in a few buckets for others.
func scrapeTimes() prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "loom_scrape_seconds", Help: "Time that collecting the metrics took before this scrape, with the workers' answers.",
		Buckets:                     []float64{0.001, 0.003, 0.01, 0.03, 0.1, 1, 10},
		NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 40,
	})
}

// timed is a collector that counts how long it takes.
type timed struct {
	prometheus.Collector
	times prometheus.Histogram
}

// Describe implements [prometheus.Collector].
func (t timed) Describe(ch chan<- *prometheus.Desc) {
	t.Collector.Describe(ch)
	t.times.Describe(ch)
}

// Collect implements [prometheus.Collector].
func (t timed) Collect(ch chan<- prometheus.Metric) {
	t.times.Collect(ch) // of those before
	start := time.Now()
	t.Collector.Collect(ch)
	t.times.Observe(time.Since(start).Seconds())
}

// Readiness is the answer of /readyz.
type Readiness struct {
	Ready   bool               `json:"ready"`
	Reasons []dataplane.Reason `json:"reasons"` // why not; empty when ready
}

// Readiness says whether the node is ready. No worker is asked: one that is stuck is the
// watchdog's business.
func (s *Server) Readiness() Readiness {
	reasons := dataplane.Unready(s.o.Ports(), s.o.PortInfos(), s.o.Tables())
	return Readiness{Ready: len(reasons) == 0, Reasons: reasons}
}

// Debug is the answer of /debug/stats: the fields of [dataplane.Stats] at the
// top, so that it can be read as one, and beside them what they add up to and
// what their indices stand for.
type Debug struct {
	Role    string `json:"role"`
	Version string `json:"version"`
	dataplane.Stats
	Tables  *dataplane.Tables `json:"tables"` // null before the first were published
	Balance []Balance         `json:"balance"`
	Drops   map[string]uint64 `json:"drops"` // by reason, of all ports and workers; none that is 0
	Control *control.Stats    `json:"control,omitempty"`
}

// Balance is a worker's account.
type Balance struct {
	Worker int `json:"worker"`
	dataplane.Account
	OK bool `json:"ok"` // it adds up
}

func (s *Server) debug() *Debug {
	st := s.o.Stats()
	d := &Debug{Role: s.o.Role, Version: s.o.Version, Stats: st, Tables: s.o.Tables(), Balance: []Balance{}, Drops: st.Drops()}
	for i := range st.Workers {
		a := st.Workers[i].Account()
		d.Balance = append(d.Balance, Balance{i, a, a.Balances()})
	}
	if s.o.Control != nil {
		c := s.o.Control()
		d.Control = &c
	}
	return d
}
