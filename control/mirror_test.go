package control

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/loomfabric/loom/dataplane"
)

// fakeKernel is a kernel whose state a test sets.
type fakeKernel struct {
	mu       sync.Mutex
	state    State
	fail     [numKinds]error
	lists    [numKinds]int
	slow     time.Duration // how long a list takes
	resolves map[netip.Addr]int
	changed  func(Kind)
	watching chan struct{}
}

func newFake(s State) *fakeKernel {
	return &fakeKernel{state: s, resolves: make(map[netip.Addr]int), watching: make(chan struct{})}
}

func (f *fakeKernel) List(k Kind, s *State) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lists[k]++
	time.Sleep(f.slow)
	if f.fail[k] != nil {
		return f.fail[k]
	}
	c := State{
		Links:  slices.Clone(f.state.Links),
		Routes: slices.Clone(f.state.Routes), Neighbours: slices.Clone(f.state.Neighbours),
		Addresses: slices.Clone(f.state.Addresses),
	}
	s.take(k, &c)
	return nil
}

func (f *fakeKernel) Resolve(_ int, a netip.Addr) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.resolves[a]++
	return nil
}

func (f *fakeKernel) Watch(changed func(Kind), _ func(error)) (func(), error) {
	f.changed = changed
	close(f.watching)
	return func() {}, nil
}

// set changes the state and tells of the change.
func (f *fakeKernel) set(k Kind, change func(*fakeKernel)) {
	<-f.watching
	f.mu.Lock()
	change(f)
	f.mu.Unlock()
	f.changed(k)
}

// published collects tables.
type published chan *dataplane.Tables

func (p published) Publish(t *dataplane.Tables) error {
	p <- t
	return nil
}

// until waits for tables for which ok holds, and returns how long it took.
func (p published) until(t *testing.T, what string, ok func(*dataplane.Tables) bool) (*dataplane.Tables, time.Duration) {
	t.Helper()
	start := time.Now()
	timeout := time.After(5 * time.Second)
	var last *dataplane.Tables
	for {
		select {
		case last = <-p:
			if ok(last) {
				return last, time.Since(start)
			}
		case <-timeout:
			t.Fatalf("%s: not within 5s; last tables %+v", what, last)
		}
	}
}

func startMirror(t *testing.T, o Options) (*Mirror, published) {
	t.Helper()
	p := make(published, 10000)
	o.Publisher = p
	m := NewMirror(o)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return m, p
}

func TestMirrorFollows(t *testing.T) {
	k := newFake(leafState())
	m, p := startMirror(t, Options{Role: dataplane.Leaf, Ports: leafPorts, Kernel: k, Overlay: new(leafOverlay())})
	first, _ := p.until(t, "start", func(*dataplane.Tables) bool { return true })
	if len(peerHops(first, "10.255.0.2")) != 2 {
		t.Fatalf("first tables %+v", first)
	}
	// The mirror shows what it has published, a moment later.
	for deadline := time.Now().Add(5 * time.Second); m.Tables() != first; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the mirror shows %+v, not its first tables", m.Tables())
		}
	}
	k.set(Links, func(f *fakeKernel) { f.state.Links[0].Up = false })
	p.until(t, "link down", func(t *dataplane.Tables) bool { return len(peerHops(t, "10.255.0.2")) == 1 })
	k.set(Links, func(f *fakeKernel) { f.state.Links[0].Up = true })
	p.until(t, "link up", func(t *dataplane.Tables) bool { return len(peerHops(t, "10.255.0.2")) == 2 })
	k.set(Neighbours, func(f *fakeKernel) { f.state.Neighbours[1].MAC, f.state.Neighbours[1].Usable = mac(7), true })
	p.until(t, "neighbour", func(t *dataplane.Tables) bool {
		return slices.ContainsFunc(t.Hops, func(h dataplane.Hop) bool { return h.MAC == mac(7) && h.Resolved })
	})
}

func TestMirrorWaitsForEveryKind(t *testing.T) {
	k := newFake(leafState())
	k.fail[Routes] = errors.New("refused")
	_, p := startMirror(t, Options{Role: dataplane.Leaf, Ports: leafPorts, Kernel: k, Overlay: new(leafOverlay())})
	select {
	case tables := <-p:
		t.Fatalf("published without routes: %+v", tables)
	case <-time.After(3 * listRetry):
	}
	k.set(Links, func(f *fakeKernel) { f.fail[Routes] = nil }) // nobody says that routes can be read again
	p.until(t, "retry", func(t *dataplane.Tables) bool { return len(peerHops(t, "10.255.0.2")) == 2 })
}

func TestMirrorKeepsTablesWhenAListFails(t *testing.T) {
	k := newFake(leafState())
	m, p := startMirror(t, Options{Role: dataplane.Leaf, Ports: leafPorts, Kernel: k, Overlay: new(leafOverlay())})
	first, _ := p.until(t, "start", func(*dataplane.Tables) bool { return true })
	k.set(Neighbours, func(f *fakeKernel) { f.fail[Neighbours] = netlink.ErrDumpInterrupted; f.state.Neighbours = nil })
	time.Sleep(100 * time.Millisecond)
	if m.Tables() != first || m.Stats().ListErrors[Neighbours] < 2 {
		t.Fatalf("tables changed, or no retries: %+v", m.Stats())
	}
	k.set(Links, func(f *fakeKernel) { f.fail[Neighbours] = nil })
	p.until(t, "recovery", func(t *dataplane.Tables) bool {
		return !slices.ContainsFunc(t.Hops, func(h dataplane.Hop) bool { return h.Resolved })
	})
}

func TestMirrorBoundsAStorm(t *testing.T) {
	k := newFake(leafState())
	k.slow = 2 * time.Millisecond
	_, p := startMirror(t, Options{Role: dataplane.Leaf, Ports: leafPorts, Kernel: k, Overlay: new(leafOverlay())})
	p.until(t, "start", func(*dataplane.Tables) bool { return true })
	end := time.Now().Add(400 * time.Millisecond)
	for time.Now().Before(end) {
		k.changed(Neighbours)
		time.Sleep(100 * time.Microsecond)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if n := k.lists[Neighbours]; n < 3 || n > 400/20+3 { // 2 ms of work, then 18 of rest
		t.Errorf("%d lists in 400 ms of events", n)
	}
}

func TestResolver(t *testing.T) {
	s, o := leafState(), leafOverlay()
	s.Neighbours[0].Stale = true
	k := newFake(s)
	tables := NewBuilder(dataplane.Leaf, leafPorts).Build(&s, &o, epoch)
	r := resolver{kernel: k, log: NewMirror(Options{}).Log, tries: make(map[target]*try)}
	r.update(&s, tables, false)
	if r.unresolved != 2 { // 10.1.1.0 and, on link, 10.255.0.3
		t.Fatalf("%d unresolved", r.unresolved)
	}
	for at := epoch; at.Before(epoch.Add(10 * time.Second)); at = at.Add(10 * time.Millisecond) {
		r.step(at)
	}
	// 0, 250, 750, 1750, 3750, 5750, 7750, 9750 ms; stale at 0 and 5 s.
	if got := k.resolves[addr("10.1.1.0")]; got != 8 {
		t.Errorf("unresolved: %d requests in 10 s, want 8", got)
	}
	if got := k.resolves[addr("10.1.0.0")]; got != 2 {
		t.Errorf("stale: %d requests in 10 s, want 2", got)
	}
	id := slices.IndexFunc(tables.Hops, func(h dataplane.Hop) bool { return h.Gateway == addr("10.1.1.0") })
	now := epoch.Add(10 * time.Second)
	r.hurry(tables, dataplane.HopID(id), now)
	r.step(now)
	r.hurry(tables, dataplane.HopID(id), now) // not twice within 100 ms
	r.step(now)
	if got := k.resolves[addr("10.1.1.0")]; got != 9 {
		t.Errorf("hurried: %d requests, want 9", got)
	}
	r.hurry(tables, 9999, now)
	s.Neighbours = []Neighbour{
		{Ifindex: 10, Addr: addr("10.1.0.0"), MAC: mac(1), Usable: true}, {Ifindex: 11, Addr: addr("10.1.1.0"), MAC: mac(2), Usable: true},
		{Ifindex: 10, Addr: addr("10.255.0.3"), MAC: mac(3), Usable: true},
	}
	r.update(&s, NewBuilder(dataplane.Leaf, leafPorts).Build(&s, &o, epoch), false)
	if len(r.tries) != 0 || r.unresolved != 0 {
		t.Errorf("all is resolved, but %d tries are left", len(r.tries))
	}
}

// An IPv6 neighbour is asked for when the kernel may use the address that it asks from: at
// once then, however long the pauses have become, and not because other addresses come and go.
func TestResolverWaitsForTheAddress(t *testing.T) {
	s, o := leafState(), leafOverlay()
	const gateway = "fe80::1"
	s.Routes[1].Hops = []NextHop{hop(11, gateway)}
	k := newFake(s)
	r := resolver{kernel: k, log: NewMirror(Options{}).Log, tries: make(map[target]*try)}
	tables, now := NewBuilder(dataplane.Leaf, leafPorts).Build(&s, &o, epoch), epoch
	id := slices.IndexFunc(tables.Hops, func(h dataplane.Hop) bool { return h.Gateway == addr(gateway) })
	for _, step := range []struct {
		what      string
		tentative []int
		moving    bool
		after     time.Duration
		want      int // requests in all
	}{
		{"the address is tentative", []int{11}, false, time.Second, 0},
		{"addresses change again", nil, true, time.Second, 0},
		{"it may be used", nil, false, 0, 1},
		{"pauses grow", nil, false, 4 * time.Second, 5}, // after 250, 750, 1750 and 3750 ms
		{"another interface's is tentative", []int{10}, false, 0, 5},
		{"others come and go", nil, true, 0, 5},
		{"they have come and gone", nil, false, 0, 5},
		{"the link is new", []int{11}, false, 3 * time.Second, 5},
		{"it may be used again", nil, false, 0, 6},
		{"pauses grow anew", nil, false, 260 * time.Millisecond, 7},
	} {
		s.Tentative = step.tentative
		r.update(&s, tables, step.moving)
		for end := now.Add(step.after); ; now = now.Add(10 * time.Millisecond) {
			if slices.Contains(step.tentative, 11) { // frames wait, and that makes no difference
				r.hurry(tables, dataplane.HopID(id), now)
			}
			if next := r.step(now); !next.After(now) {
				t.Fatalf("%s: the next step is at %v, which is past", step.what, next.Sub(epoch))
			}
			if !now.Before(end) {
				break
			}
		}
		if got := k.resolves[addr(gateway)]; got != step.want {
			t.Fatalf("%s: %d requests so far, want %d", step.what, got, step.want)
		}
	}
	if k.resolves[addr("10.255.0.3")] == 0 {
		t.Error("a neighbour of IPv4 was made to wait, too")
	}
}

// lines collects what is logged.
type lines struct {
	mu  sync.Mutex
	b   bytes.Buffer
	all strings.Builder // what take has forgotten, too
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all.Write(b)
	return l.b.Write(b)
}

// take waits for a line with a text, and forgets what was logged.
func (l *lines) take(t *testing.T, want string) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(time.Millisecond) {
		l.mu.Lock()
		got := l.b.String()
		if strings.Contains(got, want) {
			l.b.Reset()
			l.mu.Unlock()
			return
		}
		l.mu.Unlock()
		if time.Now().After(deadline) {
			t.Fatalf("%q was not logged, but %q", want, got)
		}
	}
}

// logged starts a mirror of leafPorts and returns what it logs after its first tables.
func logged(t *testing.T, k *fakeKernel, o Options) *lines {
	t.Helper()
	out := new(lines)
	o.Role, o.Ports, o.Kernel, o.Overlay, o.Log = dataplane.Leaf, leafPorts, k, new(leafOverlay()), slog.New(slog.NewTextHandler(out, nil))
	m, p := startMirror(t, o)
	p.until(t, "start", func(*dataplane.Tables) bool { return true })
	for deadline := time.Now().Add(5 * time.Second); m.Stats().Published == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("no tables")
		}
	}
	return out
}

// A link that fails elsewhere takes a route away, and the log says of which peer. An uplink
// that goes down does so, too, and of that the log speaks once.
func TestMirrorLogsFewerRoutes(t *testing.T) {
	s := leafState()
	both := s.Routes[1].Hops
	k := newFake(s)
	out := logged(t, k, Options{})
	route := func(hops ...NextHop) {
		k.set(Routes, func(f *fakeKernel) { f.state.Routes[1].Hops = hops })
	}
	route(both[0])
	out.take(t, `level=WARN msg="fewer routes to peer: look at the links and nodes behind the uplinks" vtep=10.255.0.2 next_hops=1 was=2 lost=up0`)
	route(both...)
	out.take(t, `level=INFO msg="more routes to peer" vtep=10.255.0.2 next_hops=2 was=1 found=up0`)
	up := func(is bool) {
		k.set(Links, func(f *fakeKernel) { f.state.Links[0].Up = is })
		out.take(t, `interface=up0 exists=true up=`+strconv.FormatBool(is))
	}
	up(false)
	up(true)
	route(both[1])
	out.take(t, `lost=up1`)
	out.mu.Lock()
	defer out.mu.Unlock()
	if strings.Count(out.all.String(), "routes to peer") != 3 {
		t.Errorf("logged\n%s", out.all.String())
	}
}

func TestMirrorLogsUnknownSpeed(t *testing.T) {
	s := leafState()
	s.Links[0].Speed, s.Links[1].Speed = 10e9, 10e9
	k := newFake(s)
	out := logged(t, k, Options{})
	k.set(Links, func(f *fakeKernel) { f.state.Links[0].Speed = 0 })
	out.take(t, `speed is unknown: its load is not metered, and CONGA is blind there" interface=up0 fix="give the port a link_rate`)
	k.set(Links, func(f *fakeKernel) { f.state.Links[0].Speed = 25e9 })
	out.take(t, `speed is known" interface=up0 rate=25000000000 from=kernel`)
}

func TestMirrorWatchesMTU(t *testing.T) {
	s := leafState()
	s.Links[2].MTU = 1546
	k := newFake(s)
	overhead := atomic.Int64{}
	overhead.Store(54)
	out := logged(t, k, Options{Overhead: func() int { return int(overhead.Load()) }})
	k.set(Links, func(f *fakeKernel) { f.state.Links[1].MTU = 1599 })
	out.take(t, `long packets are dropped" interface=up1 mtu=1599 needs=1600 fix="ip link set dev up1 mtu 1600"`)
	overhead.Store(50)
	k.set(Links, func(f *fakeKernel) { f.state.Links[0].MTU = 2000 }) // any change of a link
	out.take(t, `large enough again" interface=up1 mtu=1599 needs=1596`)
	k.set(Links, func(f *fakeKernel) { f.state.Links[2].MTU = 1600 }) // hosts may send more
	out.take(t, `long packets are dropped" interface=up1 mtu=1599 needs=1650 fix="ip link set dev up1 mtu 1650"`)
}
