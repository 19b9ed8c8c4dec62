package telemetry

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/loomfabric/loom/dataplane"
	"github.com/loomfabric/loom/internal/drop"
	"github.com/loomfabric/loom/internal/httpd"
)

// get asks a server without a network.
func get(t *testing.T, s *Server, method, path string) (status int, contentType, body string) {
	t.Helper()
	w := httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequest(method, path, nil))
	return w.Code, w.Header().Get("Content-Type"), w.Body.String()
}

func TestEndpoints(t *testing.T) {
	tests := []struct {
		name         string
		change       func(*fake)
		method, path string
		status       int
		contentType  string
		body         string // a part of it
	}{
		{"alive", nil, "GET", "/healthz", 200, "text/plain", "ok\n"},
		{"alive without tables", func(f *fake) { f.tables = nil }, "GET", "/healthz", 200, "text/plain", "ok\n"},
		{"ready", nil, "GET", "/readyz", 200, "application/json", `{"ready":true,"reasons":[]}`},
		{"ready with a link down", func(f *fake) { f.tables.Ports[0].Up = false }, "GET", "/readyz", 200, "application/json", `"ready":true`},
		{"no tables", func(f *fake) { f.tables = nil }, "GET", "/readyz", 503, "application/json",
			`{"ready":false,"reasons":[{"name":"no_tables","detail":"no tables have been published to the workers yet"}]}`},
		{"no VTEP", func(f *fake) { f.tables.NoVTEP = true }, "GET", "/readyz", 503, "application/json",
			`{"ready":false,"reasons":[{"name":"no_vtep","detail":"the VTEP is no address of this machine: add it to lo"}]}`},
		{"no VTEP, as a metric", func(f *fake) { f.tables.NoVTEP = true }, "GET", "/metrics", 200, "text/plain", "loom_vtep_present 0\n"},
		{"port closed", func(f *fake) { f.stats.Ports[1].Open, f.stats.Ports[1].Error = false, "interface up0 is gone" }, "GET", "/readyz", 503,
			"application/json", `{"ready":false,"reasons":[{"name":"port_closed","port":"up0","detail":"interface up0 is gone"}]}`},
		{"port closed, no word why", func(f *fake) { f.stats.Ports[0].Open = false }, "GET", "/readyz", 503, "application/json",
			`{"name":"port_closed","port":"host0","detail":"its sockets are not bound"}`},
		{"an interface that may be absent", func(f *fake) { f.stats.Ports[0].Open, f.tables.Ports[0] = false, dataplane.PortState{} }, "GET", "/readyz", 200,
			"application/json", `"ready":true`},
		{"port unknown", func(f *fake) { f.stats.Ports = f.stats.Ports[:1] }, "GET", "/readyz", 503, "application/json", `"port":"up0"`},
		{"all at once", func(f *fake) { f.tables, f.stats.Ports = nil, nil }, "GET", "/readyz", 503, "application/json",
			`"name":"no_tables","detail":"no tables have been published to the workers yet"},{"name":"port_closed","port":"host0"`},
		{"metrics", nil, "GET", "/metrics", 200, "text/plain", `loom_build_info{goversion="go`},
		{"the node's name", nil, "GET", "/metrics", 200, "text/plain", `node="L0"`},
		{"metrics of the Go runtime", nil, "GET", "/metrics", 200, "text/plain", "go_goroutines "},
		{"metrics of the process", nil, "GET", "/metrics", 200, "text/plain", "process_resident_memory_bytes "},
		{"elsewhere", nil, "GET", "/", 404, "text/plain", "404"},
		{"nothing to post", nil, "POST", "/metrics", 405, "text/plain", "Not Allowed"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := newFake()
			if tt.change != nil {
				tt.change(f)
			}
			status, contentType, body := get(t, NewServer(f.options()), tt.method, tt.path)
			if status != tt.status || !strings.HasPrefix(contentType, tt.contentType) || !strings.Contains(body, tt.body) {
				t.Errorf("%s %s: %d, %s, %s; want %d, %s, %s", tt.method, tt.path, status, contentType, body, tt.status, tt.contentType, tt.body)
			}
		})
	}
}

// A worker that does not answer keeps nobody waiting, and nobody from hearing whether
// the node lives and is ready.
func TestStuckWorker(t *testing.T) {
	f := newFake()
	o := f.options()
	stuck := make(chan struct{})
	stats := o.Stats
	o.Stats = func() dataplane.Stats { <-stuck; return stats() }
	o.Gate = httpd.NewGate("metrics", 2, 100*time.Millisecond, o.Log)
	s := NewServer(o)
	for path, want := range map[string]int{"/metrics": 503, "/debug/stats": 503, "/readyz": 200, "/healthz": 200} {
		for range 3 {
			if status, _, body := get(t, s, "GET", path); status != want {
				t.Errorf("%s with a worker that is stuck: %d %s, want %d", path, status, body, want)
			}
		}
	}
	close(stuck)
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		_, _, body := get(t, s, "GET", "/metrics")
		if strings.Contains(body, `loom_http_requests_refused_total{reason="busy",server="admin"} 0`) {
			for _, nobody := range []string{`{reason="timeout",server="metrics"} 0`, `{reason="busy",server="metrics"} 0`} {
				if strings.Contains(body, nobody) {
					t.Errorf("requests were refused, and the metrics say %s", nobody)
				}
			}
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("when the worker answers again: %.300s", body)
		}
	}
}

func TestDebugStats(t *testing.T) {
	f := newFake()
	f.stats.Workers[0].Ports[0].Drops[drop.QueueFull] = 0
	f.stats.Workers[1].Held++ // a frame too many
	_, _, body := get(t, NewServer(f.options()), "GET", "/debug/stats")

	// The lab reads the answer as the data plane's counters.
	var stats dataplane.Stats
	if err := json.Unmarshal([]byte(body), &stats); err != nil {
		t.Fatal(err)
	}
	for i := range f.stats.Workers { // schemes' own counters are of no type there
		for w, s := range map[*dataplane.WorkerStats]string{&stats.Workers[i]: "map[", &f.stats.Workers[i]: "&{"} {
			if got := fmt.Sprint(w.Schemes[2].Own); !strings.HasPrefix(got, s) {
				t.Errorf("the counters of a scheme are %s", got)
			}
			w.Schemes, w.Receivers = nil, nil
		}
	}
	if !reflect.DeepEqual(stats, f.stats) {
		t.Errorf("counters are not the same after the way through JSON:\n%+v\n%+v", stats, f.stats)
	}

	var d Debug
	if err := json.Unmarshal([]byte(body), &d); err != nil {
		t.Fatal(err)
	}
	if d.Role != "leafd" || d.Version != "v1.2.3" {
		t.Errorf("role %q, version %q", d.Role, d.Version)
	}
	if !reflect.DeepEqual(d.Tables, f.tables) {
		t.Errorf("tables are %+v, want %+v", d.Tables, f.tables)
	}
	w := &f.stats.Workers[0]
	received := w.Ports[0].Received.Frames + w.Ports[1].Received.Frames + w.Gone.Received.Frames
	if len(d.Balance) != 2 || d.Balance[0].Received != received || d.Balance[0].Made != w.Made || d.Balance[0].Held != w.Held {
		t.Errorf("accounts are %+v", d.Balance)
	}
	// Worker 0 lacks the drops that were set to 0, worker 1 has a frame too many.
	if d.Balance[0].OK || d.Balance[1].OK {
		t.Errorf("accounts that do not add up are called right: %+v", d.Balance)
	}
	if _, _, body := get(t, NewServer(newFake().options()), "GET", "/debug/stats"); strings.Count(body, `"ok":true`) != 2 {
		t.Errorf("accounts that add up are not called right: %s", body)
	}
	var all uint64
	for _, w := range f.stats.Workers {
		for _, p := range w.Ports {
			all += p.Drops[drop.NoRoute]
		}
	}
	if got := d.Drops["no_route"]; got != all || all == 0 {
		t.Errorf("drops for no_route are %d, want %d", got, all)
	}
	if !reflect.DeepEqual(*d.Control, f.control) {
		t.Errorf("control is %+v, want %+v", *d.Control, f.control)
	}
}

func TestDebugStatsOfANewDaemon(t *testing.T) {
	f := &fake{}
	o := f.options()
	o.Control = nil
	status, _, body := get(t, NewServer(o), "GET", "/debug/stats")
	const want = `{"role":"leafd","version":"v1.2.3","Workers":[],"Ports":null,"tables":null,"balance":[],"drops":{}}` + "\n"
	if status != http.StatusOK || body != want {
		t.Errorf("%d, %s; want 200, %s", status, body, want)
	}
}
