package dataplane

import (
	"github.com/loomfabric/loom/dataplane/xsk"
	"github.com/loomfabric/loom/internal/drop"
	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/overlay"
)

// accessInput takes a burst from a host: which VNI, where to, and for what
// goes into the fabric, which uplink and the tunnel header.
func (l *leafWorker) accessInput(p *port, descs []xsk.Desc, now mono.Time) {
	for i := range descs {
		f := frame{off: uint32(descs[i].Addr), len: uint16(descs[i].Len), in: p.id}
		if r := l.fromHost(p, &f, now); r != drop.None {
			l.discard(&f, r)
		}
	}
	l.encapAll(now)
}

// fromHost forwards a host's frame, or says why it is to be dropped.
func (l *leafWorker) fromHost(p *port, f *frame, now mono.Time) drop.Reason {
	b := l.bytes(f)
	if len(b) < overlay.EthernetLen {
		return drop.Truncated
	}
	vp := &l.view.ports[p.id]
	m := l.metaAt(f.off)
	if m == nil {
		m = l.dissect(p, b)
	}
	f.hash, f.l3, f.flags = m.Hash, m.L3, m.Flags
	vlan := uint16(0)
	if m.Flags&overlay.FlagVLAN != 0 && !vp.keepTags {
		vlan = m.VLAN & 0xfff
		f.off += overlay.VLANLen
		f.len -= overlay.VLANLen
		overlay.PopVLAN(b)
		if f.l3 != 0 {
			f.l3 -= overlay.VLANLen
		}
		b = l.bytes(f)
	}
	if vp.vlans[vlan] == 0 {
		return drop.VLANUnknown
	}
	vni := VNIIndex(vp.vlans[vlan] - 1)
	if len(l.classes) > 1 {
		f.kind = uint8(l.classify(b, m, f.l3, vni)) << kindClass
	}
	eth := overlay.Ethernet(b)
	src, dst := eth.SrcKey(uint16(vni)), eth.DstKey(uint16(vni))
	if !src.Unicast() {
		return drop.SourceMulticast
	}
	if dst.LinkLocal() { // the XDP program passes what is the kernel's
		return drop.LinkLocal
	}
	if overlay.FinishChecksum(b, f.l3, m) {
		p.stats.Finished++
	}
	l.learn(src, overlay.DestLocal(uint16(p.id), vlan), now)
	if f.flags&overlay.FlagPorts == 0 {
		l.noteHost(f, vni, uint16(p.id), now)
	}
	to := overlay.DestNone
	if !dst.Group() {
		if !dst.Unicast() {
			return drop.DestinationZero
		}
		to = l.find(dst, now)
	}
	switch {
	case to == overlay.DestNone:
		return l.flood(f, vni, member{p.id, vlan}, m, now)
	case to.Remote():
		l.toFabric(f, vni, PeerID(to.Peer()), m, now)
		return drop.None
	case PortID(to.Port()) == p.id && to.VLAN() == vlan:
		return drop.SamePort
	}
	l.stats.VNIs[vni].Local.Add(uint32(f.len))
	return l.deliver(f, vni, member{PortID(to.Port()), to.VLAN()})
}

// deliver sends f, an untagged tenant's frame, out of an access port, or says why it
// is to be dropped. Whatever chose the port, it has to be a member of the frame's VNI.
func (l *leafWorker) deliver(f *frame, vni VNIIndex, to member) drop.Reason {
	vp := &l.view.ports[to.port]
	switch {
	case vp.vlans[to.vlan] != uint16(vni)+1:
		return drop.NotMember
	case !vp.up:
		return drop.PortDown
	case f.len > vp.maxFrame:
		return drop.TooBig
	case !vp.keepTags && overlay.IsVLAN(overlay.Ethernet(l.bytes(f)).EtherType()):
		return drop.InnerVLAN
	}
	if to.vlan != 0 {
		overlay.PushVLAN(l.area, int(f.off), to.vlan)
		f.off -= overlay.VLANLen
		f.len += overlay.VLANLen
		if f.l3 != 0 {
			f.l3 += overlay.VLANLen
		}
	}
	return l.enqueue(f, to.port)
}
