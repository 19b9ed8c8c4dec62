package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/config"
	"github.com/loomfabric/loom/control"
	"github.com/loomfabric/loom/dataplane"
	"github.com/loomfabric/loom/internal/telemetry"
)

// reloader takes over what may change in the file of a running daemon. It is all or
// nothing, so that what runs is always what one state of the file says.
type reloader struct {
	kind    Kind
	file    string
	now     atomic.Pointer[node] // what runs; written with applying held
	plane   plane
	tables  tables                                          // nil before serve
	follow  func(ports ...string)                           // has the kernel's mirror look at ports more closely
	gather  func(*dataplane.Config) (*control.Facts, error) // about ports
	level   slog.LevelVar                                   // of the log
	log     *slog.Logger
	manager manager
	result  atomic.Pointer[telemetry.Reload] // nil: nothing was read since the start
	start   time.Time
	found   chan []string // ports that routes lead over; holds one
	asked   chan request  // reloads that the admin API wants

	applying sync.Mutex // held while what runs changes
}

// plane is what a reload changes of a data plane.
type plane interface {
	SetSchemes(scheme string, o balance.Options, classes []dataplane.Class) error
	CheckPorts(ports []dataplane.PortConfig) error
	SetPorts(ports []dataplane.PortConfig) error
	SetRemotes(remotes []netip.Prefix) error
	Ports() []dataplane.PortConfig
}

// tables is who makes the data plane's tables.
type tables interface {
	Configure(ctx context.Context, ports []dataplane.PortConfig, overlay *config.Leaf) error
}

// state is for metrics, which ask from goroutines of their own.
func (r *reloader) state() telemetry.Reload {
	if s := r.result.Load(); s != nil {
		return *s
	}
	return telemetry.Reload{Successful: true, LastSuccess: r.start}
}

// overhead returns what uplinks' MTU must exceed hosts' by under the schemes in force.
// The control plane asks from a goroutine of its own.
func (r *reloader) overhead() int { return r.now.Load().dp.Overhead() }

// note keeps what became of the file that was just read.
func (r *reloader) note(err error) {
	s := telemetry.Reload{Successful: err == nil, LastSuccess: time.Now()}
	if err != nil {
		s.LastSuccess = r.state().LastSuccess
	}
	r.result.Store(&s)
}

// run reloads at each signal, and when the admin API asks for it, until ctx ends.
func (r *reloader) run(ctx context.Context, signals <-chan os.Signal) {
	for {
		select {
		case <-ctx.Done():
			return
		case ports := <-r.found:
			r.takeFound(ctx, ports)
		case <-signals:
			_, _ = r.take(ctx, nil) // the log says what came of it
		case q := <-r.asked:
			q.answer <- r.reloadIf(ctx, q.sum)
		}
	}
}

// take reloads the file, of which the text is given if somebody has read it, and tells the
// service manager, the metrics and the log.
func (r *reloader) take(ctx context.Context, text []byte) (changed bool, err error) {
	r.manager.reloading()
	changed, err = r.reloadText(ctx, text)
	r.note(err)
	r.manager.reloaded(err)
	switch {
	case err != nil:
		r.log.Error("configuration not reloaded: everything stays as it was", "file", r.file, "err", err)
	case !changed:
		r.log.Info("configuration reloaded: nothing has changed", "file", r.file)
	default:
		dp := &r.now.Load().dp
		r.log.Info("configuration reloaded", "file", r.file, "scheme", dp.Scheme, "classes", len(dp.Classes), "ports", len(dp.Ports))
		for _, f := range control.CheckGaps(dp) {
			r.log.Warn(f.Problem, "fix", f.Fix)
		}
	}
	return changed, err
}

// load reads the file, or a text in its place, whose name is file then. Frames are being
// forwarded, and what it says may be anything: a parser's panic must not end that.
func (r *reloader) load(file string, text []byte) (n *node, err error) {
	defer func() {
		if p := recover(); p != nil {
			n, err = nil, fmt.Errorf("read %s: panic: %v: this is a bug of the parser; simplify the YAML", file, p)
		}
	}()
	return r.kind.load(file, text, nil)
}

// plan is what a reload of the file would do.
type plan struct {
	node          *node
	live, restart []string          // keys that changed
	findings      []control.Finding // about what changed; none is fatal
}

// plan reads a file, or a text in its place, and holds it against what runs and against
// the machine. It changes nothing. Keys that need a restart are no error.
func (r *reloader) plan(file string, text []byte) (*plan, error) {
	n, err := r.load(file, text)
	if err != nil {
		return nil, err
	}
	now := r.now.Load()
	n = n.discover(now.model, now.widest())
	p := &plan{node: n}
	p.live, p.restart = config.Changes(now.file, n.file)
	n.inherit(now)
	if n.auto() != now.auto() { // who finds them begins with the mirror
		p.restart = append(p.restart, map[bool]string{true: "ports", false: "uplinks"}[n.overlay() == nil])
	}
	if len(p.restart) > 0 || len(p.live) == 0 {
		return p, nil
	}
	if _, err := r.fit(n); err != nil {
		return nil, err
	}
	added, changed := n.since(now)
	if len(added)+len(changed) == 0 {
		return p, nil
	}
	facts, err := r.gather(&n.dp)
	if err != nil {
		return nil, err
	}
	in := func(ports []string) func(string) bool {
		return func(port string) bool { return slices.Contains(ports, port) }
	}
	var errs []error
	for _, f := range control.CheckChange(&n.dp, n.overlay(), facts, in(added), in(changed)) {
		if f.Fatal {
			errs = append(errs, errors.New(f.String()))
		}
		p.findings = append(p.findings, f)
	}
	return p, errors.Join(errs...)
}

// inherit takes over what was found out at the start and stays.
func (n *node) inherit(from *node) {
	if n.auto() {
		n.dp.Ports = n.with(from.found()).dp.Ports
	}
	n.dp.Name, n.dp.Seed, n.dp.MaxMTU, n.dp.Room, n.dp.Look = from.dp.Name, from.dp.Seed, from.dp.MaxMTU, from.dp.Room, from.dp.Look
}

// since returns the names of the ports that n has and an older node has not, and of those
// whose settings or networks differ.
func (n *node) since(old *node) (added, changed []string) {
	networks := func(n *node, port string) (in config.Access) {
		if o := n.overlay(); o != nil {
			if i := slices.IndexFunc(o.Access, func(a config.Access) bool { return a.Interface == port }); i >= 0 {
				in = o.Access[i]
			}
		}
		return in
	}
	for _, p := range n.dp.Ports {
		i := slices.IndexFunc(old.dp.Ports, func(q dataplane.PortConfig) bool { return q.Name == p.Name && q.Kind == p.Kind })
		switch {
		case i < 0:
			added = append(added, p.Name)
		case old.dp.Ports[i] != p || !reflect.DeepEqual(networks(old, p.Name), networks(n, p.Name)):
			changed = append(changed, p.Name)
		}
	}
	return added, changed
}

// reload reads the file again, and puts what has changed in force.
func (r *reloader) reload(ctx context.Context) (changed bool, err error) {
	return r.reloadText(ctx, nil)
}

// reloadText is reload for a text that was read from the file; nil: none was.
func (r *reloader) reloadText(ctx context.Context, text []byte) (changed bool, err error) {
	r.applying.Lock()
	defer r.applying.Unlock()
	p, err := r.plan(r.file, text)
	if err != nil {
		return false, err
	}
	if len(p.restart) > 0 {
		return false, fmt.Errorf("%s of %s can only change by a restart: restart %s, or take the change back",
			strings.Join(p.restart, ", "), r.file, r.kind.name)
	}
	if len(p.live) == 0 {
		return false, nil
	}
	now := r.now.Load()
	if err := r.exchange(ctx, now, p.node); err != nil {
		return false, err
	}
	r.level.Set(p.node.logLevel())
	for _, f := range p.findings {
		r.log.Warn(f.Problem, "fix", f.Fix)
	}
	return true, nil
}

// exchange puts a node's configuration in force in the place of another one's, or takes
// back what of it was put in force. applying is held.
func (r *reloader) exchange(ctx context.Context, old, n *node) error {
	err := r.apply(ctx, old, n)
	if err == nil || ctx.Err() != nil || errors.Is(err, dataplane.ErrOver) { // the daemon ends
		return err
	}
	if back := r.apply(ctx, n, old); back != nil {
		r.log.Error("cannot take back what was changed in part: restart the daemon", "err", back)
	}
	return err
}

// apply puts a node's configuration in force that differs from another one's. What is
// likely to be refused comes first. Ports that go leave before the tables that are made
// without them; ports that come have their numbers before the tables that name them.
func (r *reloader) apply(ctx context.Context, old, n *node) error {
	if a, b := &old.dp, &n.dp; a.Scheme != b.Scheme || !reflect.DeepEqual(a.Options, b.Options) || !reflect.DeepEqual(a.Classes, b.Classes) {
		if err := r.plane.SetSchemes(b.Scheme, b.Options, b.Classes); err != nil {
			return err
		}
	}
	if !slices.Equal(old.dp.Ports, n.dp.Ports) {
		r.follow(n.portNames()...)
		if err := r.plane.SetPorts(n.dp.Ports); err != nil {
			return err
		}
	}
	if !slices.Equal(old.dp.Remotes, n.dp.Remotes) {
		if err := r.plane.SetRemotes(n.dp.Remotes); err != nil {
			return err
		}
	}
	r.now.Store(n) // the mirror asks for the overhead of its schemes
	return r.tables.Configure(ctx, r.plane.Ports(), n.overlay())
}
