package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/loomfabric/loom/bpf"
	"github.com/loomfabric/loom/config"
	"github.com/loomfabric/loom/control"
	"github.com/loomfabric/loom/control/bridge"
	"github.com/loomfabric/loom/dataplane"
	"github.com/loomfabric/loom/overlay"
)

// kernelOverlay reports whether the kernel has the overlay of the node.
func (n *node) kernelOverlay() bool {
	l, ok := n.file.(*config.Leaf)
	return ok && l.Overlay == config.OverlayKernel
}

// discover returns the node with the overlay that the kernel's bridges have, without ports
// of a larger MTU than widest. It is the node itself if its overlay is not the kernel's.
func (n *node) discover(m *bridge.Model, widest int) *node {
	if !n.kernelOverlay() || m == nil {
		return n
	}
	out := *n
	out.model = m
	out.leaf = n.file.(*config.Leaf).Complete(kernelSays(m, n.found(), widest))
	out.dp = out.leaf.ToDataplane()
	out.dp.Name, out.dp.Keys = n.dp.Name, n.dp.Keys
	if n.auto() {
		return out.with(n.found())
	}
	return &out
}

// kernelSays returns a model in the terms of a leaf's file. A port of a bridge that is an
// uplink, too, stays an uplink, and one whose frames no packet buffer holds is the kernel's.
func kernelSays(m *bridge.Model, uplinks []string, widest int) *config.Kernel {
	k := &config.Kernel{VTEP: m.VTEP, Port: m.UDPPort, Peers: m.Peers}
	for i := range m.Domains {
		k.VNIs = append(k.VNIs, config.KernelVNI{VNI: uint32(m.Domains[i].VNI), Ageing: m.Domains[i].Ageing})
	}
	for _, p := range m.Ports {
		if slices.Contains(uplinks, p.Name) || p.MTU > widest {
			continue
		}
		a := config.Access{Interface: p.Name, Fail: config.FailOpen, VLANs: make(map[uint16]uint32)}
		for _, b := range p.VLANs {
			if b.Tag == 0 {
				a.VNI = uint32(b.VNI)
			} else {
				a.VLANs[b.Tag] = uint32(b.VNI)
			}
		}
		k.Access = append(k.Access, a)
	}
	return k
}

// noDeviceFix makes an overlay of the kernel's.
const noDeviceFix = "ip link add vxlan100 type vxlan id 100 local VTEP dstport 4789 nolearning; ip link set vxlan100 master BRIDGE; ip link set vxlan100 up"

// inspectKernel completes a node whose overlay is the kernel's, and returns what is to be
// said of the kernel's.
func (n *node) inspectKernel() (*node, []control.Finding, error) {
	if !n.kernelOverlay() {
		return n, nil, nil
	}
	m, addresses, err := bridge.Inspect(bpf.Ours)
	if err != nil {
		return nil, nil, err
	}
	n = n.discover(m, dataplane.LargestMTU)
	n.addresses = addresses
	findings := append(leftFindings(m), wideFindings(m, dataplane.LargestMTU)...)
	if n.waits() {
		findings = append(findings, control.Finding{
			Fatal: true, Place: "overlay", Problem: "the overlay is the kernel's, and no bridge has a VXLAN device that leafd can work with",
			Fix: noDeviceFix,
		})
	}
	return n, findings, nil
}

// leftFindings says what is left to the kernel.
func leftFindings(m *bridge.Model) (out []control.Finding) {
	for _, l := range m.Left {
		fix := l.Fix
		if fix == "" {
			fix = "nothing, if it is meant to be so: the kernel forwards for it"
		}
		out = append(out, control.Finding{Place: l.Name, Problem: l.String(), Fix: fix})
	}
	return out
}

// wideFindings says which ports are left to the kernel for their MTU.
func wideFindings(m *bridge.Model, widest int) (out []control.Finding) {
	for _, p := range m.Ports {
		if p.MTU > widest {
			out = append(out, control.Finding{
				Place: p.Name, Problem: fmt.Sprintf("%s is left to the kernel: its MTU is %d, and packet buffers are for %d", p.Name, p.MTU, widest),
				Fix: fmt.Sprintf("ip link set dev %s mtu %d; up to %d, a restart of leafd makes larger buffers", p.Name, widest, dataplane.LargestMTU),
			})
		}
	}
	return out
}

// widest returns the largest MTU of a port that the node's packet buffers hold.
func (n *node) widest() int { return dataplane.MaxMTU(n.dp.FrameSize()) }

// printKernel prints what the kernel has of an overlay, for people.
func (n *node) printKernel(out io.Writer) {
	if n == nil || n.model == nil {
		return
	}
	m := n.model
	fmt.Fprintf(out, "overlay of the kernel: VTEP %v, UDP port %d, %d peers, %d addresses\n", m.VTEP, m.UDPPort, len(m.Peers), n.addresses)
	for i := range m.Domains {
		d := &m.Domains[i]
		where := d.BridgeName
		if d.VLAN != 0 {
			where += fmt.Sprintf(" VLAN %d", d.VLAN)
		}
		fmt.Fprintf(out, "  VNI %d: bridge %s, %s, MTU %d\n", d.VNI, where, d.DeviceName, d.MTU)
	}
	for _, p := range m.Ports {
		var in []string
		for _, b := range p.VLANs {
			tag := "untagged"
			if b.Tag != 0 {
				tag = fmt.Sprintf("VLAN %d", b.Tag)
			}
			in = append(in, fmt.Sprintf("%s in VNI %d", tag, b.VNI))
		}
		fmt.Fprintf(out, "  port %s: %s\n", p.Name, strings.Join(in, ", "))
	}
}

// setModel puts what the kernel's bridges have in force. It returns when to do so again,
// since there will be room for a port that there is none for now; 0: not before something
// happens.
func (r *reloader) setModel(ctx context.Context, m *bridge.Model) (again time.Duration, err error) {
	r.applying.Lock()
	defer r.applying.Unlock()
	now := r.now.Load()
	n := now.discover(m, now.widest())
	n.inherit(now)
	for _, f := range wideFindings(m, now.widest()) {
		r.log.Warn(f.Problem, "fix", f.Fix)
	}
	left, err := r.fit(n)
	if err != nil {
		return 0, err
	}
	for _, full := range left {
		again = full.Wait // of all the same
		r.log.Warn("a port of a bridge is left to the kernel", "interface", full.Port, "because", full, "fix", "raise max_ports and restart leafd")
	}
	return again, r.exchange(ctx, now, n)
}

// fit leaves ports of the kernel's bridges out for which the data plane has no room, and
// returns why. Other ports that it has no room for are an error.
func (r *reloader) fit(n *node) (left []*dataplane.NoRoomError, err error) {
	for {
		var full *dataplane.NoRoomError
		err := r.plane.CheckPorts(n.dp.Ports)
		if !errors.As(err, &full) || !n.kernelOverlay() || !n.without(full.Port) {
			return left, err
		}
		left = append(left, full)
	}
}

// without takes an access port off the node.
func (n *node) without(port string) bool {
	before := len(n.leaf.Access)
	n.leaf.Access = slices.DeleteFunc(n.leaf.Access, func(a config.Access) bool { return a.Interface == port })
	n.dp.Ports = slices.DeleteFunc(n.dp.Ports, func(p dataplane.PortConfig) bool { return p.Name == port && p.Kind == dataplane.Access })
	return len(n.leaf.Access) < before
}

// addressKey is an address of a network.
type addressKey struct {
	vni overlay.VNI
	mac overlay.MAC
}

// follower gives the data plane what the kernel's bridges have. The bridges' mirror calls
// it, from one goroutine.
type follower struct {
	mu sync.Mutex // guards what is below log
	// held is true until a predecessor's ports are this daemon's: models are not put in
	// force then, only addresses in what the data plane has.
	held bool

	ctx    context.Context
	again  *reloader
	change func([]dataplane.AddressChange) (refused []dataplane.AddressChange, err error)
	tables func() *dataplane.Tables
	ports  func() []dataplane.PortConfig
	log    *slog.Logger

	model *bridge.Model
	vnis  map[overlay.VNI]dataplane.VNIIndex
	peers map[netip.Addr]dataplane.PeerID
	byIf  map[int]dataplane.PortID
	// waiting are addresses for which there is no room, or no number for what they name.
	// Their frames are the kernel's.
	waiting map[addressKey]bridge.Place
	failed  bool // a change has failed, and the log says so

	problem string        // why the model is not in force, as the log says; "": it is
	failing bool          // the last try of model and addresses has failed, in part at least
	pause   time.Duration // after it
	timer   *time.Timer   // for the next one; nil: there was none
	due     time.Time     // of timer
}

// SetModel implements [bridge.Sink].
func (f *follower) SetModel(m *bridge.Model) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.model = m
	f.putModel()
}

// putModel puts the newest model in force, unless that has to wait, and finds places for
// addresses in what is in force then. mu is held.
func (f *follower) putModel() {
	f.failing = false
	if !f.held {
		again, err := f.again.setModel(f.ctx, f.model)
		f.report(err)
		f.later(again)
	}
	f.number()
	f.retry(len(f.waiting))
	if !f.failing {
		f.pause = 0
	}
}

// report logs that a model cannot be put in force, and why, or that one can again. It has
// the model tried again.
func (f *follower) report(err error) {
	switch {
	case f.ctx.Err() != nil || errors.Is(err, dataplane.ErrOver): // the daemon ends
	case err == nil && f.problem != "":
		f.log.Info("the kernel's bridges are followed again")
		f.problem = ""
	case err != nil:
		f.backOff()
		if text := err.Error(); text != f.problem {
			f.log.Error("cannot follow the kernel's bridges: networks and ports stay as they were; trying again", "err", err, "in", f.pause)
			f.problem = text
		}
	}
}

// The pause after something that the data plane has refused, which doubles as long as it
// does.
const (
	firstPause = 100 * time.Millisecond
	lastPause  = 10 * time.Second
)

// backOff has the model and what waits tried again after a pause, once for each time that
// they are tried.
func (f *follower) backOff() {
	if !f.failing {
		f.failing = true
		f.pause = min(max(2*f.pause, firstPause), lastPause)
	}
	f.later(f.pause)
}

// later has the model and what waits tried again after a time, or before; 0: no time.
func (f *follower) later(after time.Duration) {
	if after == 0 {
		return
	}
	due := time.Now().Add(after)
	if f.timer != nil {
		if f.timer.Stop() && f.due.Before(due) {
			due = f.due
		}
	}
	f.due, f.timer = due, time.AfterFunc(time.Until(due), f.tryAgain)
}

// proceed says that the ports are this daemon's: models need not wait any more. The newest
// one is put in force, once more if it was.
func (f *follower) proceed() {
	f.mu.Lock()
	f.held = false
	f.mu.Unlock()
	f.tryAgain()
}

// tryAgain puts the newest model in force once more, unless that has to wait, and finds
// places for addresses that wait.
func (f *follower) tryAgain() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.model != nil && f.ctx.Err() == nil {
		f.putModel()
	}
}

// number finds the data plane's numbers for what the model names.
func (f *follower) number() {
	f.vnis, f.peers, f.byIf = make(map[overlay.VNI]dataplane.VNIIndex), make(map[netip.Addr]dataplane.PeerID), make(map[int]dataplane.PortID)
	t := f.tables()
	if t == nil {
		return
	}
	for i := range t.VNIs {
		if v := t.VNIs[i].VNI; v != 0 {
			f.vnis[v] = dataplane.VNIIndex(i)
		}
	}
	for i := range t.Peers {
		if a := t.Peers[i].VTEP; a.IsValid() {
			f.peers[a] = dataplane.PeerID(i)
		}
	}
	ports := f.ports()
	for _, p := range f.model.Ports {
		id := slices.IndexFunc(ports, func(c dataplane.PortConfig) bool { return c.Name == p.Name && c.Kind == dataplane.Access })
		if id >= 0 && id < len(t.Ports) {
			f.byIf[p.Index] = dataplane.PortID(id)
		}
	}
}

// ChangeAddresses implements [bridge.Sink].
func (f *follower) ChangeAddresses(changes []bridge.Change) {
	f.mu.Lock()
	defer f.mu.Unlock()
	list := make([]dataplane.AddressChange, 0, len(changes))
	room := 0
	for _, c := range changes {
		k := addressKey{c.VNI, c.MAC}
		delete(f.waiting, k)
		d, ok := f.convert(k, c.To)
		if !ok && c.To != (bridge.Place{}) {
			f.waiting[k] = c.To
		}
		if _, known := f.vnis[c.VNI]; known { // an address that has no place has to go, too
			list = append(list, d)
			room += gone(&d)
		}
	}
	f.make(list)
	if room > 0 {
		f.retry(room)
	}
}

func gone(d *dataplane.AddressChange) int {
	if d.Gone {
		return 1
	}
	return 0
}

// convert returns a change in the data plane's numbers. It is a deletion if the place has
// none, and then ok is false.
func (f *follower) convert(k addressKey, to bridge.Place) (d dataplane.AddressChange, ok bool) {
	d.MAC, d.Gone = k.mac, true
	if d.VNI, ok = f.vnis[k.vni]; !ok {
		return d, false
	}
	if to.Port == 0 {
		d.Port = dataplane.NoPort
		d.Peer, ok = f.peers[to.VTEP]
	} else {
		d.VLAN = to.Tag
		d.Port, ok = f.byIf[to.Port]
	}
	d.Gone = !ok
	return d, ok
}

// make has the data plane make changes. Those for which it has no room wait.
func (f *follower) make(list []dataplane.AddressChange) {
	if len(list) == 0 {
		return
	}
	refused, err := f.change(list)
	if err != nil {
		refused = list
		if !f.failed && f.ctx.Err() == nil {
			f.log.Error("cannot change addresses of the kernel's overlay; their frames are the kernel's; trying again", "err", err)
		}
		f.backOff()
	}
	f.failed = err != nil
	for i := range refused {
		if d := &refused[i]; !d.Gone {
			f.waiting[addressKey{f.tables().VNIs[d.VNI].VNI, d.MAC}] = f.place(d)
		}
	}
}

// place returns the place that a change names.
func (f *follower) place(d *dataplane.AddressChange) bridge.Place {
	if d.Port == dataplane.NoPort {
		return bridge.Place{VTEP: f.tables().Peers[d.Peer].VTEP}
	}
	for i, id := range f.byIf {
		if id == d.Port {
			return bridge.Place{Port: i, Tag: d.VLAN}
		}
	}
	return bridge.Place{}
}

// retryBatch is how many addresses that wait are tried at a time.
const retryBatch = 256

// retry tries addresses that wait, at most some.
func (f *follower) retry(most int) {
	var list []dataplane.AddressChange
	for k, to := range f.waiting {
		if most--; most < 0 {
			break
		}
		if d, ok := f.convert(k, to); ok {
			delete(f.waiting, k)
			list = append(list, d)
		}
	}
	for part := range slices.Chunk(list, retryBatch) {
		f.make(part)
	}
}

// kernelMirror is the mirror of the kernel's bridges, and who follows it.
type kernelMirror struct {
	*follower
	mirror *bridge.Mirror
}

// openKernel begins to follow the kernel's bridges; nil: the overlay is the node's own.
// With held it puts no model in force until proceed is called.
func (n *node) openKernel(ctx context.Context, held bool, again *reloader, plane *dataplane.Node, mirror *control.Mirror, log *slog.Logger) (k *kernelMirror, err error) {
	if !n.kernelOverlay() {
		return nil, nil
	}
	k = &kernelMirror{follower: &follower{
		held: held, ctx: ctx, again: again, change: plane.ChangeAddresses, tables: mirror.Tables, ports: plane.Ports, log: log,
		waiting: make(map[addressKey]bridge.Place),
	}}
	k.mirror, err = bridge.Open(bridge.Options{Sink: k.follower, VTEP: n.dp.VTEP, UDPPort: n.dp.VXLANPort, Ours: bpf.Ours, Log: log})
	return k, err
}

// stats returns who says what the mirror counts; nil: there is none.
func (k *kernelMirror) stats() func() bridge.Stats {
	if k == nil {
		return nil
	}
	return k.mirror.Stats
}

// syncTime is how long a daemon that takes over waits until it knows the kernel's addresses.
const syncTime = time.Minute

// known waits until the data plane has all addresses of the kernel's: a predecessor's XDP
// programs give its workers frames to them from the moment that it takes over.
func (k *kernelMirror) known(ctx context.Context) {
	if k == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, syncTime)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for k.mirror.Stats().Synced == 0 {
		select {
		case <-ctx.Done():
			k.log.Warn("takes over before all addresses of the kernel's bridges are known: frames to the others are lost until they are", "waited", syncTime)
			return
		case <-tick.C:
		}
	}
}

// takenOver has models put in force from now on.
func (k *kernelMirror) takenOver() error {
	if k != nil {
		k.proceed()
	}
	return nil
}

// run follows the kernel's bridges until ctx ends, from when the data plane has tables.
func (k *kernelMirror) run(ctx context.Context) error {
	if k == nil {
		return nil
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for k.tables() == nil {
		select {
		case <-ctx.Done():
			return k.mirror.Close()
		case <-tick.C:
		}
	}
	return k.mirror.Run(ctx)
}
