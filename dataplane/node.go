package dataplane

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/bpf"
	"github.com/loomfabric/loom/dataplane/xsk"
)

// Node is a leaf's or a spine's data plane: its workers and its ports. Its
// methods may be called from any goroutine.
type Node struct {
	cfg     Config
	log     *slog.Logger
	workers []*worker
	umems   []*xsk.Umem // by worker
	view    atomic.Pointer[view]
	layout  atomic.Pointer[layout]
	ask     chan HopID
	shared  *shared
	tuner   tuner
	rule    *bpf.Rule   // what XDP programs know of the kernel's overlay; nil: it is the node's own
	routes  *bpf.Routes // spine: which VXLAN its XDP programs take; publishing guards it and cfg.Remotes

	opening sync.Mutex // held while ports come, go, and are opened and closed; guards closed and seats
	closed  bool
	seats   seats
	mu      sync.Mutex    // guards devices and what they say; taken after opening, and never for long
	devices []*device     // by PortID; nil: nobody has it. Written with opening held, too
	serving bool          // the programs give frames to the workers. Written with opening held, too
	changed chan struct{} // tables came whose interfaces may differ

	removing chan struct{} // ports were removed that are not closed yet

	scheming sync.Mutex // guards rules; taken after opening
	rules    []Class    // in force, see Config.rules

	publishing sync.Mutex  // guards tables, opened and overhead, and is held while layout changes; taken after opening
	tables     *Tables     // as published last
	opened     []int       // by PortID: ifindex of the interface that the port is open on; 0: not open
	overhead   int         // under the schemes that a reload put in force; 0: cfg's
	leaving    bool        // the kernel gets all frames again
	statics    []StaticMAC // configured addresses that the workers have

	handing  *handing // to a successor; guarded by opening
	released sync.Once
	handed   chan struct{} // closed when a successor goes on
	heir     *heir         // of a predecessor; nil: there was none

	onCrash func() // when a worker panics; nil: nothing

	capturing sync.Mutex // guards captures; taken after no other
	captures  [maxCaptures]*Capture

	fast      *fastPath // nil: there is none
	fastError string    // why not, if there was to be one
	load      func(bpf.Config) (*bpf.Program, error)
	fastBase  atomic.Pointer[WorkerStats] // what the predecessors' fast paths counted; nil: they had none
}

// newNode returns a node without workers. uplinks have the LBTags that they had in a
// predecessor.
func newNode(cfg Config, uplinks []string, log *slog.Logger) (*Node, error) {
	n := &Node{
		cfg: cfg, log: log, ask: make(chan HopID, 64), changed: make(chan struct{}, 1), removing: make(chan struct{}, 1), seats: newSeats(cfg.Room), rules: cfg.rules(),
		handed: make(chan struct{}), load: bpf.Load,
	}
	n.seats.inherit(uplinks, time.Now())
	l, err := n.seats.arrange(cfg.Role, cfg.Ports, time.Now())
	if err != nil {
		return nil, err
	}
	n.layout.Store(l)
	n.opened = make([]int, len(l.ports))
	n.shared = newShared(&n.cfg)
	return n, nil
}

// Open creates the workers, attaches the classifier to every port and binds
// the sockets. On an error nothing stays behind. No frame is taken from the kernel before
// [Node.Publish] and [Node.Run].
func Open(cfg Config, log *slog.Logger) (*Node, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	n, err := newNode(cfg, nil, log)
	if err != nil {
		return nil, err
	}
	size := xsk.UmemConfig{Frames: cfg.UMEMFrames(), FrameSize: cfg.FrameSize()}
	if uint64(size.Frames)*uint64(size.FrameSize) > maxArea {
		return nil, fmt.Errorf("%d packet buffers of %d bytes a worker are more than 4 GiB: lower `ring_size` or `frames`", size.Frames, size.FrameSize)
	}
	err = errors.Join(n.openTables(), n.openWorkers(func(int) (*xsk.Umem, error) { return xsk.NewUmem(size) }))
	if err != nil {
		return nil, errors.Join(err, n.Close())
	}
	for i := range cfg.Ports {
		d := &device{id: PortID(i), cfg: &cfg.Ports[i]}
		n.devices = append(n.devices, d)
		if d.cfg.Optional && n.absent(d) {
			continue
		}
		err := n.openDevice(d, 0)
		if d.cfg.Optional && errors.As(err, new(taken)) {
			n.log.Error("cannot open port; trying again", "error", err)
			continue
		}
		if err != nil {
			return nil, errors.Join(err, n.Close())
		}
	}
	return n, nil
}

// openTables makes what XDP programs share.
func (n *Node) openTables() error { return errors.Join(n.openRule(), n.openRoutes(), n.openFast()) }

// openWorkers makes the workers, each with the area that it is given.
func (n *Node) openWorkers(area func(q int) (*xsk.Umem, error)) error {
	var addresses *workerRings[learned]
	var messages *workerRings[message]
	if n.cfg.Workers > 1 {
		addresses, messages = newWorkerRings[learned](n.cfg.Workers), newWorkerRings[message](n.cfg.Workers)
	}
	for q := range n.cfg.Workers {
		u, err := area(q)
		if err != nil {
			return fmt.Errorf("worker %d: %w", q, err)
		}
		n.umems = append(n.umems, u)
		frames, size := u.Config().Frames, u.Config().FrameSize
		w, err := newWorker(q, &n.cfg, u.Area(), xsk.NewPool(frames, size), size, n.shared)
		if err != nil {
			return fmt.Errorf("worker %d: %w", q, err)
		}
		w.ask, w.views = n.ask, &n.view
		if n.fast != nil {
			w.marks = newMarks(n.fast.tables, n.cfg.Room, &n.fast.shared)
		}
		if w.leaf != nil {
			w.leaf.learned, w.leaf.messages = addresses, messages
		} else {
			w.spine.messages = messages
		}
		if err := w.mail.open(); err != nil {
			return fmt.Errorf("worker %d: %w", q, err)
		}
		n.workers = append(n.workers, w)
	}
	return nil
}

// Run forwards frames until ctx ends. Then a leaf says goodbye to its peers, the ports
// are left to the kernel, what was received and queued until then is sent, and Run returns.
// After [Node.Release] it returns and sends nothing.
// It returns early with an error when a worker cannot run.
func (n *Node) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		select {
		case <-n.handed:
			cancel()
		case <-ctx.Done():
		}
		return nil
	})
	forward, drain := context.WithCancel(context.WithoutCancel(ctx))
	defer drain()
	for _, w := range n.workers {
		g.Go(func() error {
			defer n.crashed()
			return w.run(forward)
		})
	}
	g.Go(func() error {
		<-ctx.Done()
		defer drain()
		n.farewell()
		if n.isHanded() {
			return nil // the ports are a successor's
		}
		n.handBack()
		return n.yield()
	})
	g.Go(func() error { n.serve(ctx); return nil })
	if n.fast != nil {
		g.Go(func() error { n.fast.fill(ctx); return nil })
		g.Go(func() error { n.fast.pulse(ctx); return nil })
	}
	g.Go(func() error { n.watchDevices(ctx); return nil })
	g.Go(func() error { n.watchRemoved(ctx); return nil })
	g.Go(func() error { n.tune(ctx); return nil })
	g.Go(func() error { n.watchMoves(ctx); return nil })
	g.Go(func() error { n.watchPaths(ctx); return nil })
	return g.Wait()
}

// Publish gives the workers new tables; the caller must not change them any
// more. Tables that contradict the configuration are refused.
func (n *Node) Publish(t *Tables) error {
	n.publishing.Lock()
	defer n.publishing.Unlock()
	return n.publish(t)
}

// publish is Publish; publishing is held.
func (n *Node) publish(t *Tables) error {
	v, err := compile(&n.cfg, n.layout.Load(), n.openPorts(t))
	if err != nil {
		return fmt.Errorf("new tables: %w", err)
	}
	if old := n.view.Load(); old != nil {
		v.seq = old.seq + 1
	}
	n.withdraw(v)
	n.fast.leave(n.view.Load(), v)
	n.putInForce(v)
	select {
	case n.changed <- struct{}{}:
	default: // the watcher has yet to look at all, and will see these
	}
	n.setStatics(t.Static)
	n.tables = t
	n.offer(v)
	return nil
}

// openPorts returns t with those ports down that are not open on the interface
// that t names: the kernel may say that it is up, but nothing that is sent there
// leaves, and other next hops must take its share.
func (n *Node) openPorts(t *Tables) *Tables {
	masked := t
	for i := range min(len(t.Ports), len(n.opened)) { // of more than that compile says so
		if !t.Ports[i].Up || t.Ports[i].Ifindex == n.opened[i] {
			continue
		}
		if masked == t {
			c := *t
			c.Ports = slices.Clone(t.Ports)
			masked = &c
		}
		masked.Ports[i].Up = false
	}
	return masked
}

// setOpened notes the interface that a port is open on, 0 for none, and lets
// the workers know.
func (n *Node) setOpened(id PortID, ifindex int) {
	n.publishing.Lock()
	defer n.publishing.Unlock()
	if n.opened[id] == ifindex {
		return
	}
	n.opened[id] = ifindex
	if n.tables == nil {
		return
	}
	if err := n.publish(n.tables); err != nil {
		n.log.Error("cannot publish the tables again", "error", err) // they were good before
	}
}

// SetSchemes puts another default scheme and other traffic classes in force,
// between two bursts: no frame is lost, but flowlets and connections start anew. A
// scheme that does not exist, or whose header would not fit the uplinks beside
// hosts' longest frames, changes nothing.
func (n *Node) SetSchemes(scheme string, o balance.Options, classes []Class) error {
	if n.cfg.Role != Leaf {
		return errors.New("a spine takes its scheme when it starts, and leaves choose the paths: restart it for another one")
	}
	cfg := n.cfg
	cfg.Scheme, cfg.Options, cfg.Classes = scheme, o, classes
	if err := n.checkMTU(&cfg); err != nil {
		return err
	}
	n.scheming.Lock()
	defer n.scheming.Unlock()
	rules := cfg.rules()
	if err := n.install(rules); err != nil {
		return err
	}
	n.rules = rules
	n.publishing.Lock()
	defer n.publishing.Unlock()
	n.overhead = cfg.Overhead()
	return nil
}

// install makes the classes of rules in all workers and puts them in force; scheming is
// held.
func (n *Node) install(rules []Class) error {
	rules = n.layout.Load().rules(rules)
	fast, err := n.fast.rules(rules)
	if err != nil {
		return err
	}
	made := make([][]*class, len(n.workers))
	for q, w := range n.workers {
		if made[q], err = w.leaf.makeClasses(rules, fast); err != nil {
			return err
		}
	}
	n.fast.pause() // XDP goes by the same classes as the workers
	defer n.fast.resume()
	times, errs := n.tuner.times(), make([]error, len(n.workers))
	for q, w := range n.workers {
		w.call(func() {
			w.leaf.setClasses(made[q])
			errs[q] = w.leaf.brain.Retime(w.now, &times)
		})
	}
	n.fast.reclass(fast)
	return errors.Join(errs...)
}

// checkMTU reports an uplink that hosts' longest frames would not fit through under
// other schemes, if these have longer headers than those in force. Interfaces that the tables do not know
// are not its business.
func (n *Node) checkMTU(cfg *Config) error {
	n.publishing.Lock()
	defer n.publishing.Unlock()
	if n.tables == nil || cfg.Overhead() <= cmp.Or(n.overhead, n.cfg.Overhead()) {
		return nil
	}
	widest, l := 0, n.layout.Load()
	for i, p := range n.tables.Ports {
		if l.has(PortID(i), Access) {
			widest = max(widest, p.MTU)
		}
	}
	for i, p := range n.tables.Ports {
		if l.has(PortID(i), Uplink) && p.MTU > 0 && p.MTU < widest+cfg.Overhead() {
			return fmt.Errorf("uplink %s has MTU %d, and the shim of a scheme besides VXLAN and hosts' MTU of %d needs %d: ip link set dev %s mtu %d",
				l.ports[i].Name, p.MTU, widest, widest+cfg.Overhead(), l.ports[i].Name, widest+cfg.Overhead())
		}
	}
	return nil
}

// Unresolved yields next hops whose MAC frames wait for.
func (n *Node) Unresolved() <-chan HopID { return n.ask }

// Stats returns a copy of all counters. Each worker's are consistent with one
// another; they are read between two bursts.
func (n *Node) Stats() Stats {
	var s Stats
	for _, w := range n.workers {
		var ws WorkerStats
		w.call(func() { ws = w.snapshot() })
		s.Workers = append(s.Workers, ws)
	}
	if f, ok := n.fastStats(); ok {
		s.Workers, s.Fast = append(s.Workers, f), true
	}
	s.Ports = n.PortInfos()
	return s
}

// PortInfos returns what ports asked for and what they got, by PortID. No worker is
// asked.
func (n *Node) PortInfos() (infos []PortInfo) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, d := range n.devices {
		var i PortInfo // of nobody
		if d != nil {
			i = d.info(n.serving, n.log)
		}
		infos = append(infos, i)
	}
	return infos
}

// Close detaches the classifier, closes the sockets and frees the memory. Run
// must have returned.
func (n *Node) Close() error {
	n.opening.Lock()
	defer n.opening.Unlock()
	if n.closed {
		return nil
	}
	n.closed = true
	var errs []error
	for _, d := range n.devices {
		if d != nil {
			errs = append(errs, n.closeDevice(d))
		}
	}
	for _, w := range n.workers {
		w.mail.close()
	}
	for _, u := range n.umems {
		errs = append(errs, u.Close())
	}
	if n.rule != nil {
		errs = append(errs, n.rule.Close())
	}
	if n.routes != nil {
		errs = append(errs, n.routes.Close())
	}
	if n.fast != nil {
		for _, w := range n.workers {
			if w.leaf != nil {
				w.leaf.withdraw()
			}
		}
		errs = append(errs, n.fast.tables.Close())
	}
	return errors.Join(errs...)
}
