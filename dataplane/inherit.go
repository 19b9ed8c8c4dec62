package dataplane

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/loomfabric/loom/bpf"
	"github.com/loomfabric/loom/dataplane/xsk"
	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/internal/snapshot"
)

// heir is what a node has to remember of its predecessor until it goes on in its place.
type heir struct {
	plan    *Plan
	owner   []uint16             // by the predecessor's ports: whose frames they are in the ledger here
	states  map[PortID]*PlanPort // of ports that are taken over
	gone    []binding            // of ports that this node does not have; by position behind its own ports
	foreign []PortID             // ports whose program is to be replaced
	flushed [][]uint32           // by worker: which flushes of ports Early knew of
	names   *translation         // of the last snapshot
	stopped mono.Time            // when the predecessor's workers stopped
}

// Inherit makes a node that is to go on in the place of another process, from its plan and
// its descriptors, which Inherit takes. Nothing of the other process is touched: it
// forwards until its workers have stopped for [Node.Load]. An interface that has another
// index by now is opened as after a start.
//
// The steps are Inherit, [Node.Publish] with tables, [Node.Prepare], [Node.Load],
// [Node.Run], and then [Node.Settle].
func Inherit(cfg Config, plan *Plan, files []*os.File, log *slog.Logger) (*Node, error) {
	f := &inherited{files: files}
	defer f.close()
	if err := cfg.accept(plan); err != nil {
		return nil, err
	}
	if err := cfg.check(); err != nil {
		return nil, err
	}
	continueClock(plan.Origin)
	n, err := newNode(cfg, plan.Uplinks, log)
	if err != nil {
		return nil, err
	}
	if want := cfg.UMEMFrames(); plan.Frames < want {
		log.Warn("the predecessor's packet buffers are fewer than this configuration's", "frames", plan.Frames, "wanted", want, "fix", "restart, if frames are missing")
	}
	n.serving = true // as far as the sockets come along
	n.heir = &heir{plan: plan, states: make(map[PortID]*PlanPort)}
	if err := n.inherit(plan, f); err != nil {
		return nil, errors.Join(err, n.Close())
	}
	return n, nil
}

// accept takes over from a plan what two processes must not see differently, and reports
// what they must have in common and do not.
func (c *Config) accept(p *Plan) error {
	differs := func(what string, theirs, ours any) error {
		return fmt.Errorf("the daemon that runs has %s %v, and this one %v: it cannot be taken over; restart for that", what, theirs, ours)
	}
	switch {
	case p.Version != planVersion:
		return differs("a plan of version", p.Version, planVersion)
	case p.Role != c.Role:
		return differs("role", p.Role, c.Role)
	case p.Workers != c.Workers:
		return differs("`workers`", p.Workers, c.Workers)
	case p.FrameSize != c.FrameSize():
		return differs("packet buffers of", p.FrameSize, c.FrameSize())
	}
	return nil
}

// Adapt takes over from a predecessor's plan what the file leaves open.
func (c *Config) Adapt(p *Plan) {
	if c.Seed == 0 {
		c.Seed = p.Seed // the flow hash: tables of flows go by it
	}
	c.MaxMTU = max(c.MaxMTU, p.MaxMTU)
}

// inherited hands out descriptors in their order.
type inherited struct{ files []*os.File }

func (f *inherited) take(n int) ([]*os.File, error) {
	if n > len(f.files) {
		return nil, fmt.Errorf("%d descriptors are left where %d should be", len(f.files), n)
	}
	files := f.files[:n:n]
	f.files = f.files[n:]
	return files, nil
}

// fd returns the next descriptor as the caller's own.
func (f *inherited) fd() (int, error) {
	files, err := f.take(1)
	if err != nil {
		return -1, err
	}
	defer files[0].Close()
	return unix.FcntlInt(files[0].Fd(), unix.F_DUPFD_CLOEXEC, 0)
}

func (f *inherited) close() {
	for _, x := range f.files {
		x.Close()
	}
}

func (n *Node) inherit(plan *Plan, f *inherited) error {
	cfg := xsk.UmemConfig{Frames: plan.Frames, FrameSize: plan.FrameSize}
	err := errors.Join(n.openTables(), n.openWorkers(func(int) (*xsk.Umem, error) {
		fd, err := f.fd()
		if err != nil {
			return nil, err
		}
		return xsk.AdoptUmem(cfg, fd)
	}))
	if err != nil {
		return err
	}
	for i := range n.cfg.Ports { // a new node numbers them in their order
		n.devices = append(n.devices, &device{id: PortID(i), cfg: &n.cfg.Ports[i], since: time.Now(), err: errors.New("it opens when the predecessor has gone")})
	}
	for i := range plan.Ports {
		p := &plan.Ports[i]
		d := n.deviceFor(p)
		b, fits, err := n.inheritPort(p, d, f)
		if err != nil {
			return errors.Join(fmt.Errorf("port %s: %w", p.Name, err), b.close())
		}
		if d == nil {
			n.heir.owner = append(n.heir.owner, goneOwner(len(n.heir.gone)))
			n.heir.gone = append(n.heir.gone, b)
			n.log.Info("port is not taken over", "port", p.Name, "ifindex", p.Ifindex)
			continue
		}
		n.heir.owner = append(n.heir.owner, uint16(d.id))
		n.heir.states[d.id] = p
		if !fits {
			n.heir.foreign = append(n.heir.foreign, d.id)
		}
		n.mu.Lock()
		d.binding, d.err, d.since, d.past, d.foreign = b, nil, p.Since, p.Past, !fits
		n.mu.Unlock()
		n.fast.opened(d, &b)
		n.setOpened(d.id, b.ifindex)
		n.log.Info("port taken over", "port", p.Name, "ifindex", p.Ifindex, "xdp", b.mode.String(), "copy", b.copyMode(), "program", map[bool]string{true: "stays", false: "to be replaced"}[fits])
	}
	return nil
}

// goneOwner is whose the frames of the i-th port of the predecessor's that this node does
// not have are.
func goneOwner(i int) uint16 { return uint16(MaxPorts + i) }

// deviceFor returns the device that goes on with a port of the predecessor's; nil: none.
func (n *Node) deviceFor(p *PlanPort) *device {
	for _, d := range n.devices {
		if d.cfg.Name != p.Name || d.cfg.Kind != p.Kind || d.ifindex != 0 {
			continue
		}
		if i, err := net.InterfaceByName(p.Name); err != nil || i.Index != p.Ifindex {
			return nil
		}
		return d
	}
	return nil
}

// inheritPort takes over what the kernel holds for a port. fits says that the program is
// the one that this node would load.
func (n *Node) inheritPort(p *PlanPort, d *device, f *inherited) (b binding, fits bool, err error) {
	b.ifindex, b.mode = p.Ifindex, p.Program.Mode
	files, err := f.take(len(p.Program.Parts))
	if err != nil {
		return b, false, err
	}
	var cfg bpf.Config
	if d != nil {
		cfg = n.programConfig(d, p.Ifindex)
		fits = p.Program.Fits(&cfg)
	} else {
		cfg.Kind = kinds[p.Kind]
	}
	if b.program, err = bpf.Adopt(cfg, p.Program, files); err != nil {
		return b, false, err
	}
	if len(p.Sockets) != len(n.workers) {
		return b, false, fmt.Errorf("%d sockets came for %d workers", len(p.Sockets), len(n.workers))
	}
	for q := range p.Sockets {
		fd, err := f.fd()
		if err != nil {
			return b, false, err
		}
		s, err := xsk.Adopt(n.umems[q], fd, p.Sockets[q])
		if err != nil {
			return b, false, err
		}
		b.sockets = append(b.sockets, s)
	}
	if p.Promisc {
		if b.promisc, err = f.fd(); err != nil {
			b.promisc = 0
		}
	}
	return b, fits, err
}

// close lets go of what the binding has of the kernel, without a word to the workers.
func (b *binding) close() error {
	var errs []error
	for _, s := range b.sockets {
		errs = append(errs, s.Close())
	}
	if b.program != nil {
		errs = append(errs, b.program.Close())
	}
	if b.promisc != 0 {
		errs = append(errs, unix.Close(b.promisc))
	}
	return errors.Join(errs...)
}

// Prepare brings the workers as far as they can be before the predecessor stops: they have
// the newest tables, and the addresses that it wrote early. It waits for tables until ctx
// ends.
func (n *Node) Prepare(ctx context.Context, early []byte) error {
	for tick := time.NewTicker(5 * time.Millisecond); n.view.Load() == nil; {
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for the kernel's tables: %w", ctx.Err())
		case <-tick.C:
		}
	}
	n.adoptAll()
	n.heir.flushed = make([][]uint32, len(n.workers))
	return n.eachWorker(early, func(w *worker, body []byte, t *translation) error {
		if w.leaf == nil {
			return nil
		}
		sections, err := snapshot.Sections(body)
		if err != nil {
			return err
		}
		for i := range sections {
			s := &sections[i]
			if err := wanted(s, versionFDB); s.Name != sectionFDB || err != nil {
				n.log.Warn("addresses are learned again", "section", s.Name, "err", err)
				continue
			}
			flushed, all, err := readFDB(s.Body, t)
			if err != nil {
				return err
			}
			// Tables may come meanwhile.
			w.call(func() { w.leaf.learnCarried(nil, nil, all, t, now()) })
			if n.heir.flushed[w.id] == nil { // the oldest word counts
				n.heir.flushed[w.id] = flushed
			}
		}
		return nil
	})
}

// adoptAll gives the newest tables to workers that do not run.
func (n *Node) adoptAll() {
	v := n.view.Load()
	for _, w := range n.workers {
		w.call(func() {
			w.now = now()
			if w.view != v {
				w.adopt(v, w.now)
			}
		})
	}
}

// eachWorker reads a node's snapshot and gives the workers their parts of it.
func (n *Node) eachWorker(b []byte, do func(w *worker, body []byte, t *translation) error) error {
	sections, err := snapshot.Sections(b)
	if err != nil {
		return err
	}
	var t *translation
	for i := range sections {
		s := &sections[i]
		switch s.Name {
		case sectionNames:
			if err := wanted(s, versionNames); err != nil {
				return fmt.Errorf("section %s: %w", s.Name, err)
			}
			theirs, err := loadNames(s.Body)
			if err != nil {
				return fmt.Errorf("section %s: %w", s.Name, err)
			}
			t = namesOf(n.layout.Load(), n.view.Load()).translate(theirs)
			n.heir.names, n.heir.stopped = t, theirs.stopped
			continue
		}
		if t == nil {
			return fmt.Errorf("section %s comes before %s", s.Name, sectionNames)
		}
		switch s.Name {
		case sectionWorker:
			err := wanted(s, versionWorker)
			r := snapshot.NewReader(s.Body)
			q, body := int(r.U16()), r.Blob()
			if err == nil {
				err = r.Done()
			}
			if err == nil && q >= len(n.workers) {
				err = fmt.Errorf("there is no worker %d", q)
			}
			if err == nil {
				err = do(n.workers[q], body, t)
			}
			if err != nil {
				return fmt.Errorf("section %s: %w", s.Name, err)
			}
		case sectionShared:
			if n.shared.leaf == nil {
				continue
			}
			if err := n.shared.loadPeers(s, t); err != nil {
				n.log.Warn("a part of what the predecessor left is not used", "section", s.Name, "version", s.Version, "err", err)
			}
		default:
			n.log.Warn("a part of what the predecessor left is not used", "section", s.Name, "version", s.Version, "err", "this version does not know it")
		}
	}
	return nil
}

// Load takes over from a predecessor whose workers have stopped. With an error nothing was
// done to frames or rings: the predecessor can go on.
func (n *Node) Load(b []byte) error {
	n.adoptAll()
	loaded := 0
	err := n.eachWorker(b, func(w *worker, body []byte, t *translation) (err error) {
		w.call(func() { err = n.loadWorker(w, body, t) })
		loaded++
		return err
	})
	if err == nil && loaded != len(n.workers) {
		err = fmt.Errorf("%d workers came, and %d are here", loaded, len(n.workers))
	}
	if err != nil {
		return fmt.Errorf("what the predecessor left: %w", err)
	}
	return nil
}

func (n *Node) loadWorker(w *worker, body []byte, t *translation) error {
	sections, frames, err := sectionsOf(body, t)
	if err != nil {
		return err
	}
	at := now()
	if len(frames.ports) != len(t.ports) {
		return fmt.Errorf("%d ports have frames, and %d have names", len(frames.ports), len(t.ports))
	}
	orphans, err := w.inheritFrames(frames, t, n.owners(t), at)
	if err != nil {
		return err
	}
	if orphans > 0 {
		n.log.Warn("frames without a handle were freed", "worker", w.id, "frames", orphans)
	}
	for id, p := range n.heir.states {
		s := n.devices[id].sockets[w.id]
		state := p.Sockets[w.id]
		if old := t.portOf(int(id)); old >= 0 {
			k := &frames.ports[old].counters
			state.Counters = k.Counters
		}
		s.Resume(&state)
		w.ports[id].take(s, at)
	}
	w.listOpen()
	var before []uint32
	if len(n.heir.flushed) > w.id {
		before = n.heir.flushed[w.id]
	}
	if !w.load(sections, t, before, at, n.log) && w.id == 0 && n.shared.leaf != nil {
		n.log.Info("peers are told that this leaf has started anew, since flows that are numbered have", "scheme", n.cfg.Scheme)
		n.shared.leaf.Reboot()
	}
	return nil
}

// portOf returns the predecessor's number of a port; -1: it had none.
func (t *translation) portOf(id int) int {
	for old, to := range t.ports {
		if to == id {
			return old
		}
	}
	return -1
}

// owners returns whose the frames of each of the predecessor's ports are here. The plan has
// its open ports, in their order, the names all.
func (n *Node) owners(t *translation) []uint16 {
	owners := make([]uint16, len(t.ports))
	for old := range owners {
		// A port that was not open owns nothing; if it does, its frames are nobody's for good.
		owners[old] = goneOwner(len(n.heir.gone))
	}
	for i := range n.heir.plan.Ports {
		if old := n.heir.plan.Ports[i].ID; int(old) < len(owners) {
			owners[old] = n.heir.owner[i]
		}
	}
	return owners
}

// Pause returns how long nobody has forwarded when the first round began; 0: there was no
// predecessor, or no round.
func (n *Node) Pause() time.Duration {
	if n.heir == nil {
		return 0
	}
	var first mono.Time
	for _, w := range n.workers {
		w.call(func() { first = max(first, w.began) })
	}
	if first == 0 {
		return 0
	}
	return first.Sub(n.heir.stopped)
}

// Settle does what had time until this node forwards: it takes over the counters that the
// predecessor has sent, puts its own programs in the place of others, closes ports that it
// does not have, and frees their frames. The predecessor has ended, or is about to.
func (n *Node) Settle(last []byte) {
	h := n.heir
	if h == nil {
		return
	}
	if err := n.addCounters(last); err != nil {
		n.log.Warn("counters begin at 0", "err", err)
	}
	n.opening.Lock()
	defer n.opening.Unlock()
	if n.closed {
		return
	}
	for _, id := range h.foreign {
		d := n.devices[id]
		if d == nil || !d.foreign {
			continue // it was removed or closed since, and its program with it
		}
		if err := n.replaceProgram(d); err != nil {
			n.log.Error("the predecessor's XDP program goes on", "port", d.cfg.Name, "err", err)
			continue
		}
		n.fast.opened(d, &d.binding)
	}
	if n.rule != nil && len(h.foreign) > 0 {
		n.publishing.Lock()
		n.offer(n.view.Load())
		n.publishing.Unlock()
	}
	zero := false
	for i := range h.gone {
		for _, s := range h.gone[i].sockets {
			zero = zero || s.ZeroCopy()
		}
		if err := h.gone[i].close(); err != nil {
			n.log.Warn("close a port of the predecessor's", "err", err)
		}
	}
	if len(h.gone) > 0 {
		if zero {
			time.Sleep(xsk.ReleaseTime)
		}
		for _, w := range n.workers {
			w.call(func() {
				for i := range h.gone {
					w.pool.Reclaim(xsk.OwnerPort(goneOwner(i)))
				}
			})
		}
	}
	h.gone = nil
}

func (n *Node) addCounters(last []byte) error {
	var all []carriedStats
	if err := json.Unmarshal(last, &all); err != nil {
		return err
	}
	if len(all) == len(n.workers)+1 {
		base := all[len(n.workers)].base(&WorkerStats{}, n.heir.names)
		n.fastBase.Store(&base)
	}
	for q := range min(len(all), len(n.workers)) {
		w := n.workers[q]
		w.call(func() {
			s := w.snapshot()
			base := all[q].base(&s, n.heir.names)
			w.base = &base
		})
	}
	return nil
}

// replaceProgram puts the program that this node would load in the place of the one that a
// port has. Frames go to the same sockets before and after.
func (n *Node) replaceProgram(d *device) error {
	p, slow, err := n.loadProgram(d, d.ifindex)
	if err != nil {
		return err
	}
	for q, s := range d.sockets {
		if err := p.SetSocket(q, s.FD()); err != nil {
			return errors.Join(err, p.Close())
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	old := d.program
	if err := p.Replace(old); err != nil {
		return errors.Join(err, p.Close())
	}
	d.keepCounters(old) // no frame meets it any more
	d.program, d.slow, d.foreign = p, slow, false
	return old.Close()
}
