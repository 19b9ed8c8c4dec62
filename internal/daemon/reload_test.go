package daemon

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/dataplane"
)

const leafFile = `
vtep: 10.255.0.1
uplinks: [{interface: up0}, {interface: up1}]
access: [{interface: acc0, vni: 100}]
vnis: [{vni: 100}]
fdb: {size: 1024}
`

// plane records what is put in force.
type plane struct {
	scheme  string
	options balance.Options
	classes []dataplane.Class
	calls   int
	err     error
}

func (p *plane) SetSchemes(scheme string, o balance.Options, classes []dataplane.Class) error {
	if p.calls++; p.err != nil {
		return p.err
	}
	p.scheme, p.options, p.classes = scheme, o, classes
	return nil
}

func newReloader(t *testing.T, k Kind, text string) (*reloader, *plane) {
	t.Helper()
	p := &plane{}
	r := &reloader{kind: k, file: filepath.Join(t.TempDir(), "conf.yaml"), plane: p, log: slog.New(slog.DiscardHandler)}
	r.write(t, text)
	var err error
	if r.current, err = k.load(r.file, nil); err != nil {
		t.Fatal(err)
	}
	return r, p
}

func (r *reloader) write(t *testing.T, text string) {
	t.Helper()
	if err := os.WriteFile(r.file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestReload(t *testing.T) {
	const spineFile = "vteps: [10.255.0.0/24]\nports: [{interface: dn0}]\n"
	for _, tc := range []struct {
		name      string
		kind      Kind
		old, text string
		changed   bool
		errs      []string // parts of the error
	}{
		{"the same", Leaf, leafFile, leafFile, false, nil},
		{"the same, written otherwise", Leaf, leafFile, leafFile + "scheme: ecmp # as ever\n", false, nil},
		{"another scheme", Leaf, leafFile, leafFile + "scheme: conga\n", true, nil},
		{"classes", Leaf, leafFile, leafFile + "classes: [{match: {protocol: udp}, scheme: spray}]\n", true, nil},
		{"weights", Leaf, leafFile, leafFile + "scheme: static\nweights: [3, 1]\n", true, nil},
		{"another flowlet table", Leaf, leafFile + "scheme: conga\n", leafFile + "scheme: conga\nflowlets: 1024\n", true, nil},
		{"the flowlet table that it has", Leaf, leafFile + "scheme: conga\n", leafFile + "scheme: conga\nflowlets: 65536\n", false, nil},
		{"a flowlet table that cannot be", Leaf, leafFile + "scheme: conga\n", leafFile + "scheme: conga\nflowlets: 1000\n", false, []string{"conf.yaml:8:11", "1000 entries", "fix: "}},
		{"more than that", Leaf, leafFile, strings.Replace(leafFile, "1024", "2048", 1) + "scheme: conga\nworkers: 2\n", false,
			[]string{"workers, fdb.size", "restart leafd"}},
		{"not valid", Leaf, leafFile, leafFile + "scheme: best\n", false, []string{"conf.yaml:7:9", `"best"`, "fix: "}},
		{"spine, the same", Spine, spineFile, spineFile, false, nil},
		{"spine", Spine, spineFile, spineFile + "congestion: {profile: lab}\n", false, []string{"congestion.profile", "congestion.tau", "restart spined"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r, p := newReloader(t, tc.kind, tc.old)
			before := r.current
			r.write(t, tc.text)
			changed, err := r.reload()
			if changed != tc.changed || (err != nil) != (tc.errs != nil) {
				t.Fatalf("changed %v, %v", changed, err)
			}
			for _, part := range tc.errs {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%q is not in %q", part, err)
				}
			}
			if (p.calls == 1) != tc.changed || (r.current != before) != tc.changed {
				t.Errorf("%d changes of the data plane", p.calls)
			}
			if want := r.current.dp.Options.Keys; tc.changed && !reflect.DeepEqual(p.options.Keys, want) {
				t.Errorf("the scheme is told %+v, want %+v", p.options.Keys, want)
			}
		})
	}
}

func TestReloadFailsWhole(t *testing.T) {
	r, p := newReloader(t, Leaf, leafFile)
	r.write(t, leafFile+"scheme: conga\n")
	p.err = errors.New("no")
	if changed, err := r.reload(); changed || err == nil {
		t.Fatalf("changed %v, %v", changed, err)
	}
	p.err = nil // and so the same file is a change the next time
	if changed, err := r.reload(); !changed || err != nil || p.scheme != "conga" || r.overhead() != 50 {
		t.Errorf("changed %v, %v, scheme %q", changed, err, p.scheme)
	}
	r.write(t, leafFile+"scheme: conweave\n")
	if changed, err := r.reload(); !changed || err != nil || r.overhead() != 54 {
		t.Errorf("a scheme with a shim: changed %v, %v, overhead %d", changed, err, r.overhead())
	}
	load := r.kind.load
	r.kind.load = func(string, []string) (*node, error) { panic("odd indentation") }
	if changed, err := r.reload(); changed || err == nil || !strings.Contains(err.Error(), "odd indentation") {
		t.Errorf("a parser that panics: changed %v, %v", changed, err)
	}
	r.kind.load = load
	if err := os.Remove(r.file); err != nil {
		t.Fatal(err)
	}
	if changed, err := r.reload(); changed || err == nil {
		t.Errorf("without a file: changed %v, %v", changed, err)
	}
}

// TestReloadLogs: what happened stands in the log, once for each signal, and is
// there for metrics.
func TestReloadLogs(t *testing.T) {
	r, _ := newReloader(t, Leaf, leafFile)
	r.start = time.Now().Add(-time.Hour)
	if s := r.state(); !s.Successful || s.LastSuccess != r.start {
		t.Errorf("before the first reload: %+v", s)
	}
	var log bytes.Buffer
	r.log = slog.New(slog.NewTextHandler(&log, nil))
	for _, step := range []struct{ text, want string }{
		{leafFile, `level=INFO msg="configuration reloaded: nothing has changed"`},
		{leafFile + "scheme: conga\n", `level=INFO msg="configuration reloaded" file=` + r.file + ` scheme=conga classes=0`},
		{leafFile + "ring_size: 512\n", `level=ERROR msg="configuration not reloaded: everything stays as it was"`},
		{leafFile + "vtep: none\n", `level=ERROR msg="configuration not reloaded: everything stays as it was"`},
		{leafFile + "scheme: conga\n", `level=INFO msg="configuration reloaded: nothing has changed"`},
	} {
		log.Reset()
		r.write(t, step.text)
		before, begun := r.state(), time.Now()
		ctx, cancel := context.WithCancel(t.Context())
		signals := make(chan os.Signal) // taken: the loop is at it
		done := make(chan struct{})
		go func() { r.run(ctx, signals); close(done) }()
		select {
		case signals <- syscall.SIGHUP:
		case <-time.After(5 * time.Second):
			t.Fatal("nobody takes the signal")
		}
		cancel()
		<-done
		if got := log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, step.want) {
			t.Errorf("logged %q, want %q", got, step.want)
		}
		s, refused := r.state(), strings.Contains(step.want, "ERROR")
		if s.Successful == refused || refused && s.LastSuccess != before.LastSuccess || !refused && s.LastSuccess.Before(begun) {
			t.Errorf("after %q: %+v, before %+v", step.want, s, before)
		}
	}
}

// TestReloadWarns: a scheme that the uplinks' queues do not suit is put in force,
// and the log says so.
func TestReloadWarns(t *testing.T) {
	shaped := strings.Replace(leafFile, "{interface: up1}", "{interface: up1, queue: 100KB, shaper: {rate: 100Mbit}}", 1)
	r, p := newReloader(t, Leaf, shaped)
	var log bytes.Buffer
	r.log = slog.New(slog.NewTextHandler(&log, nil))
	r.write(t, shaped+"scheme: conga\n")
	signals := make(chan os.Signal, 1)
	signals <- syscall.SIGHUP
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { r.run(ctx, signals); close(done) }()
	for deadline := time.Now().Add(5 * time.Second); r.result.Load() == nil; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("nobody takes the signal")
		}
	}
	cancel()
	<-done
	for _, part := range []string{"level=WARN", "uplink up1 (100KB at 100Mbit) takes 8ms", "pause of 500µs", "congestion.flowlet_gap above 8ms"} {
		if !strings.Contains(log.String(), part) {
			t.Errorf("%q is not in the log: %s", part, &log)
		}
	}
	if p.scheme != "conga" {
		t.Errorf("scheme %q is in force", p.scheme)
	}
}
