package daemon

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/config"
	"github.com/loomfabric/loom/control"
	"github.com/loomfabric/loom/dataplane"
)

const leafFile = `
vtep: 10.255.0.1
uplinks: [{interface: up0}, {interface: up1}]
access: [{interface: acc0, vni: 100}]
vnis: [{vni: 100}]
fdb: {size: 1024}
`

// fakePlane records what is put in force, of the data plane and of the mirror.
type fakePlane struct {
	scheme  string
	options balance.Options
	classes []dataplane.Class
	ports   []dataplane.PortConfig
	remotes []netip.Prefix
	overlay *config.Leaf
	follows []string
	full    string // port for which there is no room
	wait    time.Duration

	calls   []string         // in their order
	refuses map[string]error // by call
}

func (p *fakePlane) call(what string) error {
	p.calls = append(p.calls, what)
	return p.refuses[what]
}

func (p *fakePlane) SetSchemes(scheme string, o balance.Options, classes []dataplane.Class) error {
	if err := p.call("schemes"); err != nil {
		return err
	}
	p.scheme, p.options, p.classes = scheme, o, classes
	return nil
}

func (p *fakePlane) CheckPorts(ports []dataplane.PortConfig) error {
	if slices.ContainsFunc(ports, func(c dataplane.PortConfig) bool { return c.Name == p.full }) {
		return &dataplane.NoRoomError{Port: p.full, What: "all places are taken", Wait: p.wait}
	}
	return p.refuses["check"]
}

func (p *fakePlane) SetPorts(ports []dataplane.PortConfig) error {
	if err := p.call("ports"); err != nil {
		return err
	}
	p.ports = ports
	return nil
}

func (p *fakePlane) Ports() []dataplane.PortConfig { return p.ports }

func (p *fakePlane) SetRemotes(remotes []netip.Prefix) error {
	p.remotes = remotes
	return p.call("remotes")
}

func (p *fakePlane) Configure(_ context.Context, ports []dataplane.PortConfig, overlay *config.Leaf) error {
	if err := p.call("tables"); err != nil {
		return err
	}
	p.overlay = overlay
	return nil
}

func newReloader(t *testing.T, k Kind, text string) (*reloader, *fakePlane) {
	t.Helper()
	p := &fakePlane{refuses: make(map[string]error)}
	r := &reloader{
		kind: k, file: filepath.Join(t.TempDir(), "conf.yaml"), plane: p, tables: p, log: slog.New(slog.DiscardHandler),
		follow: func(ports ...string) { p.follows = ports },
		gather: func(*dataplane.Config) (*control.Facts, error) { return &control.Facts{}, nil },
	}
	r.write(t, text)
	n, err := k.load(r.file, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	p.ports = n.dp.Ports
	r.now.Store(n)
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
	swap := strings.NewReplacer
	for _, tc := range []struct {
		name      string
		kind      Kind
		old, text string
		calls     string   // of the data plane and the mirror, in their order; "": nothing changes
		errs      []string // parts of the error
	}{
		{"the same", Leaf, leafFile, leafFile, "", nil},
		{"the same, written otherwise", Leaf, leafFile, leafFile + "scheme: ecmp # as ever\n", "", nil},
		{"another scheme", Leaf, leafFile, leafFile + "scheme: conga\n", "schemes tables", nil},
		{"classes", Leaf, leafFile, leafFile + "classes: [{match: {protocol: udp}, scheme: spray}]\n", "schemes tables", nil},
		{"weights", Leaf, leafFile, leafFile + "scheme: static\nweights: [3, 1]\n", "schemes tables", nil},
		{"another flowlet table", Leaf, leafFile + "scheme: conga\n", leafFile + "scheme: conga\nflowlets: 1024\n", "schemes tables", nil},
		{"the flowlet table that it has", Leaf, leafFile + "scheme: conga\n", leafFile + "scheme: conga\nflowlets: 65536\n", "", nil},
		{"a flowlet table that cannot be", Leaf, leafFile + "scheme: conga\n", leafFile + "scheme: conga\nflowlets: 1000\n", "", []string{"conf.yaml:8:11", "1000 entries", "fix: "}},
		{"a peer", Leaf, leafFile, leafFile + "peers: [10.255.0.2]\n", "tables", nil},
		{"a network, its limits and addresses", Leaf, leafFile,
			swap("vnis: [{vni: 100}]", "vnis: [{vni: 100, fdb_limit: 7, storm: {rate: 5}, static: [{mac: 02:00:00:00:00:01, interface: acc0}]}, {vni: 200}]").Replace(leafFile), "tables", nil},
		{"an uplink more", Leaf, leafFile, swap("{interface: up1}", "{interface: up1}, {interface: up2}").Replace(leafFile), "ports tables", nil},
		{"an uplink less", Leaf, leafFile, swap(", {interface: up1}", "").Replace(leafFile), "ports tables", nil},
		{"a port in another network", Leaf, leafFile + "peers: [10.255.0.2]\n",
			swap("acc0, vni: 100", "acc0, vni: 200", "vnis: [{vni: 100}]", "vnis: [{vni: 100}, {vni: 200}]").Replace(leafFile), "tables", nil},
		{"a port's limit", Leaf, leafFile, swap("acc0, ", "acc0, fdb_limit: 9, ").Replace(leafFile), "ports tables", nil},
		{"the log", Leaf, leafFile, leafFile + "log: {level: debug}\n", "tables", nil},
		{"more than that", Leaf, leafFile, strings.Replace(leafFile, "1024", "2048", 1) + "scheme: conga\nworkers: 2\n", "",
			[]string{"workers, fdb.size", "restart leafd"}},
		{"not valid", Leaf, leafFile, leafFile + "scheme: best\n", "", []string{"conf.yaml:7:9", `"best"`, "fix: "}},
		{"spine, the same", Spine, spineFile, spineFile, "", nil},
		{"a spine's port and VTEPs", Spine, spineFile, "vteps: [10.255.0.0/23]\nports: [{interface: dn0}, {interface: dn1}]\n", "ports remotes tables", nil},
		{"spine", Spine, spineFile, spineFile + "congestion: {profile: lab}\n", "", []string{"congestion.profile", "congestion.tau", "restart spined"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r, p := newReloader(t, tc.kind, tc.old)
			before := r.now.Load()
			r.write(t, tc.text)
			changed, err := r.reload(t.Context())
			if changed != (tc.calls != "") || (err != nil) != (tc.errs != nil) {
				t.Fatalf("changed %v, %v", changed, err)
			}
			for _, part := range tc.errs {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%q is not in %q", part, err)
				}
			}
			if got := strings.Join(p.calls, " "); got != tc.calls || (r.now.Load() != before) != changed {
				t.Errorf("changes of %q, want %q", got, tc.calls)
			}
			now := r.now.Load()
			if strings.HasPrefix(tc.calls, "schemes") && !reflect.DeepEqual(p.options.Keys, now.dp.Options.Keys) {
				t.Errorf("the scheme is told %+v, want %+v", p.options.Keys, now.dp.Options.Keys)
			}
			if changed && (p.overlay != now.overlay() || !slices.Equal(p.ports, now.dp.Ports) || r.level.Level() != now.logLevel()) {
				t.Errorf("in force are %+v, %+v, level %v", p.ports, p.overlay, r.level.Level())
			}
			if slices.Contains(p.calls, "ports") && !slices.Equal(p.follows, now.portNames()) {
				t.Errorf("the mirror follows %q", p.follows)
			}
		})
	}
}

func TestReloadFailsWhole(t *testing.T) {
	r, p := newReloader(t, Leaf, leafFile)
	r.write(t, leafFile+"scheme: conga\n")
	p.refuses["schemes"] = errors.New("no")
	if changed, err := r.reload(t.Context()); changed || err == nil {
		t.Fatalf("changed %v, %v", changed, err)
	}
	delete(p.refuses, "schemes") // and so the same file is a change the next time
	if changed, err := r.reload(t.Context()); !changed || err != nil || p.scheme != "conga" || r.overhead() != 50 {
		t.Errorf("changed %v, %v, scheme %q", changed, err, p.scheme)
	}
	r.write(t, leafFile+"scheme: conweave\n")
	if changed, err := r.reload(t.Context()); !changed || err != nil || r.overhead() != 54 {
		t.Errorf("a scheme with a shim: changed %v, %v, overhead %d", changed, err, r.overhead())
	}
	load := r.kind.load
	r.kind.load = func(string, []byte, []string) (*node, error) { panic("odd indentation") }
	if changed, err := r.reload(t.Context()); changed || err == nil || !strings.Contains(err.Error(), "odd indentation") {
		t.Errorf("a parser that panics: changed %v, %v", changed, err)
	}
	r.kind.load = load
	if err := os.Remove(r.file); err != nil {
		t.Fatal(err)
	}
	if changed, err := r.reload(t.Context()); changed || err == nil {
		t.Errorf("without a file: changed %v, %v", changed, err)
	}
}

// What cannot be done is found before anything is; what fails all the same is taken back.
func TestReloadOfPortsFailsWhole(t *testing.T) {
	other := strings.NewReplacer("{interface: up1}", "{interface: up2}", "vnis: [{vni: 100}]", "vnis: [{vni: 100}, {vni: 200}]").Replace(leafFile) + "scheme: conga\n"
	t.Run("no room", func(t *testing.T) {
		r, p := newReloader(t, Leaf, leafFile)
		r.write(t, other)
		p.refuses["check"] = &dataplane.NoRoomError{Port: "up2", What: "all places are taken"}
		if changed, err := r.reload(t.Context()); changed || !errors.As(err, new(*dataplane.NoRoomError)) || len(p.calls) > 0 {
			t.Errorf("changed %v, %v, after %q", changed, err, p.calls)
		}
	})
	t.Run("a port that cannot be", func(t *testing.T) {
		r, p := newReloader(t, Leaf, leafFile)
		r.write(t, other)
		r.gather = func(*dataplane.Config) (*control.Facts, error) {
			return &control.Facts{Ports: map[string]control.PortFacts{"up2": {MTU: 1600, RXQueues: 4, TXQueues: 4}}}, nil
		}
		if changed, err := r.reload(t.Context()); changed || err == nil || !strings.Contains(err.Error(), "up2 has 4 receive queues") || len(p.calls) > 0 {
			t.Errorf("changed %v, %v, after %q", changed, err, p.calls)
		}
	})
	for _, what := range []string{"ports", "tables"} {
		t.Run(what, func(t *testing.T) {
			r, p := newReloader(t, Leaf, leafFile)
			before := r.now.Load()
			r.write(t, other)
			p.refuses[what] = errors.New("no")
			if changed, err := r.reload(t.Context()); changed || err == nil {
				t.Fatalf("changed %v, %v", changed, err)
			}
			if r.now.Load() != before || p.scheme != "ecmp" || !slices.Equal(p.ports, before.dp.Ports) && what != "ports" {
				t.Errorf("scheme %q, ports %+v", p.scheme, p.ports)
			}
		})
	}
}

// What a reload would do is said before it is done.
func TestConfigDiff(t *testing.T) {
	r, p := newReloader(t, Leaf, leafFile)
	for _, tc := range []struct {
		text, live, restart, findings, err string
	}{
		{leafFile, "", "", "", ""},
		{leafFile + "peers: [10.255.0.2]\nlog: {level: debug}\n", "log.level vnis[0].flood peers", "", "", ""},
		{leafFile + "workers: 2\nscheme: conga\n", "scheme flowlets", "workers", "", ""},
		{strings.Replace(leafFile, "up1}", "up1}, {interface: up2}", 1), "uplinks", "", "interface up2 does not exist: the port opens when it appears", ""},
		{leafFile + "scheme: best\n", "", "", "", `"best"`},
	} {
		r.write(t, tc.text)
		d := r.Diff()
		if strings.Join(d.Live, " ") != tc.live || strings.Join(d.Restart, " ") != tc.restart || !strings.Contains(d.Error, tc.err) || (d.Error == "") != (tc.err == "") ||
			!strings.Contains(strings.Join(d.Findings, "\n"), tc.findings) || (len(d.Findings) == 0) != (tc.findings == "") {
			t.Errorf("%+v, want %+v", d, tc)
		}
	}
	if len(p.calls) > 0 {
		t.Errorf("a question has changed %q", p.calls)
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
		{leafFile + "scheme: conga\n", `level=INFO msg="configuration reloaded" file=` + r.file + ` scheme=conga classes=0 ports=3`},
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
