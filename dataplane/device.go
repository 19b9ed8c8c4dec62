package dataplane

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"github.com/loomfabric/loom/bpf"
	"github.com/loomfabric/loom/dataplane/xsk"
)

// busyQueue is how long the opening of a port that returned waits for a busy queue: the
// ports behind it wait as long, and it is tried again.
const busyQueue = 50 * time.Millisecond

// device is a port as the kernel has it. Node.opening belongs to who opens or closes it,
// which may take long; Node.mu guards the fields, and is never held for longer than it
// takes to read or write them. What cfg points to never changes.
type device struct {
	id  PortID
	cfg *PortConfig
	binding
	err   error // why it is not open
	since time.Time
	past  map[string]uint64 // classifier counters of programs that are gone
	until time.Time         // when a port that was removed is closed at the latest; zero: it was not. Node.opening guards it
	// foreign says that the program is a predecessor's with tables of its own, which this
	// node leaves alone until it has replaced it.
	foreign bool
}

// binding is what a port that is open holds of the kernel: the interface, the attached
// program, and a socket a worker.
type binding struct {
	ifindex int // 0: not open
	program *bpf.Program
	sockets []*xsk.Socket // by worker
	promisc int           // descriptor that keeps an access port promiscuous; 0: none
	mode    bpf.Mode
	slow    string // why the program has no fast path though the node has one; "": it has
}

// absent reports whether the interface of d does not exist, and notes it.
func (n *Node) absent(d *device) bool {
	if _, err := net.InterfaceByName(d.cfg.Name); err == nil {
		return false
	}
	n.note(d, fmt.Errorf("interface %s does not exist; the port opens when it appears", d.cfg.Name))
	return true
}

// note says why d is not open.
func (n *Node) note(d *device, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	d.err, d.since = err, time.Now()
}

// openDevice attaches and binds d. ifindex 0 means: look it up.
func (n *Node) openDevice(d *device, ifindex int) error {
	b, err := n.tryOpen(d, ifindex)
	if err != nil {
		err = fmt.Errorf("port %s: %w", d.cfg.Name, errors.Join(err, n.release(d, &b)))
		b = binding{}
	}
	n.mu.Lock()
	d.binding, d.err, d.since = b, err, time.Now()
	n.mu.Unlock()
	if err == nil {
		n.fast.opened(d, &b)
	}
	n.setOpened(d.id, b.ifindex)
	return err
}

// tryOpen returns a binding of d, half done with an error. It touches no interface of
// another name: an index that tables were made with may have gone to another one since.
func (n *Node) tryOpen(d *device, ifindex int) (b binding, err error) {
	i, err := net.InterfaceByName(d.cfg.Name)
	if err != nil {
		return b, fmt.Errorf("find interface: %w", err)
	}
	retry := xsk.DefaultRetry
	if ifindex != 0 {
		retry = busyQueue
	}
	if ifindex != 0 && ifindex != i.Index {
		return b, fmt.Errorf("the interface has index %d, and the tables say %d: it waits for the next ones", i.Index, ifindex)
	}
	ifindex = i.Index
	if d.cfg.Kind == Access && !n.cfg.KernelOverlay { // else the kernel's bridge says what it hears
		if b.promisc, err = promiscuous(ifindex); err != nil {
			return b, err
		}
	}
	if b.program, b.slow, err = n.loadProgram(d, ifindex); err != nil {
		return b, err
	}
	b.ifindex = ifindex
	if b.mode, err = b.program.Attach(ifindex, d.cfg.Name, xdpModes[n.cfg.XDPMode]); err != nil {
		return b, err
	}
	if err := n.fits(d, &b); err != nil {
		return b, err
	}
	for q, w := range n.workers {
		s, err := xsk.Open(n.umems[q], xsk.SocketConfig{
			Ifindex: ifindex, Name: d.cfg.Name, Queue: q, Retry: retry,
			RX: n.cfg.RingSize, TX: n.cfg.RingSize, Fill: n.cfg.RingSize, Completion: n.cfg.RingSize,
			CopyMode: copyModes[n.cfg.CopyMode], Generic: b.mode == bpf.Generic,
		})
		if errors.Is(err, unix.EBUSY) {
			return b, taken{err}
		}
		if err != nil {
			return b, err
		}
		b.sockets = append(b.sockets, s)
		w.call(func() { w.attach(&w.ports[d.id], s) })
	}
	if n.serving {
		if err := b.serve(); err != nil {
			return b, err
		}
	}
	granted := []any{"port", d.cfg.Name, "ifindex", ifindex, "xdp", b.mode.String(), "copy", b.copyMode(), "asked_xdp", xdpModes[n.cfg.XDPMode].String()}
	if err := b.sockets[0].Refusal(); err != nil { // there is a worker at least
		granted = append(granted, "no_zero_copy", err)
	}
	n.log.Info("port open", granted...)
	return b, nil
}

// serve has the program give frames to the sockets.
func (b *binding) serve() error {
	for q, s := range b.sockets {
		if err := b.program.SetSocket(q, s.FD()); err != nil {
			return err
		}
	}
	return nil
}

// serve has the programs of all ports give frames to the workers, from when all of these
// forward. What comes before is the kernel's, which may have the same overlay, or is
// dropped by name on a closed port: it would wait on the rings for as long as a start takes,
// and what has room there would come late, and all at once.
func (n *Node) serve(ctx context.Context) {
	for _, w := range n.workers {
		select {
		case <-w.started:
		case <-ctx.Done():
			return
		}
	}
	n.opening.Lock()
	defer n.opening.Unlock()
	if n.over() || ctx.Err() != nil {
		return
	}
	n.mu.Lock()
	n.serving = true
	n.mu.Unlock()
	for _, d := range n.devices {
		if d == nil || d.ifindex == 0 {
			continue
		}
		if err := d.serve(); err != nil {
			n.log.Error("port closed; trying again", "port", d.cfg.Name, "error", err)
			n.closePort(d, err)
		}
	}
}

var (
	xdpModes  = map[XDPMode]bpf.Mode{XDPAuto: bpf.Auto, XDPNative: bpf.Native, XDPGeneric: bpf.Generic}
	copyModes = map[CopyMode]xsk.CopyMode{CopyAuto: xsk.CopyAuto, ZeroCopy: xsk.ForceZero, Copy: xsk.ForceCopy}
	kinds     = map[PortKind]bpf.Kind{Access: bpf.Access, Uplink: bpf.Uplink, SpinePort: bpf.Spine}
)

func (n *Node) programConfig(d *device, ifindex int) bpf.Config {
	if d.cfg.Kind != Access || n.cfg.XDPMode == XDPGeneric {
		ifindex = 0 // tags are of no concern, or out of reach
	}
	return bpf.Config{
		Kind: kinds[d.cfg.Kind], VTEP: n.cfg.VTEP, Routes: n.routes, VXLANPort: n.cfg.VXLANPort,
		Seed: uint32(n.cfg.Seed), Queues: max(n.cfg.Workers, 1), Closed: d.cfg.Kind == Access && !d.cfg.FailOpen && !n.cfg.KernelOverlay, Device: ifindex,
		Rule: n.rule, Fast: n.fast.maps(), AnySource: n.cfg.ReversePath == AnyPath, Port: uint16(d.id), MultiBuffer: n.cfg.long(),
	}
}

// loadProgram loads the program for a port. Where the fast path need not be, a kernel that does
// not take its program (older verifiers know less) is given the one without; slow says why.
func (n *Node) loadProgram(d *device, ifindex int) (p *bpf.Program, slow string, err error) {
	cfg := n.programConfig(d, ifindex)
	p, err = n.load(cfg)
	if err == nil || cfg.Fast == nil || n.cfg.FastPath == FastOn {
		return p, "", err
	}
	cfg.Fast = nil
	p, plain := n.load(cfg)
	if plain != nil {
		return nil, "", plain
	}
	n.log.Warn("the kernel does not take the program of the fast path: the workers forward what comes by this port", "port", d.cfg.Name, "error", err)
	return p, "the kernel does not take its program: " + err.Error(), nil
}

// closeDevice undoes openDevice.
func (n *Node) closeDevice(d *device) error {
	b := d.binding // nobody else writes it
	return n.release(d, &b)
}

// release gives up a binding of d, whole or half done, and gives the frames that the
// sockets held back to the workers.
func (n *Node) release(d *device, b *binding) error {
	var errs []error
	n.fast.closed(d.id)
	for q, s := range b.sockets {
		w := n.workers[q]
		w.call(func() { w.detach(&w.ports[d.id]) })
		errs = append(errs, s.Close())
		if s.ZeroCopy() {
			time.Sleep(xsk.ReleaseTime) // the kernel gives the device's pages back later
		}
		w.call(func() { w.reclaim(&w.ports[d.id]) })
	}
	n.mu.Lock() // from here on nobody reads the program's counters
	d.keepCounters(b.program)
	d.binding, d.foreign = binding{}, false
	n.mu.Unlock()
	if b.program != nil {
		errs = append(errs, b.program.Close())
	}
	if b.promisc != 0 {
		errs = append(errs, unix.Close(b.promisc))
	}
	return errors.Join(errs...)
}

func (b *binding) copyMode() string {
	for _, s := range b.sockets {
		if !s.ZeroCopy() {
			return "copy"
		}
	}
	return "zero-copy"
}

// keepCounters saves the classifier's counts from a program about to go; nil: there is
// none.
func (d *device) keepCounters(p *bpf.Program) {
	if p == nil {
		return
	}
	now, err := p.Counters()
	if err != nil {
		return // the program goes either way, and its counts with it
	}
	if d.past == nil {
		d.past = make(map[string]uint64)
	}
	for k, v := range now {
		d.past[k] += v
	}
}

func (d *device) info(serving bool, log *slog.Logger) PortInfo {
	i := PortInfo{Name: d.cfg.Name, Kind: d.cfg.Kind, Open: d.program != nil, Since: d.since, Classifier: make(map[string]uint64)}
	for k, v := range d.past {
		i.Classifier[k] += v
	}
	if d.err != nil {
		i.Error = d.err.Error()
	}
	if d.program == nil {
		return i
	}
	if !serving {
		i.Open, i.Error = false, "it gets frames as soon as the workers forward"
	}
	i.XDPMode, i.CopyMode = d.mode.String(), d.copyMode()
	counts, err := d.program.Counters()
	if err != nil {
		log.Warn("read classifier counters", "port", d.cfg.Name, "error", err)
	}
	for k, v := range counts {
		i.Classifier[k] += v
	}
	return i
}
