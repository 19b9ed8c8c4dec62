package dataplane

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/loomfabric/loom/bpf"
	"github.com/loomfabric/loom/congestion"
	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/leaf"
	"github.com/loomfabric/loom/overlay"
)

// FastMode says whether a node forwards in XDP what needs no queue and no new decision
// (decisions 0033 and 0034).
type FastMode uint8

// The modes.
const (
	FastOff  FastMode = iota // never
	FastAuto                 // where the kernel can, and the configuration lets it
	FastOn                   // that, or fail
)

const (
	fastGroups = 4096 // sets of next hops in the programs' tables
	fastHops   = 64   // next hops there, at least; twice the ports' room if that is more
	rocePort   = 4791 // flows to there are told apart by more than the 5-tuple

	// fastDead is how long after a beat XDP goes on by itself.
	fastDead = 200 * time.Millisecond
	// fastPatience is how long XDP may go by tables of before, while frames that came under
	// them leave the workers. Then the workers get everything.
	fastPatience = 50 * time.Millisecond
	settleLook   = 200 * time.Microsecond
)

// fastPath is the node's side of the fast path: it keeps the XDP programs' tables in step
// with what the workers go by. Two goroutines write them: fill what follows from views, and
// pulse what follows from time. The words that workers write are marks.
type fastPath struct {
	node   *Node
	tables *bpf.Fast
	shared settling      // with the workers
	news   chan struct{} // the view has changed, or what ports can
	nanos  func() int64  // CLOCK_MONOTONIC

	mu     sync.Mutex  // guards what follows
	ports  []fastPort  // by PortID
	names  []string    // by PortID: who has, or had, the place
	past   []PortStats // by PortID: what those counted who had it before
	paused bool

	captured map[PortID]int // captures that keep a port off it

	choosing    sync.Mutex // guards what follows, what the rows know, and shared.rules
	choosingFor *view      // that the rows know; nil: they know none
	retired     []leaf.SchemeStats
	begun       [bpf.FastClassCount]bpf.FastBegun // what had been decided when the classes in force began

	used   int         // copy of the tables that was in force last; fill's
	meters []fastMeter // by PortID; pulse's
	ears   *fastEars   // nil on a spine; pulse's
	voice  fastVoice   // a leaf's; pulse's
}

// fastMeter meters what the fast path sends by a port.
type fastMeter struct {
	dre     congestion.DRE
	bytes   uint64 // that the tables said last
	lost    uint64 // likewise
	refused refused
	shun    time.Time // until when its driver is given none
	metric  uint8
	queue   leaf.PhantomQueue
	marks   bool // frames that leave by the port may be marked
}

// fastObstacle says why a node has no fast path; nil: it may.
func (c *Config) fastObstacle() error {
	switch {
	case c.KernelOverlay:
		return errors.New("the overlay is the kernel's, which is to be shown frames")
	case c.Role == Leaf && !c.VTEP.Is4():
		return fmt.Errorf("VTEP %v is not of IPv4", c.VTEP)
	case c.Role == Spine && c.Scheme != "":
		return fmt.Errorf("scheme %s decides about every packet", c.Scheme)
	case c.VXLANPort == rocePort:
		return fmt.Errorf("VXLAN port %d is RoCE's", rocePort)
	case c.long():
		return fmt.Errorf("a port has MTU %d, and above %d frames have several parts, which XDP does not count", c.MaxMTU, PageMTU)
	case c.XDPMode == XDPGeneric:
		return errors.New("xdp_mode is generic: there a frame's order in its ring is not known")
	}
	return nil
}

// openFast makes the fast path, if there is to be one.
func (n *Node) openFast() error {
	if n.cfg.FastPath == FastOff {
		return nil
	}
	err := n.cfg.fastObstacle()
	var tables *bpf.Fast
	if err == nil {
		tables, err = bpf.OpenFast(n.fastSize())
	}
	switch {
	case err != nil && n.cfg.FastPath == FastOn:
		return fmt.Errorf("fast path: %w", err)
	case err != nil:
		n.fastError = err.Error()
		n.log.Info("no fast path: workers forward everything", "reason", err)
		return nil
	}
	if n.cfg.Role == Leaf {
		if n.shared.rules, err = newFastRules(&n.cfg, n.layout.Load().rules(n.cfg.rules()), 0, n.shared.leaf); err != nil {
			return errors.Join(err, tables.Close())
		}
	}
	n.fast, n.shared.fast = newFastPath(n, tables), tables
	return nil
}

// fastSize returns what the programs' tables are to have room for.
func (n *Node) fastSize() bpf.FastSize {
	s := bpf.FastSize{Ports: n.cfg.Room, Queues: n.cfg.Workers}
	if n.cfg.Role == Leaf {
		s.FDB, s.TopMetric = overlay.FDBMemory(n.cfg.FDBSize), n.shared.params.TopMetric()
	} else {
		s.Hops, s.Groups = min(MaxHops, max(fastHops, 2*n.cfg.Room)), fastGroups
	}
	return s
}

func newFastPath(n *Node, tables *bpf.Fast) *fastPath {
	f := &fastPath{
		node: n, tables: tables, news: make(chan struct{}, 1), nanos: monotonic, ports: make([]fastPort, n.cfg.Room),
		captured: make(map[PortID]int),
		names:    make([]string, n.cfg.Room), past: make([]PortStats, n.cfg.Room), meters: make([]fastMeter, n.cfg.Room),
	}
	for i := range f.meters {
		f.meters[i].dre = n.shared.params.DRE()
	}
	for i := range n.cfg.Ports {
		f.names[i] = n.cfg.Ports[i].Name // a new node numbers them in their order
	}
	tables.SetDead(uint64(fastDead))
	if n.cfg.Role == Leaf {
		f.ears = newFastEars(tables, n.shared.leaf)
		tables.SetZero(uint64(f.nanos() - int64(now())))
	}
	return f
}

// maps returns the tables for the programs of ports; nil: they forward nothing.
func (f *fastPath) maps() *bpf.Fast {
	if f == nil {
		return nil
	}
	return f.tables
}

// opened notes that a port is open, and what the fast path can do with it.
func (f *fastPath) opened(d *device, b *binding) {
	if f == nil {
		return
	}
	p := fastPort{ifindex: b.ifindex}
	switch {
	case b.slow != "":
		p.in = b.slow
	case d.foreign:
		p.in = "its XDP program is the predecessor's"
	case b.mode == bpf.Generic:
		p.in = "its XDP program is in generic mode"
	case b.program != nil && b.program.Blind():
		p.in = "its driver takes VLAN tags off frames, and the XDP program cannot be told which"
	}
	p.out = f.takes(b.ifindex)
	if err := f.tables.SetDevice(int(d.id), b.ifindex); err != nil {
		p.out = err.Error()
	}
	f.set(d.id, p)
}

// seat notes who has a place from now on. What another one counted before stays apart.
func (f *fastPath) seat(id PortID, name string) {
	if f == nil {
		return
	}
	counted := f.counted()
	f.mu.Lock()
	defer f.mu.Unlock()
	if was := f.names[id]; was != "" && was != name && int(id) < len(counted.Ports) {
		f.past[id] = counted.Ports[id]
	}
	f.names[id] = name
}

// takes says why the driver of an interface takes no frames from XDP; "": it does.
func (f *fastPath) takes(ifindex int) string {
	takes, err := bpf.TakesRedirects(ifindex)
	switch {
	case err != nil:
		return err.Error()
	case !takes:
		return "its driver takes no frames from XDP (of a veth: the other end has neither XDP nor GRO)"
	}
	return ""
}

// closed notes that a port is open no more.
func (f *fastPath) closed(id PortID) {
	if f == nil {
		return
	}
	if err := f.tables.SetDevice(int(id), 0); err != nil {
		f.node.log.Warn("close port", "error", err)
	}
	f.set(id, fastPort{})
}

func (f *fastPath) set(id PortID, p fastPort) {
	f.mu.Lock()
	same := f.ports[id] == p
	f.ports[id] = p
	f.mu.Unlock()
	if !same {
		f.changed()
	}
}

// changed has the tables follow what has changed.
func (f *fastPath) changed() {
	if f == nil {
		return
	}
	select {
	case f.news <- struct{}{}:
	default:
	}
}

// pause leaves everything to the workers until resume; what XDP has begun is done when it
// returns.
func (f *fastPath) pause() {
	if f == nil {
		return
	}
	f.mu.Lock()
	f.paused = true
	f.tables.Off()
	f.mu.Unlock()
	f.grace()
}

func (f *fastPath) resume() {
	if f == nil {
		return
	}
	f.mu.Lock()
	f.paused = false
	f.mu.Unlock()
	f.changed()
}

// grace waits until no program reads a copy that is not in force any more.
func (f *fastPath) grace() {
	if err := bpf.Grace(); err != nil { // as where CPUs are left alone (nohz_full)
		time.Sleep(50 * time.Millisecond)
	}
}

// fill keeps the tables in step with views and ports until ctx ends.
func (f *fastPath) fill(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.news:
		}
		if err := f.turn(ctx); err != nil {
			f.tables.Off()
			f.node.log.Error("the fast path is off until the next change", "error", err)
		}
	}
}

// turn puts the newest view in force. A frame that a worker has got under the views of
// before has left by then, or its flow is known to be there: so no other overtakes it.
func (f *fastPath) turn(ctx context.Context) error {
	v, ours := f.node.fastView()
	if v == nil {
		return nil
	}
	f.mu.Lock()
	ports := f.states()
	f.mu.Unlock()
	next := 1 - f.used
	if err := v.fastTables(f.tables, next, ports, ours); err != nil {
		return err
	}
	if f.ears != nil {
		terms := f.terms()
		f.choosing.Lock()
		f.fastAccess(v, next, ports, &terms)
		f.choosing.Unlock()
	}
	settled, err := f.settle(ctx)
	if !settled || err != nil {
		return err
	}
	f.tables.Beat(uint64(f.nanos()))
	f.mu.Lock()
	if !f.paused && f.goesBy(v) {
		f.shared.inForce.Store(v.seq)
		f.tables.Use(next)
		f.used = next
	}
	f.mu.Unlock()
	f.grace() // the other copy is fill's again
	return nil
}

// goesBy reports whether what has been written of a view is of the classes in force.
func (f *fastPath) goesBy(v *view) bool {
	if f.ears == nil {
		return true
	}
	f.choosing.Lock()
	defer f.choosing.Unlock()
	return f.choosingFor == v
}

// leave is called before workers go by another view. XDP must not take a peer for another one
// that has its place now.
func (f *fastPath) leave(old, v *view) {
	if f == nil || old == nil {
		return
	}
	was, is := old.tables.Peers, v.tables.Peers
	for i := range min(len(was), len(is)) {
		if was[i].VTEP != is[i].VTEP {
			f.tables.Off()
			return
		}
	}
}

// settle waits until what workers had of before has left them. It reports false if there is
// something newer to be put in force first.
func (f *fastPath) settle(ctx context.Context) (bool, error) {
	request := f.shared.wanted.Add(1)
	for _, w := range f.node.workers {
		w.mail.nudge()
	}
	tick := time.NewTicker(settleLook)
	defer tick.Stop()
	for late := time.Now().Add(fastPatience); ; {
		if !slices.ContainsFunc(f.node.workers, func(w *worker) bool { return w.marks.settled.Load() < request }) {
			return true, nil
		}
		if time.Now().After(late) {
			f.tables.Off()
		}
		if len(f.news) > 0 {
			return false, nil
		}
		select {
		case <-ctx.Done():
			return false, nil
		case <-tick.C:
		}
	}
}

// fastView returns the view in force, and which VXLAN is the fabric's.
func (n *Node) fastView() (*view, map[netip.Prefix]bool) {
	n.publishing.Lock()
	defer n.publishing.Unlock()
	v := n.view.Load()
	if v == nil {
		return nil, nil
	}
	if n.cfg.Role == Leaf {
		return v, nil
	}
	if n.cfg.Remotes != nil {
		return v, listed(n.cfg.Remotes)
	}
	return v, v.taken()
}

// How often pulse looks: while a link's metric is above 0, while frames go by, and when
// nothing does.
const (
	pulseBusy  = 100 * time.Microsecond
	pulseQuiet = time.Millisecond
	pulseIdle  = 10 * time.Millisecond
	askEvery   = 100 * time.Millisecond // at most, drivers that lose frames
	askAll     = time.Second
)

// pulse tells XDP that the node lives, and the meters of links what XDP sends, until ctx
// ends.
func (f *fastPath) pulse(ctx context.Context) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	asked, all := time.Now(), time.Now()
	for ctx.Err() == nil {
		f.tables.Beat(uint64(f.nanos()))
		wait := f.meter()
		if t := time.Now(); t.Sub(asked) >= askEvery {
			f.ask(t.Sub(all) >= askAll)
			if asked = t; t.Sub(all) >= askAll {
				all = t
			}
		}
		time.Sleep(wait)
	}
}

// meter adds to the links' meters what XDP has sent, and publishes their metrics. It returns
// when to look again.
func (f *fastPath) meter() (wait time.Duration) {
	v := f.node.view.Load()
	if v == nil {
		return pulseIdle
	}
	at, slot := now(), f.node.cfg.Workers // behind the workers' own
	wait = pulseIdle
	for id := range min(len(v.ports), len(f.meters)) {
		m, link := &f.meters[id], f.node.shared.meters[id]
		bytes := f.tables.Sent(id)
		came := bytes - m.bytes
		if bytes != m.bytes {
			m.dre.Add(at, uint32(bytes-m.bytes))
			link.Publish(slot, at, m.dre.X(at))
			m.bytes = bytes
			wait = min(wait, pulseQuiet)
		}
		metric := uint8(0)
		if rate, _ := v.layout.ports[id].Egress.Speed(v.tables.Ports[id].Speed); rate != 0 {
			metric = link.Metric(at, rate)
		}
		if metric != m.metric {
			m.metric = metric
			f.tables.SetCE(id, metric)
		}
		if f.mark(v, PortID(id), m, came, at) {
			wait = pulseBusy
		}
		if metric != 0 {
			wait = pulseBusy
		}
	}
	if f.ears == nil {
		return wait
	}
	if f.ears.listen(at, len(v.tables.Peers)) {
		wait = min(wait, pulseQuiet)
	}
	if f.speak(at) {
		wait = pulseBusy
	}
	f.tables.SetFresh(uint64(at + mono.Time(wait) + freshFor))
	return wait
}

// mark has frames that leave by a port be marked as its phantom queue says. It reports whether
// that is not empty.
func (f *fastPath) mark(v *view, id PortID, m *fastMeter, bytes uint64, at mono.Time) bool {
	e := &v.layout.ports[id].Egress
	if e.Kmax == 0 && !m.marks {
		return false
	}
	queued := uint64(0)
	if rate, _ := e.Speed(v.tables.Ports[id].Speed); rate > 0 {
		queued = m.queue.Add(at, bytes, rate, uint64(e.QueueBytes))
	} else { // the port is the workers' (view.unmarked), and nothing would drain the queue
		m.queue = leaf.PhantomQueue{}
	}
	marker := leaf.Marker{Kmin: uint64(e.Kmin), Kmax: uint64(e.Kmax), Pmax: e.Pmax}
	chance := marker.Chance(queued)
	if chance > 0 || m.marks {
		f.tables.SetChance(int(id), chance)
	}
	m.marks = chance > 0
	return queued > 0
}

// shunFor is how long a driver is given no frames after it has refused all.
const shunFor = time.Minute

// refused tells a driver that says that it takes frames from XDP, and takes none, from one that
// is too slow at times. (virtio-net of Linux 7.2 is one where AF_XDP sends without copies.)
type refused struct {
	lost, went uint64 // when a frame had gone last
}

// all reports whether the driver takes nothing: it has lost some frames since one has gone.
func (r *refused) all(lost, went uint64) bool {
	if went != r.went {
		r.lost, r.went = lost, went
	}
	return lost-r.lost >= 8
}

// ask asks drivers again whether they take frames, all or those that have lost some: nobody
// tells when the other end of a veth pair loses its XDP program.
func (f *fastPath) ask(all bool) {
	f.mu.Lock()
	ports := slices.Clone(f.ports)
	f.mu.Unlock()
	for id := range ports {
		p, m, lost := &ports[id], &f.meters[id], f.tables.Losing(id)
		if p.ifindex == 0 || !all && lost == m.lost {
			continue
		}
		if lost != m.lost {
			m.lost = lost
			if m.refused.all(lost, f.counted().Ports[id].Sent.Frames) {
				m.shun = time.Now().Add(shunFor)
			}
		}
		why := f.takes(p.ifindex)
		if why == "" && time.Now().Before(m.shun) {
			why = "its driver has refused all frames from XDP, and is left alone for a minute"
		}
		f.mu.Lock()
		changed := f.ports[id] == *p && why != p.out
		if changed {
			f.ports[id].out = why
		}
		f.mu.Unlock()
		if changed {
			f.node.log.Info("the fast path's way out of a port has changed", "port", f.node.layout.Load().name(PortID(id)), "slow", why)
			f.changed()
		}
	}
}
