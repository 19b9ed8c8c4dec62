package telemetry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/loomfabric/loom/control"
	"github.com/loomfabric/loom/dataplane"
	"github.com/loomfabric/loom/drop"
)

// Readiness is what /readyz says: whether the node forwards, and if not, why.
type Readiness struct {
	Ready   bool     `json:"ready"`
	Reasons []string `json:"reasons,omitempty"`
}

// Ready holds a node against what it needs to forward: tables, and every port
// open. A port whose interface is down is open all the same.
func Ready(src *Source) Readiness {
	var r Readiness
	if src.Tables() == nil {
		r.Reasons = append(r.Reasons, "no tables published: the kernel's state is not known yet")
	}
	for _, p := range src.Stats().Ports {
		if !p.Open {
			why := p.Error
			if why == "" {
				why = "not opened yet"
			}
			r.Reasons = append(r.Reasons, fmt.Sprintf("port %s is not open: %s", p.Name, why))
		}
	}
	r.Ready = len(r.Reasons) == 0
	return r
}

// Snapshot is what /debug/stats says.
type Snapshot struct {
	Node    string                       `json:"node"`
	Role    string                       `json:"role"`
	Balance []Balance                    `json:"balance"` // by worker
	Drops   map[string]map[string]uint64 `json:"drops"`   // by port and reason; only those that happened
	Stats   dataplane.Stats              `json:"stats"`
	Tables  TablesSnapshot               `json:"tables"`
	Control control.Stats                `json:"control"`
}

// Balance is one worker's account of its frames: Received + Copied =
// Sent + Dropped + Held, so that Lost is 0.
type Balance struct {
	Worker   int    `json:"worker"`
	Received uint64 `json:"received"`
	Copied   uint64 `json:"copied"`
	Sent     uint64 `json:"sent"`
	Dropped  uint64 `json:"dropped"`
	Held     uint64 `json:"held"`
	Lost     int64  `json:"lost"`
}

// TablesSnapshot is the part of the tables that gives IDs their meaning.
type TablesSnapshot struct {
	Ports []dataplane.PortState `json:"ports"` // by PortID
	Hops  []dataplane.Hop       `json:"hops"`  // by HopID
	Peers []dataplane.Peer      `json:"peers"` // by PeerID
	VNIs  []dataplane.VNI       `json:"vnis"`  // by VNIIndex
}

// Take makes a snapshot.
func Take(src *Source) Snapshot {
	s := Snapshot{
		Node: src.Config.Name, Role: RoleName(src.Config.Role), Stats: src.Stats(), Control: src.Control(),
		Drops: make(map[string]map[string]uint64),
	}
	if t := src.Tables(); t != nil {
		s.Tables = TablesSnapshot{Ports: t.Ports, Hops: t.Hops, Peers: t.Peers, VNIs: t.VNIs}
	}
	for q := range s.Stats.Workers {
		w := &s.Stats.Workers[q]
		b := Balance{Worker: q, Copied: w.Copied, Held: w.Held}
		for id := range w.Ports {
			p := &w.Ports[id]
			b.Received += p.Received.Frames
			b.Sent += p.Sent.Frames
			for r, n := range p.Drops {
				b.Dropped += n
				s.drop(src.Config.Ports[id].Name, drop.Reason(r), n)
			}
		}
		b.Lost = int64(b.Received + b.Copied - b.Sent - b.Dropped - b.Held)
		s.Balance = append(s.Balance, b)
	}
	return s
}

func (s *Snapshot) drop(port string, r drop.Reason, n uint64) {
	if n == 0 {
		return
	}
	if s.Drops[port] == nil {
		s.Drops[port] = make(map[string]uint64)
	}
	s.Drops[port][r.String()] += n
}

// Handler serves /metrics, /healthz, /readyz and /debug/stats.
func Handler(src Source, log *slog.Logger) http.Handler {
	reg := prometheus.NewRegistry()
	reg.MustRegister(NewCollector(src), collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(reg, promhttp.HandlerOpts{
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelError),
	}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "ok")
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		r, status := Ready(&src), http.StatusOK
		if !r.Ready {
			status = http.StatusServiceUnavailable
		}
		reply(w, status, r)
	})
	mux.HandleFunc("GET /debug/stats", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, http.StatusOK, Take(&src))
	})
	return mux
}

func reply(w http.ResponseWriter, status int, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	// An error here is the reader's: it has gone.
	_, _ = w.Write(append(b, '\n'))
}

// Listen opens the address at which a node is served. A socket file that a
// killed process left behind is removed; one that answers is not.
func Listen(network, address string) (net.Listener, error) {
	if network == "unix" {
		if c, err := net.DialTimeout(network, address, time.Second); err == nil {
			c.Close()
			return nil, fmt.Errorf("listen at unix:%s: another process does; stop it, or change telemetry.listen", address)
		}
		info, err := os.Lstat(address)
		if err == nil && info.Mode().Type() == fs.ModeSocket {
			if err := os.Remove(address); err != nil {
				return nil, fmt.Errorf("remove the stale socket %s: %w", address, err)
			}
		}
	}
	l, err := net.Listen(network, address)
	if err != nil {
		return nil, fmt.Errorf("listen at %s for metrics: %w; change telemetry.listen", address, err)
	}
	return l, nil
}

// Serve answers at l until ctx ends, and closes l.
func Serve(ctx context.Context, l net.Listener, h http.Handler, log *slog.Logger) error {
	srv := &http.Server{
		Handler: h, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
	done := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(done)
		short, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if srv.Shutdown(short) != nil { // a reader that does not end
			srv.Close()
		}
	})
	err := srv.Serve(l)
	if !stop() {
		<-done
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serve metrics: %w", err)
}
