package dataplane

import (
	"fmt"
	"math"
	"net/netip"
	"slices"

	"github.com/gaissmai/bart"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/leaf"
	"github.com/loomfabric/loom/overlay"
)

// view is Tables compiled for the hot path: flat, indexed, without a decision
// left that could be taken once. Built outside the workers, shared by them,
// never written again.
type view struct {
	tables *Tables
	layout *layout
	seq    uint32 // counts the views of a node, wrapping
	vtep   overlay.Addr

	ports []viewPort // by PortID
	hops  []viewHop  // by HopID

	// Leaf.
	vniNumber  flatMap[overlay.VNI]  // VNI to VNIIndex
	vtepNumber flatMap[overlay.Addr] // VTEP to PeerID
	members    [][]member            // by VNIIndex: access ports
	paths      []balance.Paths       // by PeerID
	tunnels    []tunnel              // by PeerID*MaxPaths+path
	longest    uint16                // longest frame in a tunnel that a host can cause
	from       []uint16              // by PeerID: uplinks that its packets may come by, as bits
	senders    [][]uint64            // by VNIIndex: peers that may send, as bits; nil: all
	restricted bool                  // there are senders that are not nil

	// Spine.
	routes *bart.Table[uint32]
	groups []viewGroup
}

type viewPort struct {
	up       bool
	mac      overlay.MAC
	linked   bool     // a next hop is behind the port
	hop      HopID    // the first of them whose MAC address is known, or else the first
	maxFrame uint16   // longest Ethernet frame, without FCS; tags not counted
	vlans    []uint16 // of a leaf's: by VID, VNIIndex+1; 0: not bound
	keepTags bool     // access: transparent
}

type viewHop struct {
	port     PortID
	maxFrame uint16 // the port's
	resolved bool
	dst, src overlay.MAC
}

// member is an access port's membership in a VNI.
type member struct {
	port PortID
	vlan uint16 // tag on the port; 0: none
}

// tunnel is one path to one peer, with what the packet path wants to know of
// its next hop: following the indices would be a chain of loads.
type tunnel struct {
	hop      HopID
	port     PortID
	maxFrame uint16
	resolved bool
	uplink   uint8
	header   overlay.Tunnel
	_        [128 - 8 - 76]byte // what IPv4 needs is one cache line, and IPv6 needs two
}

type viewGroup struct {
	n      uint32
	hops   [MaxPaths]HopID
	choice leaf.NextHops
	places places
	from   [MaxPorts / 64]uint64 // ports that packets of its destinations may come by, as bits
}

// compile turns t into a view for a node configured as cfg, with the ports of l. It
// reports tables that contradict them or the limits. Tables may name ports that are gone
// since, and lack those that came.
func compile(cfg *Config, l *layout, t *Tables) (*view, error) {
	if len(t.Ports) > len(l.ports) {
		return nil, fmt.Errorf("tables have %d ports, the node has %d", len(t.Ports), len(l.ports))
	}
	if n := len(l.ports) - len(t.Ports); n > 0 {
		longer := *t
		longer.Ports = append(slices.Clip(t.Ports), make([]PortState, n)...)
		t = &longer
	}
	if len(t.Hops) > MaxHops || len(t.Peers) > MaxPeers || len(t.VNIs) > MaxVNIs {
		return nil, fmt.Errorf("tables too large: %d next hops (at most %d), %d peers (%d), %d VNIs (%d)",
			len(t.Hops), MaxHops, len(t.Peers), MaxPeers, len(t.VNIs), MaxVNIs)
	}
	v := &view{tables: t, layout: l, routes: t.Routes}
	for i, p := range t.Ports {
		v.ports = append(v.ports, viewPort{
			up: p.Up && l.ports[i].taken(), maxFrame: uint16(min(p.MTU+overlay.EthernetLen, 0xffff)), mac: p.MAC, keepTags: p.Transparent,
			vlans: unbound,
		})
	}
	for i, h := range t.Hops {
		if int(h.Port) >= len(t.Ports) {
			return nil, fmt.Errorf("next hop %d (%v) is on port %d of %d", i, h.Gateway, h.Port, len(t.Ports))
		}
		v.hops = append(v.hops, viewHop{port: h.Port, maxFrame: v.ports[h.Port].maxFrame, resolved: h.Resolved, dst: h.MAC, src: t.Ports[h.Port].MAC})
		if p := &v.ports[h.Port]; !p.linked || h.Resolved && !v.hops[p.hop].resolved {
			p.linked, p.hop = true, HopID(i)
		}
	}
	if cfg.Role == Leaf {
		return v, v.compileLeaf(cfg, t)
	}
	return v, v.compileSpine(cfg, t)
}

func (v *view) compileLeaf(cfg *Config, t *Tables) error {
	v.vtep = overlay.AddrOf(cfg.VTEP)
	if err := checkLeaf(cfg, t); err != nil {
		return err
	}
	if cfg.KernelOverlay && len(t.Static) > 0 {
		return fmt.Errorf("%d static addresses: with the kernel's overlay they are the kernel's, too", len(t.Static))
	}
	numbers := make([]overlay.VNI, len(t.VNIs))
	for i := range t.VNIs {
		numbers[i] = t.VNIs[i].VNI
	}
	v.vniNumber = makeFlatMap(numbers, overlay.VNI.Hash)
	v.members = make([][]member, len(t.VNIs))
	if err := v.bindAccess(t); err != nil {
		return err
	}
	for i := range v.ports {
		if v.layout.has(PortID(i), Access) {
			v.longest = max(v.longest, uint16(min(int(v.ports[i].maxFrame)+cfg.Overhead(), math.MaxUint16)))
		}
	}
	vteps := make([]overlay.Addr, len(t.Peers))
	v.paths = make([]balance.Paths, len(t.Peers))
	v.tunnels = make([]tunnel, len(t.Peers)*MaxPaths)
	v.from = make([]uint16, len(t.Peers))
	v.bindSenders(t)
	for i := range t.Peers {
		vteps[i] = overlay.AddrOf(t.Peers[i].VTEP)
		v.bindPeer(cfg, i, &t.Peers[i])
	}
	v.vtepNumber = makeFlatMap(vteps, overlay.Addr.Hash)
	return nil
}

// checkLeaf makes sure that no index in t points outside, and that all VTEPs are of one
// family.
func checkLeaf(cfg *Config, t *Tables) error {
	for _, n := range t.VNIs {
		for _, p := range n.Flood {
			if int(p) >= len(t.Peers) {
				return fmt.Errorf("flood list of VNI %d names peer %d of %d", n.VNI, p, len(t.Peers))
			}
		}
		for _, p := range n.Peers {
			if int(p) >= len(t.Peers) {
				return fmt.Errorf("VNI %d has peer %d of %d", n.VNI, p, len(t.Peers))
			}
		}
	}
	for _, p := range t.Peers {
		if p.VTEP.IsValid() && overlay.FamilyOf(p.VTEP) != overlay.FamilyOf(cfg.VTEP) {
			return fmt.Errorf("peer %v and VTEP %v are of two families: a leaf sends VXLAN over one", p.VTEP, cfg.VTEP)
		}
		for _, h := range p.Hops {
			if int(h) >= len(t.Hops) {
				return fmt.Errorf("peer %v names next hop %d of %d", p.VTEP, h, len(t.Hops))
			}
		}
		if err := checkWeights("peer "+p.VTEP.String(), p.Hops, p.Weights); err != nil {
			return err
		}
	}
	for i := range t.Static {
		if err := t.checkAddress(&t.Static[i], false); err != nil {
			return fmt.Errorf("static %w", err)
		}
	}
	return nil
}

// unbound is the vlans of a port that is in no network.
var unbound = make([]uint16, 4096)

// bindAccess puts access ports into their networks. Ports that are gone have none.
func (v *view) bindAccess(t *Tables) error {
	for _, b := range t.Bindings {
		if !v.layout.has(b.Port, Access) {
			continue
		}
		p, vid := &v.ports[b.Port], b.VLAN&0xfff
		switch {
		case int(b.VNI) >= len(t.VNIs):
			return fmt.Errorf("port %s, VLAN %d is bound to VNI %d of %d", v.layout.name(b.Port), b.VLAN, b.VNI, len(t.VNIs))
		case p.vlans[vid] != 0:
			return fmt.Errorf("port %s, VLAN %d is bound twice", v.layout.name(b.Port), b.VLAN)
		case &p.vlans[0] == &unbound[0]:
			p.vlans = make([]uint16, len(unbound))
		}
		p.vlans[vid] = uint16(b.VNI) + 1
		v.members[b.VNI] = append(v.members[b.VNI], member{b.Port, vid})
	}
	return nil
}

// networks returns the networks that an access port is in.
func (v *view) networks(id PortID) (n Networks) {
	p := &v.ports[id]
	if i := p.vlans[0]; i != 0 {
		n.Untagged = v.tables.VNIs[i-1].VNI
	}
	n.Transparent = p.keepTags
	n.Tagged = slices.ContainsFunc(p.vlans[1:], func(i uint16) bool { return i != 0 })
	return n
}

// bindSenders notes which peers may send into which VNI.
func (v *view) bindSenders(t *Tables) {
	v.senders = make([][]uint64, len(t.VNIs))
	for i := range t.VNIs {
		if t.VNIs[i].Peers == nil {
			continue
		}
		v.restricted = true
		v.senders[i] = make([]uint64, (len(t.Peers)+63)/64)
		for _, p := range t.VNIs[i].Peers {
			v.senders[i][p/64] |= 1 << (p % 64)
		}
	}
}

// mayEnter reports whether a peer may send into a VNI.
func (v *view) mayEnter(vni uint16, peer PeerID) bool {
	if !v.restricted {
		return true
	}
	s := v.senders[vni]
	return s == nil || s[peer/64]>>(peer%64)&1 != 0
}

// mayArrive returns the uplinks that packets of a peer may come by, as bits.
func mayArrive(cfg *Config, v *view, p *Peer) (bits uint16) {
	if cfg.ReversePath == AnyPath || cfg.ReversePath == FeasiblePath && len(p.Hops) > 0 {
		return math.MaxUint16
	}
	for _, h := range p.Hops {
		if port := v.hops[h].port; v.layout.has(port, Uplink) {
			bits |= 1 << v.layout.ports[port].tag
		}
	}
	return bits
}

// places are the next hops of a list, those that cannot be taken now included, so that
// the flows of the others stay where they are.
type places struct {
	hops    []HopID  // those that frames may take, at most MaxPaths
	at      []uint8  // their places
	n       int      // places
	weights []uint16 // by place; nil: all are alike
	gone    uint16   // places of no use, as bits
}

// usable returns the places of a list. Of use are the next hops behind ports that are up
// and, at a leaf, uplinks. Those without a MAC are of use only when there is none with
// one: a frame then waits for the first answer.
func (v *view) usable(cfg *Config, hops []HopID, weights []uint16, gone []Gone) (p places) {
	out := func(h HopID) bool {
		port := v.hops[h].port
		return !v.ports[port].up || cfg.Role == Leaf && v.layout.ports[port].Kind != Uplink
	}
	resolved := slices.ContainsFunc(hops, func(h HopID) bool { return !out(h) && v.hops[h].resolved })
	for i := 0; p.n < MaxPaths && (i < len(hops) || len(gone) > 0); p.n++ {
		weight := uint16(1)
		switch {
		case len(gone) > 0 && (int(gone[0].Place) == p.n || i == len(hops)):
			p.gone |= 1 << p.n
			weight, gone = gone[0].Weight, gone[1:]
		default:
			if h := hops[i]; out(h) || resolved && !v.hops[h].resolved {
				p.gone |= 1 << p.n
			} else {
				p.hops, p.at = append(p.hops, h), append(p.at, uint8(p.n))
			}
			if weights != nil {
				weight = weights[i]
			}
			i++
		}
		p.weights = append(p.weights, weight)
	}
	if weights == nil {
		p.weights = nil
	}
	return p
}

// checkWeights reports weights that do not fit their next hops.
func checkWeights(of string, hops []HopID, weights []uint16) error {
	if weights != nil && len(weights) != len(hops) || slices.Contains(weights, 0) {
		return fmt.Errorf("%s has weights %v for %d next hops: there has to be one above 0 for each", of, weights, len(hops))
	}
	return nil
}

// bindPeer prepares the paths to one peer.
func (v *view) bindPeer(cfg *Config, i int, p *Peer) {
	all := v.usable(cfg, p.Hops, p.Weights, p.Gone)
	uplinks := make([]uint8, all.n) // of those that are gone it does not matter
	for path, h := range all.hops {
		hop := &v.hops[h]
		uplink := v.layout.ports[hop.port].tag
		uplinks[all.at[path]] = uplink
		v.tunnels[i*MaxPaths+path] = tunnel{
			header: overlay.MakeTunnel(cfg.VTEP, p.VTEP, hop.src, hop.dst, cfg.VXLANPort),
			hop:    h, port: hop.port, maxFrame: hop.maxFrame, resolved: hop.resolved, uplink: uplink,
		}
	}
	paths := balance.MakeWeightedPaths(uplinks, all.weights)
	v.paths[i] = paths.Without(all.gone)
	v.from[i] = mayArrive(cfg, v, p)
}

func (v *view) compileSpine(cfg *Config, t *Tables) error {
	for _, g := range t.Groups {
		for _, h := range g.Hops {
			if int(h) >= len(v.hops) {
				return fmt.Errorf("route group names next hop %d of %d", h, len(v.hops))
			}
		}
		if err := checkWeights("route group", g.Hops, g.Weights); err != nil {
			return err
		}
		vg := viewGroup{}
		for _, h := range g.Hops {
			port := v.hops[h].port
			vg.from[port/64] |= 1 << (port % 64)
		}
		if cfg.ReversePath != StrictPath && len(g.Hops) > 0 {
			vg.from = [MaxPorts / 64]uint64{math.MaxUint64, math.MaxUint64, math.MaxUint64, math.MaxUint64}
		}
		vg.places = v.usable(cfg, g.Hops, g.Weights, g.Gone)
		vg.n = uint32(copy(vg.hops[:], vg.places.hops))
		vg.choice = leaf.MakeNextHops(vg.places.n, vg.places.weights).Without(vg.places.gone, vg.places.weights)
		v.groups = append(v.groups, vg)
	}
	return nil
}

// numberOfPeer returns the PeerID of a VTEP, and whether it has one.
func (v *view) numberOfPeer(vtep netip.Addr) (uint16, bool) {
	a := overlay.AddrOf(vtep)
	return v.vtepNumber.get(a, a.Hash())
}
