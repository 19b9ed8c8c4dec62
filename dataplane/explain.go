package dataplane

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"time"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/internal/drop"
	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/overlay"
)

// Flow is a tenant's flow that somebody asks about: by IP addresses, or by MAC
// addresses for what is not IP. With IP addresses, DstMAC tells where in the
// fabric the flow goes; without it, what stations have announced does, or else any leaf of
// the VNI may be meant.
type Flow struct {
	VNI              overlay.VNI
	SrcMAC, DstMAC   overlay.MAC
	Src, Dst         netip.Addr // not valid: not IP
	Proto            uint8      // IP protocol
	SrcPort, DstPort uint16     // TCP, UDP and SCTP
	DSCP             uint8
}

// arpEtherType stands for whatever is not IP: the most common of it.
const arpEtherType = 0x0806

// frame is the headers of a frame of the flow, as a host sends it.
func (f *Flow) frame() []byte {
	b := append(append(make([]byte, 0, 64), f.DstMAC[:]...), f.SrcMAC[:]...)
	const l4 = overlay.UDPLen
	switch {
	case !f.Src.IsValid():
		b = binary.BigEndian.AppendUint16(b, arpEtherType)
	case f.Src.Is4():
		b = binary.BigEndian.AppendUint16(b, overlay.EtherTypeIPv4)
		b = append(b, 0x45, f.DSCP<<2, 0, overlay.IPv4Len+l4, 0, 0, 0, 0, 64, f.Proto, 0, 0)
		b = append(append(b, f.Src.AsSlice()...), f.Dst.AsSlice()...)
	default:
		b = binary.BigEndian.AppendUint16(b, overlay.EtherTypeIPv6)
		b = append(b, 0x60|f.DSCP>>2, f.DSCP<<6, 0, 0, 0, l4, f.Proto, 64)
		b = append(append(b, f.Src.AsSlice()...), f.Dst.AsSlice()...)
	}
	b = binary.BigEndian.AppendUint16(b, f.SrcPort)
	b = binary.BigEndian.AppendUint16(b, f.DstPort)
	return append(b, 0, l4, 0, 0)
}

// check reports a flow that cannot be.
func (f *Flow) check() error {
	switch {
	case f.Src.IsValid() != f.Dst.IsValid():
		return errors.New("one end is an IP address and the other is not: give two of a kind, and the destination's MAC besides if you like")
	case f.Src.IsValid() && f.Src.Is4() != f.Dst.Is4():
		return fmt.Errorf("%v and %v are of two IP versions", f.Src, f.Dst)
	case !f.Src.IsValid() && (f.Proto != 0 || f.SrcPort != 0 || f.DstPort != 0):
		return errors.New("a protocol and ports need IP addresses: MAC addresses stand for what is not IP")
	case !f.Src.IsValid() && (f.SrcMAC.IsZero() || f.DstMAC.IsZero()):
		return errors.New("a flow has two ends: give two IP addresses or two MAC addresses")
	case f.SrcMAC.IsGroup():
		return fmt.Errorf("%v is a group's address: nobody sends from it", f.SrcMAC)
	case f.DSCP > 63:
		return fmt.Errorf("DSCP %d: at most 63", f.DSCP)
	}
	return nil
}

// Destinations of an [Explanation].
const (
	DestinationRemote  = "remote"  // behind the peer
	DestinationLocal   = "local"   // behind an access port: the fabric does not see it
	DestinationFlooded = "flooded" // unknown or a group: a copy to each peer
	DestinationUnnamed = "unnamed" // nobody knows its MAC address: it may be behind any of the peers
)

// Explanation says where a flow goes, and why.
type Explanation struct {
	VNI        uint32 `json:"vni"`
	Hash       uint32 `json:"hash"`
	Hashed     string `json:"hashed"`            // what the hash is of
	SourcePort uint16 `json:"outer_source_port"` // UDP, of the flow in the fabric
	Class      int    `json:"class"`             // the last one is the default
	Scheme     string `json:"scheme"`
	// Worker is the one whose tables the answer is from: that in whose flowlet or
	// connection table the flow was seen last, as it depends on the access port's
	// queues which one it comes to.
	Worker      int              `json:"worker"`
	Flowlet     *FlowletEntry    `json:"flowlet"`      // null: the scheme or the flow has none
	Connection  *ConnectionEntry `json:"connection"`   // ConWeave's, the one used last; null likewise
	Destination string           `json:"destination"`  // remote, local, flooded or unnamed
	DstMAC      string           `json:"dst_mac"`      // that was asked about, or has been announced for the IP address; "": unknown
	Announced   *time.Duration   `json:"announced_ns"` // ago, by ARP or neighbour discovery; null: it was asked about
	Port        string           `json:"port"`         // of a local destination
	Drop        string           `json:"drop"`         // why packets to a local destination end here; "": they leave
	VTEP        netip.Addr       `json:"vtep"`         // of this leaf
	Peers       []PeerChoice     `json:"peers"`        // that the flow may go to
}

// PeerChoice is how a flow goes to one peer.
type PeerChoice struct {
	VTEP    netip.Addr     `json:"vtep"`
	Capable bool           `json:"capable"`
	Uplinks []UplinkChoice `json:"uplinks"` // usable ones
	// Uplink is the one that the flow's next packet takes; null: chance decides,
	// or none leads there.
	Uplink *uint8 `json:"uplink"`
	// Fresh are the uplinks: the flow would get one of them if it started now.
	Fresh  []int  `json:"fresh"`
	Reason string `json:"reason"`
	// Selector is what the next tier goes by, if the peer is capable; null: it is not, or the
	// scheme chooses for each packet.
	Selector *uint8 `json:"selector"`
	// Drop is why the flow's packets end here; "": they leave.
	Drop string `json:"drop"`
}

// UplinkChoice is an uplink that a flow could take.
type UplinkChoice struct {
	PathState
	Combined *int    `json:"combined_metric"` // what the scheme compares; null: nothing
	NextHop  NextHop `json:"next_hop"`
}

// NextHop is a neighbour behind a port.
type NextHop struct {
	Port     string     `json:"port"`
	Gateway  netip.Addr `json:"gateway"`
	MAC      string     `json:"mac"`
	Resolved bool       `json:"resolved"` // MAC is known; until then packets wait
}

// nextHop names a next hop.
func (v *view) nextHop(id HopID) NextHop {
	h := &v.tables.Hops[id]
	return NextHop{v.layout.name(h.Port), h.Gateway, h.MAC.String(), h.Resolved}
}

// Explain says which uplink a flow takes now, or would take, and why. The flow
// need not exist, and nothing changes for it or for any other.
func (n *Node) Explain(f *Flow) (*Explanation, error) {
	if n.cfg.Role != Leaf {
		return nil, errors.New("a spine does not know flows: ask the leaf that the flow enters by")
	}
	if err := f.check(); err != nil {
		return nil, err
	}
	announced := n.fillMAC(f)
	var best *Explanation
	var err error
	for _, w := range n.workers {
		var x *Explanation
		w.call(func() { x, err = w.leaf.explain(f) })
		if err != nil {
			return nil, err
		}
		if best == nil || x.idle() < best.idle() {
			best = x
		}
	}
	best.Announced = announced
	if !f.DstMAC.IsZero() {
		best.DstMAC = f.DstMAC.String()
	}
	return best, nil
}

// fillMAC gives a flow between IP addresses its destination's MAC address, if that has
// been announced, and says how long ago.
func (n *Node) fillMAC(f *Flow) *time.Duration {
	if !f.Dst.IsValid() || !f.DstMAC.IsZero() {
		return nil
	}
	h, ok := n.hostOf(f.VNI, f.Dst)
	if !ok {
		return nil
	}
	f.DstMAC = h.MAC
	return &h.Age
}

// idle is the time since x's worker saw the flow.
func (x *Explanation) idle() time.Duration {
	switch {
	case x.Flowlet != nil:
		return x.Flowlet.Idle
	case x.Connection != nil:
		return x.Connection.Idle
	}
	return math.MaxInt64
}

func (l *leafWorker) explain(f *Flow) (*Explanation, error) {
	if l.view == nil {
		return nil, errors.New("the node has no tables yet: try again when it is ready")
	}
	index, ok := l.view.vniNumber.get(f.VNI, f.VNI.Hash())
	if !ok {
		return nil, fmt.Errorf("VNI %d is not one of this leaf's", f.VNI)
	}
	vni := VNIIndex(index)
	var m overlay.Meta
	b := f.frame()
	overlay.Dissect(b, l.seed, &m)
	x := &Explanation{
		VNI: uint32(f.VNI), Hash: m.Hash, Hashed: hashed(&m, f), SourcePort: overlay.SourcePort(m.Hash),
		Class: l.classify(b, &m, m.L3, vni), Worker: l.id, Peers: []PeerChoice{}, VTEP: l.cfg.VTEP,
	}
	c := l.classes[x.Class]
	x.Scheme = c.Scheme.Name
	if p, ok := c.Policy.(balance.FlowletPolicy); ok {
		if fl, ok := p.Flowlets().Find(m.Hash, l.now); ok {
			e := l.view.layout.flowletEntry(fl)
			x.Flowlet = &e
		}
	}
	if p, ok := c.Policy.(balance.ConWeavePolicy); ok {
		x.Connection = l.connectionOf(p, m.Hash)
	}
	var exact []balance.Exact
	if c.exact != nil {
		exact = make([]balance.Exact, 1)
		overlay.ExactKey(b, m.L3, &m, &exact[0].Key)
	}
	for _, peer := range l.whereTo(f, vni, x) {
		p := balance.Packet{Hash: m.Hash, Leaf: uint16(peer), Number: l.peerNumbers[peer], Host: hostOf(b, int(m.L3), m.Flags)}
		x.Peers = append(x.Peers, l.explainPeer(c.Policy, &p, exact, l.now))
	}
	return x, nil
}

// hashed says what the hash of m, of a frame of f, is of.
func hashed(m *overlay.Meta, f *Flow) string {
	switch {
	case m.Flags&overlay.FlagPorts != 0 && f.Proto == overlay.ProtoUDP && f.DstPort == 4791:
		return "5-tuple (RoCEv2: without the queue pair, which belongs to it)"
	case m.Flags&overlay.FlagPorts != 0:
		return "5-tuple"
	case m.L3 != 0:
		return "IP addresses and protocol"
	}
	return fmt.Sprintf("MAC addresses and EtherType 0x%04x", arpEtherType)
}

// whereTo fills x's destination and returns the peers that the flow may go to.
func (l *leafWorker) whereTo(f *Flow, vni VNIIndex, x *Explanation) []PeerID {
	flood := l.view.tables.VNIs[vni].Flood
	if f.DstMAC.IsZero() {
		x.Destination = DestinationUnnamed
		return flood
	}
	to := overlay.DestNone
	if !f.DstMAC.IsGroup() {
		to = l.fdb.Lookup(uint16(vni), f.DstMAC, l.now)
	}
	switch {
	case to == overlay.DestNone:
		x.Destination = DestinationFlooded
		return flood
	case to.Remote():
		x.Destination = DestinationRemote
		return []PeerID{PeerID(to.Peer())}
	}
	x.Destination, x.Port = DestinationLocal, l.view.layout.name(PortID(to.Port()))
	x.Drop = name(l.mayDeliver(vni, member{PortID(to.Port()), to.VLAN()}))
	return nil
}

// explainPeer asks the policy, shown what it is shown of a packet.
func (l *leafWorker) explainPeer(p balance.Policy, pkt *balance.Packet, exact []balance.Exact, now mono.Time) PeerChoice {
	l.Look(now)
	peer := PeerID(pkt.Leaf)
	v := *l.brain.View()
	v.Exact = exact
	e := balance.Explain(p, now, &v, pkt)
	paths := &v.Paths[peer]
	c := PeerChoice{
		VTEP: l.view.tables.Peers[peer].VTEP, Capable: l.shared.leaf.Capable.Capable(uint16(peer), now),
		Uplinks: []UplinkChoice{}, Fresh: []int{}, Reason: e.Reason,
	}
	if l.view.paths[peer].N == 0 {
		c.Drop = name(drop.NoRoute)
	}
	if c.Capable && e.Selector >= 0 {
		s := uint8(e.Selector)
		c.Selector = &s
	}
	if e.Path >= 0 {
		u := paths.Uplink[e.Path] // the view is not the caller's to point into
		c.Uplink = &u
	}
	for u := range l.uplinks {
		if e.Fresh&(1<<u) != 0 {
			c.Fresh = append(c.Fresh, u)
		}
		path := int(l.view.paths[peer].Index[u])
		if path < 0 {
			continue
		}
		choice := UplinkChoice{PathState: l.pathState(peer, uint8(u), now), NextHop: l.view.nextHop(l.view.tunnels[int(peer)*MaxPaths+path].hop)}
		if e.Combined[u] >= 0 {
			choice.Combined = &e.Combined[u]
		}
		c.Uplinks = append(c.Uplinks, choice)
	}
	return c
}
