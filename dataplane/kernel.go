package dataplane

import (
	"cmp"
	"errors"
	"math/bits"
	"net/netip"
	"time"

	"github.com/loomfabric/loom/bpf"
	"github.com/loomfabric/loom/overlay"
)

// DefaultRefresh is how often the kernel is shown a frame of each source, unless a
// [VNI] says otherwise. Linux bridges forget an address after five minutes.
const DefaultRefresh = 5 * time.Second

// openRule makes the tables of the XDP programs of a leaf whose overlay is the kernel's.
func (n *Node) openRule() (err error) {
	if !n.cfg.KernelOverlay {
		return nil
	}
	addresses := 1 << bits.Len(uint(n.cfg.FDBSize-1)) // as many as overlay.NewFDB allows
	n.rule, err = bpf.OpenRule(bpf.RuleSize{Addresses: addresses, Networks: MaxVNIs, Peers: MaxPeers})
	return err
}

// KernelTables says how full the tables are that the XDP programs ask, and what they
// cost.
type KernelTables struct {
	Addresses int    `json:"addresses"`
	Capacity  int    `json:"capacity"` // in addresses
	Memory    uint64 `json:"memory"`   // of the kernel, all tables, bytes; 0: it does not say
}

// KernelTables returns the state of the XDP programs' tables; false: the overlay is the
// node's own.
func (n *Node) KernelTables() (t KernelTables, ok bool) {
	if n.rule == nil {
		return t, false
	}
	n.publishing.Lock()
	defer n.publishing.Unlock()
	return KernelTables{n.rule.Len(), n.rule.Size().Addresses, n.rule.Memory()}, true
}

// KernelAddress returns what the XDP programs know of an address of a network, and
// whether they know it. Passed is the time since the kernel was shown a frame of it.
func (n *Node) KernelAddress(vni VNIIndex, mac overlay.MAC) (a bpf.RuleAddress, ok bool, err error) {
	if n.rule == nil {
		return a, false, nil
	}
	return n.rule.LookAt(overlay.MakeFDBKey(uint16(vni), mac))
}

// ruleTables returns what the XDP programs have to know of a view.
func ruleTables(v *view) *bpf.RuleTables {
	t := &bpf.RuleTables{Networks: make(map[overlay.VNI]uint16), Peers: make(map[netip.Addr]bool)}
	for i := range v.tables.VNIs {
		if vni := v.tables.VNIs[i].VNI; vni != 0 {
			t.Networks[vni] = uint16(i)
		}
	}
	for i := range v.tables.Peers {
		if vtep := v.tables.Peers[i].VTEP; vtep.IsValid() {
			t.Peers[vtep], t.Ways[i] = true, v.paths[i].N > 0
		}
	}
	for i := range v.ports {
		t.Ports[i] = v.layout.has(PortID(i), Access) && v.ports[i].up
	}
	return t
}

// boundVLANs fills in what the frames of an access port's VLANs belong to.
func boundVLANs(v *view, p *viewPort, vlans *[bpf.VLANs]bpf.VLAN) {
	clear(vlans[:])
	if len(p.vlans) == 0 || &p.vlans[0] == &unbound[0] {
		return
	}
	for vid, network := range p.vlans {
		if network != 0 {
			vlans[vid] = bpf.VLAN{Network: network, Refresh: cmp.Or(v.tables.VNIs[network-1].Refresh, DefaultRefresh)}
		}
	}
}

// withdraw has the XDP programs give to the kernel what the workers will not know any more
// with a view. publishing is held.
func (n *Node) withdraw(v *view) {
	if n.rule == nil {
		return
	}
	err := errors.Join(n.eachVLANs(v, (*bpf.Program).RetainVLANs), n.rule.Retain(ruleTables(v)), n.dropStale(v))
	if err != nil {
		n.log.Error("XDP programs may go on giving workers what these do not know any more", "error", err)
	}
}

// offer has the XDP programs give to the workers what they know with a view. All of them
// have it when it begins. publishing is held.
func (n *Node) offer(v *view) {
	if n.rule == nil || n.leaving {
		return
	}
	for _, w := range n.workers {
		w.call(func() {}) // after it has taken the view
	}
	if err := errors.Join(n.rule.Set(ruleTables(v)), n.eachVLANs(v, (*bpf.Program).SetVLANs)); err != nil {
		n.log.Error("XDP programs leave more to the kernel than they have to", "error", err)
	}
}

// dropStale makes addresses nowhere whose VNI, peer or port is another one in a view, or
// gone: numbers go to others after a rest, and who changes addresses may be late.
func (n *Node) dropStale(v *view) error {
	old := n.view.Load()
	if old == nil {
		return nil
	}
	vnis, peers, ports := make(map[uint16]bool), make(map[uint16]bool), make(map[uint16]bool)
	for i := range old.tables.VNIs {
		if i >= len(v.tables.VNIs) || v.tables.VNIs[i].VNI != old.tables.VNIs[i].VNI {
			vnis[uint16(i)] = true
		}
	}
	for i := range old.tables.Peers {
		if i >= len(v.tables.Peers) || v.tables.Peers[i].VTEP != old.tables.Peers[i].VTEP {
			peers[uint16(i)] = true
		}
	}
	for i := range old.layout.ports {
		if was := &old.layout.ports[i]; v.layout.name(PortID(i)) != was.Name || !v.layout.has(PortID(i), was.Kind) {
			ports[uint16(i)] = true
		}
	}
	if len(vnis)+len(peers)+len(ports) == 0 {
		return nil
	}
	keys := n.rule.Find(func(key overlay.FDBKey, at overlay.Dest) bool {
		return vnis[uint16(key>>48)] || at.Remote() && peers[at.Peer()] || !at.Remote() && ports[at.Port()]
	})
	gone := make([]AddressChange, len(keys))
	for i, key := range keys {
		gone[i] = AddressChange{StaticMAC: StaticMAC{VNI: VNIIndex(key >> 48), MAC: overlay.MACFromUint64(uint64(key))}, Gone: true}
	}
	err := n.rule.DeleteAddresses(keys)
	applyAddresses(n.workers, gone)
	return err
}

// leaveTime is how long workers go on receiving after the XDP programs have given all
// frames to the kernel: what was redirected before is in their rings by then.
const leaveTime = 10 * time.Millisecond

// handBack gives the frames of the kernel's overlay back to the kernel, so that none is
// lost when the workers stop. What has a shim still comes.
func (n *Node) handBack() {
	if n.rule == nil {
		return
	}
	n.publishing.Lock()
	n.leaving = true
	v := n.view.Load()
	var err error
	if v != nil {
		nothing := *v
		nothing.ports = make([]viewPort, len(v.ports))
		err = errors.Join(n.eachVLANs(&nothing, (*bpf.Program).RetainVLANs), n.rule.Retain(&bpf.RuleTables{}))
	}
	n.publishing.Unlock()
	if err != nil {
		n.log.Warn("frames may be lost as the kernel takes its overlay back", "error", err)
	}
	time.Sleep(leaveTime)
}

// eachVLANs calls set for the program of each access port that is open, with the port's
// VLANs.
func (n *Node) eachVLANs(v *view, set func(*bpf.Program, *[bpf.VLANs]bpf.VLAN) error) error {
	n.mu.Lock() // who closes a program takes it away under the lock
	defer n.mu.Unlock()
	var errs []error
	vlans := new([bpf.VLANs]bpf.VLAN)
	for _, d := range n.devices {
		if d == nil || d.cfg.Kind != Access || d.program == nil || d.foreign {
			continue
		}
		p := new(viewPort) // of a port that the view does not have yet, or any more
		if int(d.id) < len(v.ports) {
			p = &v.ports[d.id]
		}
		boundVLANs(v, p, vlans)
		errs = append(errs, set(d.program, vlans))
	}
	return errors.Join(errs...)
}
