package bridge

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"github.com/loomfabric/loom/overlay"
)

// Model is what of the kernel's leaf a data plane can forward for. It is not changed once
// a [Sink] has it.
type Model struct {
	VTEP    netip.Addr // not valid: there is no VXLAN device to work with
	UDPPort uint16
	Domains []Domain     // by VNI
	Ports   []Port       // by index
	Peers   []netip.Addr // VTEPs of remote addresses and of flood lists, in order
	Left    []Left       // in the order of interfaces

	domains map[place]*domain
	devices map[int]bool // VXLAN devices that domains use
	fixed   bool         // VTEP and UDPPort stay what they are
}

// Domain is a network that is bridged here and over VXLAN.
type Domain struct {
	VNI        overlay.VNI
	Bridge     int // index
	BridgeName string
	VLAN       uint16 // of a bridge that filters VLANs; otherwise 0
	Device     int    // index of the VXLAN device
	DeviceName string
	MTU        int           // of the VXLAN device or the bridge, whichever is less
	Ageing     time.Duration // of addresses; 0: they do not age
	Gateways   []overlay.MAC // of the bridge and of what is on it: these are the kernel's
}

// Port is an interface towards hosts.
type Port struct {
	Index int
	Name  string
	MTU   int
	VLANs []Binding // by tag
}

// Binding says which network a port's frames with a tag are of.
type Binding struct {
	Tag uint16 // 0: frames without one
	VNI overlay.VNI
}

// place is where a bridge looks an address up.
type place struct {
	bridge int
	vlan   uint16
}

// domain is what of a [Domain] decides whether an address is usable.
type domain struct {
	vni      overlay.VNI
	device   int
	src      uint32 // what the device looks addresses up in beside the MAC
	udpPort  uint16
	vtep     netip.Addr
	gateways map[overlay.MAC]bool
	ports    map[int]local // by index of the bridge's port
}

// local is where frames to a host leave: the port, and the tag.
type local struct {
	port int
	tag  uint16
}

// derivation is the work of one call of Derive.
type derivation struct {
	s       *State
	prev    *Model
	ours    func(prog uint32) bool
	m       *Model
	links   []*Link // by index
	members map[int][]*Link
	claims  map[place][]claim
	left    map[Left]bool
}

// claim is a VXLAN device's word that a VLAN is a VNI.
type claim struct {
	device *Link
	vni    uint32
}

// Derive makes a model of s. It keeps the VTEP of prev, which may be nil, as long as a
// device has it. ours reports whether an XDP program is the data plane's own.
// Peers are left empty.
func Derive(s *State, prev *Model, ours func(prog uint32) bool) *Model {
	d := derivation{
		s: s, prev: prev, ours: ours,
		m:       &Model{domains: make(map[place]*domain), devices: make(map[int]bool)},
		members: make(map[int][]*Link), claims: make(map[place][]claim), left: make(map[Left]bool),
	}
	for _, l := range s.Links {
		d.links = append(d.links, l)
	}
	slices.SortFunc(d.links, func(a, b *Link) int { return cmp.Compare(a.Index, b.Index) })
	for _, l := range d.links {
		if br := s.Links[l.Master]; l.Member != nil && br != nil && br.Bridge != nil {
			d.members[l.Master] = append(d.members[l.Master], l)
		}
	}
	devices := d.devices()
	d.vtep(devices)
	for _, l := range devices {
		d.claim(l)
	}
	d.settle()
	d.gateways()
	d.ports()
	d.finish()
	return d.m
}

func (d *derivation) leave(l *Link, port bool, why Reason, detail, fix string) {
	d.left[Left{Name: l.Name, Index: l.Index, Port: port, Reason: why, Detail: detail, Fix: fix}] = true
}

// devices returns the VXLAN devices in bridges that nothing speaks against.
func (d *derivation) devices() (ok []*Link) {
	bridges := make(map[int]bool) // whether it may be used
	for _, l := range d.links {
		if l.VXLAN == nil || l.Member == nil || d.s.Links[l.Master] == nil {
			continue
		}
		br := d.s.Links[l.Master]
		if br.Bridge == nil {
			continue
		}
		fine, known := bridges[br.Index]
		if !known {
			fine = d.bridge(br)
			bridges[br.Index] = fine
		}
		if d.device(l, br) && fine {
			ok = append(ok, l)
		}
	}
	return ok
}

// bridge reports whether a bridge with a VXLAN device may be used.
func (d *derivation) bridge(br *Link) bool {
	b, f := br.Bridge, &d.s.Filters
	switch {
	case !br.Up:
		d.leave(br, false, Down, "the bridge is down", "ip link set dev "+br.Name+" up")
	case b.Filtering && b.Protocol != ethVLAN:
		d.leave(br, false, QinQ, "its VLANs are 802.1ad's: frames have two tags", "")
	case b.MST:
		d.leave(br, false, MST, "each VLAN has a spanning tree of its own (mst_enabled)", "")
	case f.BridgeTables:
		d.leave(br, false, BridgeTable, "nftables has chains of the bridge family", "see `nft list tables bridge`")
	case f.IPChains && (f.CallIPTables || b.Netfilter):
		d.leave(br, false, BrNetfilter, "bridged frames pass iptables' rules (br_netfilter)",
			"if these rules are not for bridged frames: sysctl -w net.bridge.bridge-nf-call-iptables=0 net.bridge.bridge-nf-call-ip6tables=0 net.bridge.bridge-nf-call-arptables=0")
	default:
		return true
	}
	return false
}

// device reports whether a VXLAN device may be used.
func (d *derivation) device(l, br *Link) bool {
	x := l.VXLAN
	switch {
	case x.External && !(br.Bridge.Filtering && l.Member.Tunnel):
		d.leave(l, false, FlowBased, "the VXLAN device takes the VNI from each frame (external), and the bridge maps no VLANs to VNIs there (vlan_tunnel)", "")
	case !x.Local.IsValid():
		d.leave(l, false, NoVTEP, "the VXLAN device has no local address", "ip link set dev "+l.Name+" type vxlan local ADDRESS")
	case x.Local.Is6() && x.Local.IsLinkLocalUnicast():
		d.leave(l, false, LinkLocal, "its VTEP "+x.Local.String()+" is an address of one link", "ip link set dev "+l.Name+" type vxlan local ADDRESS")
	case x.Local.Is6() && !x.ZeroChecksum:
		d.leave(l, false, ZeroChecksum, "it takes no UDP checksum of zero over IPv6, which leaves send: the kernel would drop what is passed to it",
			"make the device again with udp6zerocsumrx (and udp6zerocsumtx)")
	case x.Extension != "":
		d.leave(l, false, Extension, "its VXLAN header has an extension ("+x.Extension+")", "")
	case !l.Up:
		d.leave(l, false, Down, "the VXLAN device is down", "ip link set dev "+l.Name+" up")
	case l.Member.State != forwarding:
		d.leave(l, false, STP, "spanning tree: "+stpState(l.Member.State), "")
	default:
		return !d.filtered(l, false)
	}
	return false
}

// filtered leaves an interface to the kernel where something beside bridges decides about
// its frames.
func (d *derivation) filtered(l *Link, port bool) bool {
	f := &d.s.Filters
	switch {
	case f.Qdiscs[l.Index] != "":
		d.leave(l, port, TC, "tc has "+f.Qdiscs[l.Index]+" on it", "see `tc qdisc show dev "+l.Name+"`")
	case f.Netdev[l.Name]:
		d.leave(l, port, Netdev, "nftables has a chain of the netdev family on it", "see `nft list tables netdev`")
	case l.XDP != 0 && !d.ours(l.XDP):
		d.leave(l, port, XDP, "it has another XDP program", "see `ip link show dev "+l.Name+"`")
	default:
		return false
	}
	return true
}

// vtep chooses the leaf's VTEP: that of before, or else what most devices have.
func (d *derivation) vtep(devices []*Link) {
	type local struct {
		addr netip.Addr
		port uint16
	}
	count := make(map[local]int)
	var best local
	for _, l := range devices {
		k := local{l.VXLAN.Local, l.VXLAN.Port}
		if count[k]++; count[k] > count[best] {
			best = k
		}
	}
	if p := d.prev; p != nil && (p.fixed || count[local{p.VTEP, p.UDPPort}] > 0) {
		best = local{p.VTEP, p.UDPPort}
		d.m.fixed = p.fixed
	}
	d.m.VTEP, d.m.UDPPort = best.addr, best.port
}

// finish puts everything into order.
func (d *derivation) finish() {
	m := d.m
	for p, x := range m.domains {
		br, device := d.s.Links[p.bridge], d.s.Links[x.device]
		m.devices[x.device] = true
		dom := Domain{
			VNI: x.vni, Bridge: p.bridge, BridgeName: br.Name, VLAN: p.vlan, Device: x.device, DeviceName: device.Name,
			MTU: min(br.MTU, device.MTU), Ageing: br.Bridge.Ageing,
		}
		for mac := range x.gateways {
			dom.Gateways = append(dom.Gateways, mac)
		}
		slices.SortFunc(dom.Gateways, func(a, b overlay.MAC) int { return slices.Compare(a[:], b[:]) })
		m.Domains = append(m.Domains, dom)
	}
	slices.SortFunc(m.Domains, func(a, b Domain) int { return cmp.Compare(a.VNI, b.VNI) })
	for l := range d.left {
		m.Left = append(m.Left, l)
	}
	slices.SortFunc(m.Left, func(a, b Left) int {
		return cmp.Or(cmp.Compare(a.Index, b.Index), cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Detail, b.Detail))
	})
}
