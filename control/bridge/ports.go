package bridge

import (
	"cmp"
	"fmt"
	"slices"
)

// served are the kinds of interfaces that frames can be taken from by AF_XDP.
var served = map[string]bool{"": true, "veth": true, "tun": true}

// kindWords say why the frames of other kinds cannot be taken.
var kindWords = map[string]string{
	"bond": "a bond: AF_XDP needs the queues of its members", "team": "a team: AF_XDP needs the queues of its members",
	"bridge": "a bridge in a bridge", "vlan": "a VLAN of a VLAN",
}

// binding is what one member of a bridge says of a port.
type binding struct {
	member *Link
	port   *Link
	tag    uint16
	place  place
}

// ports finds the interfaces towards hosts.
func (d *derivation) ports() {
	inUse := make(map[int]bool) // bridges with a domain
	for p := range d.m.domains {
		inUse[p.bridge] = true
	}
	var all []binding
	for _, l := range d.links {
		if l.Member == nil || l.VXLAN != nil || !inUse[l.Master] {
			continue
		}
		if port, tag, ok := d.port(l); ok {
			all = append(all, d.bind(l, port, tag)...)
		}
	}
	type key struct {
		port int
		tag  uint16
	}
	count := make(map[key]int)
	for _, b := range all {
		count[key{b.port.Index, b.tag}]++
	}
	byPort := make(map[int]*Port)
	for _, b := range all {
		if count[key{b.port.Index, b.tag}] > 1 {
			d.leave(b.member, true, Twice, fmt.Sprintf("frames of %s with tag %d come to two bridges", b.port.Name, b.tag), "")
			continue
		}
		x := d.m.domains[b.place]
		p := byPort[b.port.Index]
		if p == nil {
			p = &Port{Index: b.port.Index, Name: b.port.Name, MTU: b.port.MTU}
			byPort[b.port.Index] = p
		}
		if slices.ContainsFunc(p.VLANs, func(o Binding) bool { return o.VNI == x.vni }) {
			d.leave(b.member, true, Twice, fmt.Sprintf("frames of %s with tag %d are of VNI %d, and those with another tag are, too", b.port.Name, b.tag, x.vni), "")
			continue
		}
		x.ports[b.member.Index] = local{b.port.Index, b.tag}
		p.VLANs = append(p.VLANs, Binding{b.tag, x.vni})
	}
	for _, p := range byPort {
		slices.SortFunc(p.VLANs, func(a, b Binding) int { return cmp.Compare(a.Tag, b.Tag) })
		d.m.Ports = append(d.m.Ports, *p)
	}
	slices.SortFunc(d.m.Ports, func(a, b Port) int { return cmp.Compare(a.Index, b.Index) })
}

// port finds the interface that the frames of a bridge's member come by, and the tag that
// they have there. False: the member is left to the kernel.
func (d *derivation) port(l *Link) (port *Link, tag uint16, ok bool) {
	m := l.Member
	switch {
	case !l.Up:
		d.leave(l, true, Down, "it is down", "")
	case m.State != forwarding:
		d.leave(l, true, STP, "spanning tree: "+stpState(m.State), "")
	case m.Isolated:
		d.leave(l, true, Isolated, "it is isolated", "")
	case m.Locked:
		d.leave(l, true, Locked, "it is locked: sources have to be authorised", "")
	case !m.Learning:
		d.leave(l, true, NotLearning, "the bridge learns no addresses there", "")
	default:
		ok = true
	}
	if !ok || d.filtered(l, true) {
		return nil, 0, false
	}
	port = l
	if l.Kind == "vlan" {
		lower := d.s.Links[l.Lower]
		if lower == nil || l.Protocol != ethVLAN || l.VLAN == 0 || l.VLAN > maxVLAN {
			d.leave(l, true, QinQ, "its tag is not 802.1Q's, or its interface is not here", "")
			return nil, 0, false
		}
		port, tag = lower, l.VLAN
		if d.filtered(port, true) {
			return nil, 0, false
		}
	}
	if !served[port.Kind] {
		what, known := kindWords[port.Kind]
		if !known {
			what = "of kind " + port.Kind + ": AF_XDP does not serve it"
		}
		d.leave(l, true, Kind, port.Name+" is "+what, "")
		return nil, 0, false
	}
	return port, tag, true
}

// bind finds the networks of a member's VLANs.
func (d *derivation) bind(l, port *Link, tag uint16) (out []binding) {
	br := d.s.Links[l.Master]
	if !br.Bridge.Filtering {
		if p := (place{br.Index, 0}); d.m.domains[p] != nil {
			out = append(out, binding{l, port, tag, p})
		}
		return out
	}
	v := l.vlans()
	for id := uint16(1); id <= maxVLAN; id++ {
		p := place{br.Index, id}
		if !v.has(id) || d.m.domains[p] == nil {
			continue
		}
		switch state := l.state(id); {
		case state != forwarding:
			d.leave(l, true, STP, fmt.Sprintf("spanning tree: VLAN %d is %s", id, stpState(state)), "")
		case v.pvid == id && v.strips(id):
			out = append(out, binding{l, port, tag, p})
		case v.strips(id):
			d.leave(l, true, Tags, fmt.Sprintf("frames of VLAN %d leave without tag, and those that come without are of VLAN %d", id, v.pvid), "")
		case tag != 0:
			d.leave(l, true, QinQ, fmt.Sprintf("frames of VLAN %d have two tags", id), "")
		default:
			out = append(out, binding{l, port, id, p})
		}
	}
	return out
}
