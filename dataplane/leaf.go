package dataplane

import (
	"unsafe"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/dataplane/xsk"
	"github.com/loomfabric/loom/internal/drop"
	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/overlay"
)

// fabricFrame is a frame that waits for its uplink to be chosen.
type fabricFrame struct {
	frame
	peer PeerID
	vni  VNIIndex
}

// metaOf returns what the XDP program said of the frame at off, or dissects
// the frame when it said nothing. The magic is wiped, because the next frame
// in this memory may come without metadata.
func (w *worker) metaOf(p *port, off uint32, b []byte) *overlay.Meta {
	if uint64(off)&w.frameMask >= overlay.MetaLen {
		m := (*overlay.Meta)(unsafe.Pointer(&w.area[off-overlay.MetaLen]))
		if m.Magic == overlay.MetaMagic {
			m.Magic = 0
			return m
		}
	}
	p.stats.MetaMissing++
	overlay.Dissect(b, w.seed, &w.meta)
	return &w.meta
}

// accessInput takes a burst from a host: which VNI, where to, and for what
// goes into the fabric, which uplink and the tunnel header.
func (w *worker) accessInput(p *port, descs []xsk.Desc, now mono.Time) {
	v := w.view
	vp := &v.ports[p.id]
	for i := range descs {
		f := frame{off: uint32(descs[i].Addr), len: uint16(descs[i].Len), in: p.id}
		b := w.bytes(&f)
		if len(b) < overlay.EthernetLen {
			w.discard(&f, drop.Truncated)
			continue
		}
		m := w.metaOf(p, f.off, b)
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
			b = w.bytes(&f)
		}
		if vp.vlans[vlan] == 0 {
			w.discard(&f, drop.VLANUnknown)
			continue
		}
		vni := VNIIndex(vp.vlans[vlan] - 1)
		if len(w.classes) > 1 {
			f.kind = uint8(w.classify(b, m, f.l3, vni)) << kindClass
		}
		eth := overlay.Ethernet(b)
		src, dst := eth.SrcKey(uint16(vni)), eth.DstKey(uint16(vni))
		if !src.Unicast() {
			w.discard(&f, drop.SourceMulticast)
			continue
		}
		w.learn(src, overlay.DestLocal(uint16(p.id), vlan), now)
		to := overlay.DestNone
		if !dst.Group() {
			to = w.find(dst, now)
		}
		switch {
		case to == overlay.DestNone:
			w.flood(&f, vni, member{p.id, vlan}, now)
		case to.Remote():
			w.toFabric(&f, vni, PeerID(to.Peer()), now)
		case PortID(to.Port()) == p.id && to.VLAN() == vlan:
			w.discard(&f, drop.SamePort)
		default:
			w.stats.VNIs[vni].Local.Add(uint32(f.len))
			w.deliver(&f, member{PortID(to.Port()), to.VLAN()})
		}
	}
	for _, c := range w.classes {
		if c.n > 0 {
			w.encap(c, now)
		}
	}
}

// encap asks the policy of a class for the uplinks of the frames that wait in
// it, and sends them into their tunnels.
func (w *worker) encap(c *class, now mono.Time) {
	n := c.n
	c.n = 0
	w.shown.Paths = w.view.paths
	c.policy.Choose(now, &w.shown, c.choice[:n])
	for i := range c.frames[:n] {
		f := &c.frames[i]
		if w.view.paths[f.peer].N == 0 {
			w.discard(&f.frame, drop.NoRoute)
			continue
		}
		marks := (*balance.Marks)(nil)
		if c.signal != nil {
			marks = &c.choice[i].Marks
		}
		w.send(f, int(c.choice[i].Path), marks, now)
	}
}

// send puts a tenant's frame into the tunnel of a path to its peer, with the
// fabric's fields if the peer understands them, and among them the marks of a
// scheme that signals; nil: it does not. now is the time that the path was chosen
// at, since waiting in the uplink's queue is part of the path's delay.
func (w *worker) send(f *fabricFrame, path int, marks *balance.Marks, now mono.Time) {
	v := w.view
	t := &v.tunnels[int(f.peer)*MaxPaths+path]
	overhead := uint16(overlay.Overhead)
	if marks != nil && marks.Shim {
		overhead = overlay.MaxOverhead
	}
	if f.len+overhead > t.maxFrame {
		w.discard(&f.frame, drop.TooBig)
		return
	}
	tos := overlay.EncapTOS(overlay.FrameTOS(w.bytes(&f.frame), f.l3, f.flags))
	inner := f.len
	fields := &w.fields
	if w.exchange.Depart(uint16(f.peer), t.uplink, overlay.MakePathID(t.uplink, uint8(f.hash)), now, fields) {
		f.kind = kindCapable
		if marks != nil {
			marks.Stamp(now, t.uplink, fields)
		}
	} else {
		// The scheme may have found the peer capable an instant ago.
		fields, overhead = nil, overlay.Overhead
	}
	f.off -= uint32(overhead)
	f.len += overhead
	t.header.Encap(w.bytes(&f.frame), int(inner), v.tables.VNIs[f.vni].VNI, f.hash, tos, fields)
	f.l3, f.flags = overlay.EthernetLen, overlay.FlagIPv4
	w.stats.VNIs[f.vni].Encapsulated.Add(uint32(inner))
	w.stats.PeerSent[f.peer].Add(uint32(f.len))
	if !t.resolved {
		w.hold(&f.frame, t.hop, now)
		return
	}
	w.stats.HopSent[t.hop].Add(uint32(f.len))
	w.enqueue(&f.frame, t.port)
}

// uplinkInput takes a burst from the fabric: validate, decapsulate, learn, and
// deliver to access ports only (split horizon).
func (w *worker) uplinkInput(p *port, descs []xsk.Desc, now mono.Time) {
	if w.order.side.Cold() {
		w.touchOrder(descs)
	}
	for i := range descs {
		f := frame{off: uint32(descs[i].Addr), len: uint16(descs[i].Len), in: p.id}
		w.fromFabric(p, &f, now)
	}
}

func (w *worker) fromFabric(p *port, f *frame, now mono.Time) {
	d := &w.decap
	b := w.bytes(f)
	m := (*overlay.Meta)(nil)
	if len(b) >= overlay.EthernetLen {
		m = w.innerMetaOf(f.off)
	}
	peer, vni, reason := w.admit(b, now)
	if reason != drop.None && reason != drop.Control {
		w.discard(f, reason)
		return
	}
	if d.Fabric.Opcode == overlay.OpHello {
		w.noteGreeting(peer, &d.Fabric, now)
		w.consume(f)
		return
	}
	outer := uint32(f.len)
	f.off += uint32(d.Inner)
	f.len = uint16(d.End - d.Inner)
	b = w.bytes(f)
	if m == nil || int(m.Inner) != d.Inner {
		p.stats.MetaMissing++
		m = &w.meta
		overlay.Dissect(b, w.seed, m)
	}
	if reason == drop.Control {
		w.control(f, m, vni, peer, now)
		return
	}
	w.stats.PeerReceived[peer].Add(outer)
	w.fromTunnel(f, m, vni, peer, now)
}

// fromTunnel takes a tenant's frame out of the fabric: learn where it came from,
// and find out where it goes.
func (w *worker) fromTunnel(f *frame, m *overlay.Meta, vni VNIIndex, peer PeerID, now mono.Time) {
	b, d := w.bytes(f), &w.decap
	f.hash, f.l3, f.flags = m.Hash, m.L3, m.Flags
	if !overlay.DecapECN(b, f.l3, f.flags, d.TOS) {
		w.discard(f, drop.BadECN)
		return
	}
	eth := overlay.Ethernet(b)
	src, dst := eth.SrcKey(uint16(vni)), eth.DstKey(uint16(vni))
	if !src.Unicast() {
		w.discard(f, drop.SourceMulticast)
		return
	}
	w.learn(src, overlay.DestRemote(uint16(peer)), now)
	w.stats.VNIs[vni].Decapsulated.Add(uint32(f.len))
	to := overlay.DestNone
	if !dst.Group() {
		to = w.find(dst, now)
	}
	out := member{port: NoPort}
	switch {
	case to == overlay.DestNone:
	case to.Remote():
		w.discard(f, drop.SplitHorizon)
		return
	default:
		out = member{PortID(to.Port()), to.VLAN()}
	}
	if d.Fabric.Shim {
		w.arrive(f, vni, peer, out, now)
		return
	}
	w.release(f, vni, out)
}

// innerMetaOf is metaOf for frames from the fabric, where the XDP program's
// offsets count only if they agree with the decapsulation's; nil: none.
func (w *worker) innerMetaOf(off uint32) *overlay.Meta {
	if uint64(off)&w.frameMask < overlay.MetaLen {
		return nil
	}
	m := (*overlay.Meta)(unsafe.Pointer(&w.area[off-overlay.MetaLen]))
	if m.Magic != overlay.MetaMagic {
		return nil
	}
	m.Magic = 0
	return m
}

// admit decapsulates b into w.decap and decides whether the fabric may send
// it here at all. What a known peer's header says of congestion is noted even
// if the frame is not wanted. The reason is drop.Control for what never reaches
// a host; a HELLO has no VNI.
func (w *worker) admit(b []byte, now mono.Time) (PeerID, VNIIndex, drop.Reason) {
	v, d := w.view, &w.decap
	if r := overlay.Decap(b, w.cfg.VXLANPort, d); r != drop.None {
		return 0, 0, r
	}
	switch {
	case d.Dst != v.vtep:
		return 0, 0, drop.NotLocalVTEP
	case d.Src == v.vtep:
		return 0, 0, drop.VTEPLooped
	}
	peer, ok := v.vtepNumber.get(d.Src)
	if !ok {
		return 0, 0, drop.VTEPUnknown
	}
	w.exchange.Arrive(peer, now, &d.Fabric)
	op := d.Fabric.Opcode
	switch {
	case op == overlay.OpHello:
		return PeerID(peer), 0, drop.Control
	case op > overlay.OpHello:
		return 0, 0, drop.BadOpcode
	}
	vni, ok := v.vniNumber.get(uint32(d.VNI))
	if !ok {
		return 0, 0, drop.VNIUnknown
	}
	if op.Control() {
		return PeerID(peer), VNIIndex(vni), drop.Control
	}
	return PeerID(peer), VNIIndex(vni), drop.None
}

// deliver sends f, an untagged tenant's frame, out of an access port.
func (w *worker) deliver(f *frame, to member) {
	vp := &w.view.ports[to.port]
	if !vp.up {
		w.discard(f, drop.PortDown)
		return
	}
	if f.len > vp.maxFrame {
		w.discard(f, drop.TooBig)
		return
	}
	if !vp.keepTags && overlay.IsVLAN(overlay.Ethernet(w.bytes(f)).EtherType()) {
		w.discard(f, drop.InnerVLAN)
		return
	}
	if to.vlan != 0 {
		overlay.PushVLAN(w.area, int(f.off), to.vlan)
		f.off -= overlay.VLANLen
		f.len += overlay.VLANLen
		if f.l3 != 0 {
			f.l3 += overlay.VLANLen
		}
	}
	w.enqueue(f, to.port)
}
