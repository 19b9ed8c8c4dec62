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

// reopenAfter is how long a port that could not be opened is left alone.
const reopenAfter = 200 * time.Millisecond

// device is a port as the kernel has it: the interface, the attached program,
// and a socket a worker. Guarded by Node.mu.
type device struct {
	id      PortID
	cfg     *PortConfig
	ifindex int // 0: not open
	program *bpf.Program
	sockets []*xsk.Socket // by worker
	promisc int           // descriptor that keeps an access port promiscuous; 0: none
	mode    bpf.Mode
	err     error // why it is not open
	since   time.Time
	past    map[string]uint64 // classifier counters of programs that are gone
}

// absent reports whether the interface of d does not exist, and notes it.
func (d *device) absent() bool {
	if _, err := net.InterfaceByName(d.cfg.Name); err == nil {
		return false
	}
	d.err, d.since = fmt.Errorf("interface %s does not exist; the port opens when it appears", d.cfg.Name), time.Now()
	return true
}

// openDevice attaches and binds d. ifindex 0 means: look it up.
func (n *Node) openDevice(d *device, ifindex int) error {
	err := n.tryOpen(d, ifindex)
	if err != nil {
		err = fmt.Errorf("port %s: %w", d.cfg.Name, errors.Join(err, n.closeDevice(d)))
	}
	d.err, d.since = err, time.Now()
	n.setOpened(d.id, d.ifindex)
	return err
}

func (n *Node) tryOpen(d *device, ifindex int) error {
	if ifindex == 0 {
		i, err := net.InterfaceByName(d.cfg.Name)
		if err != nil {
			return fmt.Errorf("find interface: %w", err)
		}
		ifindex = i.Index
	}
	if d.cfg.Kind == Access {
		fd, err := promiscuous(ifindex)
		if err != nil {
			return err
		}
		d.promisc = fd
	}
	p, err := bpf.Load(n.programConfig(d))
	if err != nil {
		return err
	}
	d.program, d.ifindex = p, ifindex
	if d.mode, err = p.Attach(ifindex, d.cfg.Name, xdpModes[n.cfg.XDPMode]); err != nil {
		return err
	}
	for q, w := range n.workers {
		s, err := xsk.Open(n.umems[q], xsk.SocketConfig{
			Ifindex: ifindex, Name: d.cfg.Name, Queue: q,
			RX: n.cfg.RingSize, TX: n.cfg.RingSize, Fill: n.cfg.RingSize, Completion: n.cfg.RingSize,
			CopyMode: copyModes[n.cfg.CopyMode], Generic: d.mode == bpf.Generic,
		})
		if err != nil {
			return err
		}
		d.sockets = append(d.sockets, s)
		w.call(func() { w.attach(&w.ports[d.id], s) })
		if err := p.SetSocket(q, s.FD()); err != nil {
			return err
		}
	}
	granted := []any{"port", d.cfg.Name, "ifindex", ifindex, "xdp", d.mode.String(), "copy", d.copyMode(), "asked_xdp", xdpModes[n.cfg.XDPMode].String()}
	if err := d.sockets[0].Refusal(); err != nil { // there is a worker at least
		granted = append(granted, "no_zero_copy", err)
	}
	n.log.Info("port open", granted...)
	return nil
}

var (
	xdpModes  = map[XDPMode]bpf.Mode{XDPAuto: bpf.Auto, XDPNative: bpf.Native, XDPGeneric: bpf.Generic}
	copyModes = map[CopyMode]xsk.CopyMode{CopyAuto: xsk.CopyAuto, ZeroCopy: xsk.ForceZero, Copy: xsk.ForceCopy}
	kinds     = map[PortKind]bpf.Kind{Access: bpf.Access, Uplink: bpf.Uplink, SpinePort: bpf.Spine}
)

func (n *Node) programConfig(d *device) bpf.Config {
	return bpf.Config{
		Kind: kinds[d.cfg.Kind], VTEP: n.cfg.VTEP, Remotes: n.cfg.Remotes, VXLANPort: n.cfg.VXLANPort,
		Seed: uint32(n.cfg.Seed), Queues: max(n.cfg.Workers, 1), Closed: d.cfg.Kind == Access && !d.cfg.FailOpen,
	}
}

// closeDevice undoes openDevice, whole or half done, and gives the frames that
// the sockets held back to the workers.
func (n *Node) closeDevice(d *device) error {
	var errs []error
	for q, s := range d.sockets {
		w := n.workers[q]
		p := &w.ports[d.id]
		w.call(func() { w.detach(p) })
		errs = append(errs, s.Close())
		if s.ZeroCopy() {
			time.Sleep(xsk.ReleaseTime) // the kernel gives the device's pages back later
		}
		w.call(func() { w.reclaim(p) })
	}
	if d.program != nil {
		d.keepCounters()
		errs = append(errs, d.program.Close())
	}
	if d.promisc != 0 {
		errs = append(errs, unix.Close(d.promisc))
	}
	d.sockets, d.program, d.promisc, d.ifindex = nil, nil, 0, 0
	return errors.Join(errs...)
}

// watchDevices follows interfaces that vanish and return.
func (n *Node) watchDevices(ctx context.Context) {
	retry := time.NewTimer(reopenAfter)
	defer retry.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-n.changed:
		case <-retry.C:
		}
		if n.followDevices() {
			retry.Reset(reopenAfter)
		}
	}
}

// followDevices closes and opens ports so that they match the newest tables.
// It reports whether one of them is to be tried again.
func (n *Node) followDevices() (again bool) {
	v := n.view.Load()
	if v == nil {
		return false
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for i, d := range n.devices {
		want := v.tables.Ports[i].Ifindex
		if d.ifindex == want {
			continue
		}
		if d.ifindex != 0 {
			n.log.Warn("interface is gone: port closed", "port", d.cfg.Name, "ifindex", d.ifindex)
			n.setOpened(d.id, 0)
			if err := n.closeDevice(d); err != nil {
				n.log.Warn("close port", "port", d.cfg.Name, "error", err)
			}
			d.err, d.since = fmt.Errorf("interface %s is gone; the port opens again when it returns", d.cfg.Name), time.Now()
		}
		if want == 0 {
			continue
		}
		first := d.err
		if err := n.openDevice(d, want); err != nil {
			again = true
			if first == nil || first.Error() != err.Error() {
				n.log.Error("cannot open port; trying again", "error", err, "every", reopenAfter)
			}
		}
	}
	return again
}

func (d *device) copyMode() string {
	for _, s := range d.sockets {
		if !s.ZeroCopy() {
			return "copy"
		}
	}
	return "zero-copy"
}

// keepCounters saves the classifier's counts from a program about to go.
func (d *device) keepCounters() {
	now, err := d.program.Counters()
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

func (d *device) info(log *slog.Logger) PortInfo {
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
