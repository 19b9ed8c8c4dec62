package web

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/loomfabric/loom/internal/httpd"
	"github.com/loomfabric/loom/internal/testenv/certs"
)

// TestMutualTLS: loomweb asks the nodes of an inventory, and both sides show certificates.
// A node with a certificate of another authority and one that refuses loomweb's do not
// answer, and the page has the reason; the others are ready.
func TestMutualTLS(t *testing.T) {
	f := newFake(2, 2, 1)
	ours, theirs := certs.NewCA(t), certs.NewCA(t)
	cert, key := ours.Sign(t, "loomweb.example")
	config := fmt.Sprintf("tls: {ca_file: %s, cert_file: %s, key_file: %s}\nnodes:\n", ours.File, cert, key)
	for _, n := range []struct {
		name, allowed string
		signer        *certs.CA
	}{{"L0", "loomweb.example", ours}, {"L1", "loomweb.example", theirs}, {"S0", "loomctl.example", ours}, {"S1", "loomweb.example", ours}} {
		cert, key := n.signer.Sign(t, n.name+".example")
		address := serveNode(t, f, n.name, fmt.Sprintf("tls_server_config: {cert_file: %s, key_file: %s, client_ca_file: %s, client_auth_type: RequireAndVerifyClientCert, client_allowed_sans: [%s]}\n",
			cert, key, ours.File, n.allowed))
		config += fmt.Sprintf("  %s: https://%s\n", n.name, address)
	}
	inventory := filepath.Join(t.TempDir(), "nodes.yaml")
	if err := os.WriteFile(inventory, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	at := make(chan net.Addr, 1)
	o := &options{
		inventory: inventory, listen: "127.0.0.1:0", every: 200 * time.Millisecond, keep: time.Minute, memory: 16, logTo: io.Discard,
		listening: func(a net.Addr) { at <- a },
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- o.run(ctx) }()
	s := &served{}
	select {
	case a := <-at:
		s.url = "http://" + a.String()
	case err := <-done:
		t.Fatal(err)
	}
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	want := map[string]string{"L0": "", "L1": "certificate signed by unknown authority", "S0": "certificate", "S1": ""}
	var states, why map[string]string
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		_, history := s.get(t, http.MethodGet, "/api/history", "")
		if states, why = lastFrame(t, history); len(states) == len(want) && states["L0"] == "ready" && why["L1"] != "" && why["S0"] != "" {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("the nodes are %v, why %q", states, why)
		}
	}
	for name, reason := range want {
		state := "ready"
		if reason != "" {
			state = "no answer"
		}
		if states[name] != state || !strings.Contains(why[name], reason) || (reason == "") != (why[name] == "") {
			t.Errorf("%s is %q, why %q; want %q, why %q", name, states[name], why[name], state, reason)
		}
	}
	t.Logf("why: %q", why)
}

// serveNode serves a node's snapshots as a web_config says, and returns where.
func serveNode(t *testing.T, f *fakeFabric, name, webConfig string) net.Addr {
	t.Helper()
	file := filepath.Join(t.TempDir(), "web.yaml")
	if err := os.WriteFile(file, []byte(webConfig), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	api := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { httpd.WriteJSON(w, http.StatusOK, f.snapshot(name)) })
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- httpd.ServeWeb(ctx, l, api, name, file, slog.New(slog.DiscardHandler)) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return l.Addr()
}

// lastFrame returns the states of nodes in the last frame of a history, and why they are
// not ready.
func lastFrame(t *testing.T, history string) (states, why map[string]string) {
	t.Helper()
	var names []string
	for line := range strings.Lines(history) {
		var m struct {
			Type  string
			Nodes json.RawMessage
			Why   map[int]string
		}
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Fatalf("%v in %s", err, line)
		}
		switch m.Type {
		case "layout":
			var nodes []struct{ Name string }
			if err := json.Unmarshal(m.Nodes, &nodes); err != nil {
				t.Fatal(err)
			}
			names = nil
			for _, n := range nodes {
				names = append(names, n.Name)
			}
		case "frame":
			var numbers []int
			if err := json.Unmarshal(m.Nodes, &numbers); err != nil {
				t.Fatal(err)
			}
			states, why = map[string]string{}, map[string]string{}
			for i, n := range numbers {
				states[names[i]] = []string{"no answer", "not ready", "ready"}[n]
				if w := m.Why[i]; w != "" {
					why[names[i]] = w
				}
			}
		}
	}
	return states, why
}
