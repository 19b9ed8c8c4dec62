package loomctl

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/loomfabric/loom/internal/admin"
	"github.com/loomfabric/loom/internal/events"
)

// inventory writes one: name, address, name, address …
func inventory(t *testing.T, pairs ...string) string {
	t.Helper()
	text := "nodes:\n"
	for i := 0; i < len(pairs); i += 2 {
		text += "  " + pairs[i] + ": " + pairs[i+1] + "\n"
	}
	path := filepath.Join(t.TempDir(), "nodes.yaml")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// spine serves what a spine says to a question that only a leaf answers.
func spine(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	h := &http.Server{Handler: admin.NewServer(admin.Options{})}
	go func() { _ = h.Serve(l) }()
	t.Cleanup(func() { h.Close() })
	return path
}

// Several nodes answer under their names. One that does not answer hides nobody, and one
// of the other role is left out.
func TestSeveralNodes(t *testing.T) {
	leaf := daemon(t)
	file := inventory(t, "b", "unix:"+leaf, "a", leaf, "gone", leaf+".gone", "s", spine(t))
	out, err := run("--inventory", file, "--node", "all", "paths")
	if ExitCode(err) != exitSomeFailed || !strings.Contains(err.Error(), "gone") {
		t.Errorf("exit code %d, error %v", ExitCode(err), err)
	}
	one, err := run("--socket", leaf, "paths")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(out, "a:\n"+one+"\nb:\n"+one+"\ngone: there is no socket") || strings.Contains(out, "\ns:") {
		t.Errorf("all nodes say\n%s", out)
	}
	// A single name is as if its socket had been given.
	if out, err := run("--inventory", file, "--node", "b", "paths"); err != nil || out != one {
		t.Errorf("node b says %q, %v", out, err)
	}
	if out, err := run("--inventory", file, "--node", "b,a", "paths"); err != nil || out != "b:\n"+one+"\na:\n"+one {
		t.Errorf("nodes b and a say %q, %v", out, err)
	}
	if _, err := run("--inventory", file, "--node", "s", "paths"); ExitCode(err) != exitFailed || !strings.Contains(err.Error(), "ask a leaf") {
		t.Errorf("the spine says %v", err)
	}
	if _, err := run("--inventory", file, "--node", "c", "paths"); err == nil || !strings.Contains(err.Error(), `no node "c": it has a, b, gone or s`) {
		t.Errorf("node c says %v", err)
	}
	if _, err := run("--inventory", inventory(t, "x", "/nowhere"), "--node", "all", "paths"); ExitCode(err) != exitFailed || !strings.Contains(err.Error(), "no node answers: x") {
		t.Errorf("nobody says %v", err)
	}
}

// JSON and YAML of several nodes are one object by their names, and the same.
func TestSeveralNodesInFormats(t *testing.T) {
	leaf := daemon(t)
	file := inventory(t, "a", leaf, "gone", leaf+".gone", "s", spine(t))
	out, err := run("--inventory", file, "--node", "all", "-o", "json", "paths")
	if ExitCode(err) != exitSomeFailed {
		t.Errorf("exit code %d: %v", ExitCode(err), err)
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal([]byte(out), &all); err != nil {
		t.Fatal(err)
	}
	var f admin.Failure
	var p admin.Paths
	if len(all) != 2 || json.Unmarshal(all["gone"], &f) != nil || json.Unmarshal(all["a"], &p) != nil || !strings.Contains(f.Error, "no socket") || len(p.Peers) != 1 {
		t.Errorf("%s", out)
	}
	inYAML, err := run("--inventory", file, "--node", "all", "-o", "yaml", "paths")
	if ExitCode(err) != exitSomeFailed {
		t.Errorf("exit code %d: %v", ExitCode(err), err)
	}
	var x, y any
	back, err := yaml.YAMLToJSON([]byte(inYAML))
	if err = errors.Join(err, json.Unmarshal(back, &x), json.Unmarshal([]byte(out), &y)); err != nil {
		t.Fatal(err)
	}
	a, _ := json.Marshal(x)
	b, _ := json.Marshal(y)
	if !bytes.Equal(a, b) {
		t.Errorf("YAML says\n%s\nJSON\n%s", a, b)
	}
}

// writer counts what is written to it, and stops the command when it has enough.
type writer struct {
	bytes.Buffer
	left int
	stop func()
}

func (w *writer) Write(b []byte) (int, error) {
	if w.left--; w.left == 0 {
		w.stop()
	}
	return w.Buffer.Write(b)
}

// Watching goes on, although the node does not answer, until it is interrupted: this ends
// it without an error.
func TestWatch(t *testing.T) {
	for _, tt := range []struct {
		output string
		check  func(out string) bool
	}{
		{asTable, func(out string) bool { return strings.Count(out, "\n\nPEER") == 1 && strings.HasPrefix(out, "PEER") }},
		{asJSON, func(out string) bool {
			lines := strings.Split(strings.TrimSpace(out), "\n")
			return len(lines) == 2 && json.Valid([]byte(lines[0])) && lines[0] == lines[1]
		}},
		{asYAML, func(out string) bool { return strings.Count(out, "---\npeers:") == 2 }},
	} {
		ctx, stop := context.WithTimeout(t.Context(), 10*time.Second)
		defer stop()
		out := &writer{left: 2, stop: stop}
		c := Command(out)
		c.SetArgs([]string{"--socket", daemon(t), "--watch=100ms", "-o", tt.output, "paths"})
		if err := c.ExecuteContext(ctx); err != nil || !tt.check(out.String()) {
			t.Errorf("%s: %v\n%s", tt.output, err, out)
		}
	}
	ctx, stop := context.WithTimeout(t.Context(), 10*time.Second)
	defer stop()
	complaints := &writer{left: 3, stop: stop}
	c := Command(&bytes.Buffer{})
	c.SetErr(complaints)
	c.SetArgs([]string{"--socket", "/nowhere", "--watch=100ms", "paths"})
	if err := c.ExecuteContext(ctx); err != nil || strings.Count(complaints.String(), "loomctl: there is no socket /nowhere") != 3 {
		t.Errorf("%v\n%s", err, complaints)
	}
}

// On a terminal a picture takes the place of the last one.
func TestScreen(t *testing.T) {
	var out bytes.Buffer
	s := &screen{w: &out, terminal: true}
	if err := s.write(bytes.NewBufferString("one\ntwo\n")); err != nil || out.String() != "\x1b[Hone\x1b[K\ntwo\x1b[K\n\x1b[J" {
		t.Errorf("%q, %v", out.String(), err)
	}
}

// A line has each attribute once: as what it is about, or behind the text.
func TestEventLine(t *testing.T) {
	for _, tt := range []struct {
		kind, object string
		attrs        map[string]string
		want         string
	}{
		{"path", "10.0.0.2 by up0", map[string]string{"node": "L0", "peer": "10.0.0.2", "uplink": "up0", "loss": "1"}, "path 10.0.0.2 by up0: text (loss=1)"},
		{"address", "02::1 in VNI 7", map[string]string{"mac": "02::1", "vni": "7", "port": "acc0", "moves": "7"}, "address 02::1 in VNI 7: text (moves=7, port=acc0)"},
		{"node", "L0", map[string]string{"node": "L0", "address": "127.0.0.1:9464"}, "node L0: text (address=127.0.0.1:9464)"},
		{"config", "/a b.yaml", map[string]string{"file": "/a b.yaml"}, "config /a b.yaml: text"},
	} {
		got := eventLine(&events.Event{Level: "INFO", Kind: tt.kind, Object: tt.object, Text: "text", Attrs: tt.attrs})
		if _, got, _ = strings.Cut(got, "INFO  "); got != tt.want {
			t.Errorf("%q, want %q", got, tt.want)
		}
	}
}

func TestInventoryMistakes(t *testing.T) {
	for text, says := range map[string]string{
		"nodes:\n  a: ftp://x\n":              "write unix:/PATH or https://HOST:PORT",
		"nodes:\n  a: https://x:1\n":          "add tls with ca_file",
		"nodes:\n  all: /x\n":                 `"all" is no name`,
		"nodes: {}\n":                         "has no nodes",
		"nods:\n  a: /x\n":                    "nods",
		"nodes: {a: /x}\ntls: {ca_file: x}\n": "tls needs",
		"nodes: {a: /x}\ntls: {ca_file: x, cert_file: y, key_file: z}\n": "no such file",
	} {
		file := filepath.Join(t.TempDir(), "nodes.yaml")
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := run("--inventory", file, "--node", "a", "status"); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, want %q", text, err, says)
		}
	}
}
