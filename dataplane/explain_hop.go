package dataplane

import (
	"errors"
	"net/netip"
	"slices"

	"github.com/loomfabric/loom/internal/drop"
	"github.com/loomfabric/loom/overlay"
)

// name returns that of a reason, "" for none.
func name(r drop.Reason) string {
	if r == drop.None {
		return ""
	}
	return r.String()
}

// OuterFlow is packets between two VTEPs that somebody asks about.
type OuterFlow struct {
	Src, Dst netip.Addr
	SrcPort  uint16 // UDP, which stands for the tenant's flow
	In       string // port that they come by; "": none in particular
	// Capable says that the packets have the fabric's fields, and Selector what they say; nil:
	// nobody knows yet.
	Capable  bool
	Selector *uint8
}

// RouteExplanation says where a spine sends packets between two VTEPs, and why.
type RouteExplanation struct {
	Prefix netip.Prefix `json:"prefix"` // of the route; "": there is none
	Hash   uint32       `json:"hash"`   // of the outer 5-tuple, with this node's seed
	Scheme string       `json:"scheme"` // of the spine's own; "": selectors and hashes decide
	// NextHop is the one that the packets take; null: each packet is decided about by itself, or
	// there is none.
	NextHop  *NextHop  `json:"next_hop"`
	NextHops []NextHop `json:"next_hops"` // of the route
	Reason   string    `json:"reason"`
	Drop     string    `json:"drop"` // why the packets end here; "": they leave
}

// ExplainRoute says which next hop packets between two VTEPs take at a spine. Nothing
// changes for any packet.
func (n *Node) ExplainRoute(f *OuterFlow) (x *RouteExplanation, err error) {
	if n.cfg.Role == Leaf {
		return nil, errors.New("a leaf routes no packets of others: ask a spine")
	}
	if !f.Src.IsValid() || !f.Dst.IsValid() || f.Src.Is4() != f.Dst.Is4() {
		return nil, errors.New("give the addresses of two VTEPs of one IP version")
	}
	w := n.workers[0]
	w.call(func() { x, err = w.spine.explain(f) })
	return x, err
}

func (s *spineWorker) explain(f *OuterFlow) (*RouteExplanation, error) {
	v := s.view
	if v == nil {
		return nil, errors.New("the node has no tables yet: try again when it is ready")
	}
	outer := Flow{Src: f.Src, Dst: f.Dst, Proto: overlay.ProtoUDP, SrcPort: f.SrcPort, DstPort: s.cfg.VXLANPort}
	var m overlay.Meta
	overlay.Dissect(outer.frame(), s.seed, &m)
	x := &RouteExplanation{Hash: m.Hash, Scheme: s.cfg.Scheme, NextHops: []NextHop{}}
	if f.In != "" && s.cfg.ReversePath != AnyPath && !s.comesBy(overlay.AddrOf(f.Src), f.In) {
		x.Drop, x.Reason = name(drop.ReversePath), "no route to the sender leads over the port that its packets come by (reverse_path)"
		return x, nil
	}
	group := s.lookup(overlay.AddrOf(f.Dst))
	if group != noGroup {
		x.Prefix, _, _ = v.routes.LookupPrefixLPM(netip.PrefixFrom(f.Dst, f.Dst.BitLen()))
	}
	if group == noGroup || v.groups[group].n == 0 {
		x.Drop, x.Reason = name(drop.NoRoute), "no route leads to the VTEP by way of a port that is up"
		return x, nil
	}
	g := &v.groups[group]
	for _, id := range g.hops[:g.n] {
		x.NextHops = append(x.NextHops, v.nextHop(id))
	}
	switch {
	case s.brain != nil && g.n > 1:
		x.Reason = "the spine's scheme decides about each packet"
		return x, nil
	case f.Capable && f.Selector == nil && g.n > 1:
		x.Reason = "the leaf's scheme chooses a selector for each packet"
		return x, nil
	case g.n == 1:
		x.Reason = "it is the route's only next hop"
	case f.Capable:
		x.Reason = "the selector stands for this next hop"
	default:
		x.Reason = "the hash of the outer 5-tuple falls into this next hop's share"
	}
	selector := uint8(0)
	if f.Selector != nil {
		selector = *f.Selector
	}
	id := g.hops[g.choice.Of(f.Capable, selector, m.Hash)%MaxPaths]
	if s.brain != nil {
		id = g.hops[0]
	}
	hop := v.nextHop(id)
	x.NextHop = &hop
	if s.ports[v.hops[id].port].link == nil {
		x.Drop, x.Reason = name(drop.PortDown), "the port is not open"
	}
	return x, nil
}

// comesBy reports whether a route to an address leads over a port.
func (s *spineWorker) comesBy(src overlay.Addr, in string) bool {
	group := s.lookup(src)
	if group == noGroup {
		return false
	}
	id := slices.IndexFunc(s.ports, func(p port) bool { return p.name == in })
	return id >= 0 && s.view.groups[group].leadsTo(PortID(id))
}

// InnerFlow is a tenant's packets out of the fabric that somebody asks about.
type InnerFlow struct {
	From   netip.Addr // VTEP of the sender
	In     string     // uplink that they come by; "": none in particular
	VNI    overlay.VNI
	DstMAC overlay.MAC
}

// ArrivalExplanation says what a leaf does with packets out of the fabric, and why.
type ArrivalExplanation struct {
	VTEP        netip.Addr `json:"vtep"`        // of this leaf
	Destination string     `json:"destination"` // local or flooded
	Ports       []string   `json:"ports"`       // that they leave by
	VLAN        uint16     `json:"vlan"`        // tag on the port of a local destination; 0: none
	Reason      string     `json:"reason"`
	Drop        string     `json:"drop"` // why they end here; "": they leave
}

// ExplainArrival says by which access port a tenant's packets from the fabric leave.
// Nothing changes for any packet.
func (n *Node) ExplainArrival(a *InnerFlow) (x *ArrivalExplanation, err error) {
	if n.cfg.Role != Leaf {
		return nil, errors.New("nothing of tenants' arrives at a spine: ask a leaf")
	}
	for _, w := range n.workers {
		w.call(func() { x, err = w.leaf.explainArrival(a) })
		if err != nil || x.Destination == DestinationLocal {
			break // another worker may not have heard of the address yet
		}
	}
	return x, err
}

func (l *leafWorker) explainArrival(a *InnerFlow) (*ArrivalExplanation, error) {
	v := l.view
	if v == nil {
		return nil, errors.New("the node has no tables yet: try again when it is ready")
	}
	x := &ArrivalExplanation{VTEP: l.cfg.VTEP, Ports: []string{}}
	refuse := func(r drop.Reason, why string) (*ArrivalExplanation, error) {
		x.Drop, x.Reason = name(r), why
		return x, nil
	}
	from := overlay.AddrOf(a.From)
	peer, known := v.vtepNumber.get(from, from.Hash())
	if !known {
		return refuse(drop.VTEPUnknown, "the sender is no peer of this leaf")
	}
	if id := slices.IndexFunc(l.ports, func(p port) bool { return p.name == a.In && p.kind == Uplink }); a.In != "" && (id < 0 || v.from[peer]>>l.ports[id].uplink&1 == 0) {
		return refuse(drop.ReversePath, "no route to the sender leads over the uplink that its packets come by (reverse_path)")
	}
	vni, known := v.vniNumber.get(a.VNI, a.VNI.Hash())
	if !known {
		return refuse(drop.VNIUnknown, "this leaf is not in the virtual network")
	}
	if !v.mayEnter(vni, PeerID(peer)) {
		return refuse(drop.VTEPForeign, "the sender is no member of the virtual network")
	}
	to := overlay.DestNone
	if !a.DstMAC.IsGroup() {
		to = l.fdb.Lookup(vni, a.DstMAC, l.now)
	}
	switch {
	case to == overlay.DestNone:
		x.Destination, x.Reason = DestinationFlooded, "the address is a group's, or unknown here: every port of the network gets a copy"
		for _, m := range v.members[vni] {
			x.Ports = append(x.Ports, v.layout.name(m.port))
		}
		return x, nil
	case to.Remote():
		return refuse(drop.SplitHorizon, "the address lives behind another leaf, and nothing goes back into the fabric")
	}
	out := member{PortID(to.Port()), to.VLAN()}
	x.Destination, x.VLAN, x.Reason = DestinationLocal, out.vlan, "the address lives behind this port"
	x.Ports, x.Drop = append(x.Ports, v.layout.name(out.port)), name(l.mayDeliver(VNIIndex(vni), out))
	return x, nil
}

// mayDeliver returns why frames cannot leave by an access port, as deliver says it of a
// frame that is not too long.
func (l *leafWorker) mayDeliver(vni VNIIndex, to member) drop.Reason {
	switch vp := &l.view.ports[to.port]; {
	case vp.vlans[to.vlan] != uint16(vni)+1:
		return drop.NotMember
	case !vp.up, l.ports[to.port].link == nil:
		return drop.PortDown
	}
	return drop.None
}
