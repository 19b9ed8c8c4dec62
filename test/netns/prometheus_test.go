package netns

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/loomfabric/loom/internal/testenv"
)

// A watch is Prometheus in a namespace of its own, which scrapes every daemon of a fabric.
// Daemons of a lab answer at Unix sockets, which Prometheus cannot ask: each has a proxy.
type watch struct {
	t  *testing.T
	ns *testenv.Namespace
}

const prometheusAt = "127.0.0.1:9090"

func (f *fab) watch() *watch {
	t := f.t
	w := &watch{t, testenv.NewNamespace(t, "watch")}
	var targets []string
	for _, d := range f.daemons {
		targets = append(targets, fmt.Sprintf("{targets: [%q], labels: {instance: %s}}", w.proxy(d.socket), d.name))
	}
	rules, err := filepath.Abs("../../deploy/prometheus/loom.rules.yml")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	config := fmt.Sprintf("global: {scrape_interval: 500ms, evaluation_interval: 500ms}\nrule_files: [%s]\nscrape_configs: [{job_name: loom, static_configs: [%s]}]\n",
		rules, strings.Join(targets, ", "))
	if err := os.WriteFile(filepath.Join(dir, "prometheus.yml"), []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := exec.LookPath("prometheus"); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	cmd := exec.Command("ip", "netns", "exec", w.ns.Name, "prometheus", "--config.file="+filepath.Join(dir, "prometheus.yml"),
		"--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+prometheusAt, "--log.level=warn")
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("Prometheus: %s", log.String())
		}
	})
	return w
}

// proxy answers at an address of the namespace's loopback for a Unix socket.
func (w *watch) proxy(socket string) (address string) {
	w.t.Helper()
	var l net.Listener
	var err error
	w.ns.Do(w.t, func() { l, err = net.Listen("tcp", "127.0.0.1:0") })
	if err != nil {
		w.t.Fatal(err)
	}
	s := &http.Server{ReadHeaderTimeout: 5 * time.Second, Handler: &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(&url.URL{Scheme: "http", Host: "daemon"}) },
		Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		}},
	}}
	go func() { _ = s.Serve(l) }() // until it is closed
	w.t.Cleanup(func() { s.Close() })
	return l.Addr().String()
}

// get asks Prometheus' API, and decodes what it answers as data.
func (w *watch) get(path string, query url.Values, data any) error {
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(context.Context, string, string) (c net.Conn, err error) {
			w.ns.Do(w.t, func() { c, err = net.Dial("tcp", prometheusAt) })
			return c, err
		},
	}}
	resp, err := client.Get("http://" + prometheusAt + path + "?" + query.Encode())
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	answer := struct {
		Status, Error string
		Data          json.RawMessage
	}{}
	if err := json.Unmarshal(body, &answer); err != nil || answer.Status != "success" {
		return fmt.Errorf("%s: %v %s: %.300s", path, err, answer.Error, body)
	}
	return json.Unmarshal(answer.Data, data)
}

// ask returns how many series answer an expression.
func (w *watch) ask(expr string) (int, error) {
	var data struct{ Result []json.RawMessage }
	err := w.get("/api/v1/query", url.Values{"query": {expr}}, &data)
	return len(data.Result), err
}

// question is an expression of a panel, as Grafana would send it.
type question struct{ board, panel, expr string }

func questions(t *testing.T) (all []question) {
	t.Helper()
	boards, err := filepath.Glob("../../deploy/grafana/*.json")
	if err != nil {
		t.Fatal(err)
	}
	fill := strings.NewReplacer("$__rate_interval", "5s", "$node", ".*")
	for _, path := range boards {
		text, err := os.ReadFile(path)
		var d struct {
			Panels []struct {
				Title   string
				Targets []struct{ Expr string }
			}
		}
		if err == nil {
			err = json.Unmarshal(text, &d)
		}
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		for _, p := range d.Panels {
			for _, q := range p.Targets {
				all = append(all, question{strings.TrimSuffix(filepath.Base(path), ".json"), p.Title, fill.Replace(q.Expr)})
			}
		}
	}
	if len(all) < 40 {
		t.Fatalf("only %d questions in %v", len(all), boards)
	}
	return all
}

// nothing are the panels of a fabric in which nothing is wrong: they are empty.
var nothing = []string{"Alerts", "Paths that do not deliver"}

// TestDashboardsAreAnswered: over a fabric under load Prometheus has an answer to what each
// panel asks, every rule can be evaluated, and promtool finds no fault with what daemons export.
func TestDashboardsAreAnswered(t *testing.T) {
	f := up(t, "watched.yaml")
	for _, d := range f.daemons {
		lint(t, d)
	}
	w := f.watch()
	s := startStream(t, f.ns["h0"], f.ns["h1"], f.addr("h1"), 4<<20)
	back := startStream(t, f.ns["h1"], f.ns["h0"], f.addr("h0"), 4<<20)
	s.flows(1<<20, 10*time.Second)
	back.flows(1<<20, 10*time.Second)
	// Frames of a VLAN that nobody is in are dropped, and a few datagrams are CONGA's.
	host, far := f.wires()["h0"], f.sendUDP("h0", f.udp("h1").LocalAddr().String())
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for tick := time.NewTicker(10 * time.Millisecond); ; {
			select {
			case <-stop:
				return
			case <-tick.C:
				_ = host.trySend(tagged(frame(broadcast, f.hostMAC("h0"), 0, "tagged"), 5))
				_, _ = far.Write(make([]byte, 1000))
			}
		}
	}()
	defer func() { close(stop); <-ended }()

	all := questions(t)
	eventually(t, 60*time.Second, func() string {
		all = slices.DeleteFunc(all, func(q question) bool {
			n, err := w.ask(q.expr)
			empty := slices.Contains(nothing, q.panel)
			return err == nil && (n > 0) != empty
		})
		if len(all) > 0 {
			n, err := w.ask(all[0].expr)
			return fmt.Sprintf("%d questions have not the answer that they should, as %s: %s: %s: %d series, %v", len(all), all[0].board, all[0].panel, all[0].expr, n, err)
		}
		return ""
	})
	w.checkRules()
}

// checkRules holds that every rule was evaluated without an error, and that the fabric, which
// is well, sets off none of the alerts that need no time.
func (w *watch) checkRules() {
	w.t.Helper()
	var data struct {
		Groups []struct {
			Rules []struct{ Name, Health, LastError, State, Type string }
		}
	}
	if err := w.get("/api/v1/rules", nil, &data); err != nil {
		w.t.Fatal(err)
	}
	n := 0
	for _, g := range data.Groups {
		for _, r := range g.Rules {
			n++
			if r.Health != "ok" || r.LastError != "" {
				w.t.Errorf("rule %s is %s: %s", r.Name, r.Health, r.LastError)
			}
			if r.State == "firing" {
				w.t.Errorf("%s fires over a fabric that is well", r.Name)
			}
		}
	}
	if n < 20 {
		w.t.Errorf("only %d rules", n)
	}
}

// lint has promtool look at what a daemon exports, all of it.
func lint(t *testing.T, d *daemon) {
	t.Helper()
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", d.socket)
	}}}
	resp, err := client.Get("http://daemon/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	cmd := exec.Command("promtool", "check", "metrics")
	cmd.Stdin = resp.Body
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("%s: %v\n%s", d.name, err, out)
	}
}
