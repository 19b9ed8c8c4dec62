package dataplane

import (
	"github.com/loomfabric/loom/dataplane/xsk"
	"github.com/loomfabric/loom/internal/drop"
	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/leaf"
	"github.com/loomfabric/loom/overlay"
)

// uplinkInput takes a burst from the fabric: validate, decapsulate, learn, and
// deliver to access ports only (split horizon). Frames that a scheme may have to hold
// go through the brain together, and with them all that come behind one of these.
func (l *leafWorker) uplinkInput(p *port, descs []xsk.Desc, now mono.Time) {
	for i := range descs {
		f := frame{off: uint32(descs[i].Addr), len: uint16(descs[i].Len), in: p.id}
		if r := l.fromFabric(p, &f, now); r != drop.None {
			l.discard(&f, r)
		}
	}
	if l.n > 0 {
		n := l.n
		l.n = 0
		l.act(l.brain.Arrive(now, l.arrivals[:n], l.numbers[:n], l.from[:n]), now)
	}
}

// fromFabric forwards a frame from the fabric or consumes it, or says why it is to be
// dropped.
func (l *leafWorker) fromFabric(p *port, f *frame, now mono.Time) drop.Reason {
	d := &l.decap
	b := l.bytes(f)
	m := (*overlay.Meta)(nil)
	if len(b) >= overlay.EthernetLen {
		m = l.metaAt(f.off)
	}
	peer, kind, reason := l.admit(p, b, now)
	switch {
	case reason == drop.BadEtherType:
		return l.acceptLink(p, f, now) // which says so of what is not a neighbour's either
	case reason != drop.None:
		return reason
	}
	if kind == leaf.Greeting {
		return l.acceptHello(f, peer, now)
	}
	vni, ok := l.view.vniNumber.get(d.VNI, d.VNI.Hash())
	if !ok && (kind != leaf.Message || d.VNI != 0) {
		return drop.VNIUnknown
	}
	if ok && !l.view.mayEnter(vni, peer) {
		return drop.VTEPForeign
	}
	outer := uint32(f.len)
	f.off += uint32(d.Inner)
	f.len = uint16(d.End - d.Inner)
	b = l.bytes(f)
	if m == nil || int(m.Inner) != d.Inner { // its offsets count if they agree with the decapsulation's
		m = l.dissect(p, b)
	}
	if kind == leaf.Message {
		class := -1 // about no flow: it is for the scheme as such
		if ok {
			class = l.classify(b, m, m.L3, VNIIndex(vni))
		}
		return l.acceptMessage(f, m.Hash, class, peer, now)
	}
	l.stats.PeerReceived[peer].Add(outer)
	return l.fromTunnel(p, f, m, VNIIndex(vni), peer, kind, now)
}

// admit decapsulates b into l.decap and decides whether the fabric may send
// it here at all. What a known peer's header says of congestion is noted even
// if the frame is not wanted.
func (l *leafWorker) admit(p *port, b []byte, now mono.Time) (PeerID, leaf.Kind, drop.Reason) {
	v, d := l.view, &l.decap
	if r := overlay.Decap(b, l.cfg.VXLANPort, d); r != drop.None {
		return 0, 0, r
	}
	switch {
	case d.Dst != v.vtep:
		return 0, 0, drop.NotLocalVTEP
	case d.Src == v.vtep:
		return 0, 0, drop.VTEPLooped
	}
	peer, ok := v.vtepNumber.get(d.Src, d.Src.Hash())
	switch {
	case !ok:
		return 0, 0, drop.VTEPUnknown
	case v.from[peer]>>p.uplink&1 == 0 && !l.passed.leaf(d.Src, p, now):
		return 0, 0, drop.ReversePath
	case overlay.Ethernet(b).DstKey(0) != p.mac:
		return 0, 0, drop.NotOurMAC
	}
	if l.cfg.Keys != nil && d.Fabric.Opcode.Control() {
		if r := l.cfg.Keys.Unseal(b, d); r != drop.None {
			return 0, 0, r
		}
	}
	kind := l.brain.Accept(now, peer, &d.Fabric)
	switch kind {
	case leaf.Unknown:
		return 0, 0, drop.BadOpcode
	case leaf.Forged:
		return 0, 0, drop.BadMarks
	}
	return PeerID(peer), kind, drop.None
}

// fromTunnel forwards a tenant's frame that is out of its tunnel: it learns where it
// came from, and finds out where it goes.
func (l *leafWorker) fromTunnel(p *port, f *frame, m *overlay.Meta, vni VNIIndex, peer PeerID, kind leaf.Kind, now mono.Time) drop.Reason {
	b, d := l.bytes(f), &l.decap
	f.hash, f.l3, f.flags = m.Hash, m.L3, m.Flags
	marked, ok := overlay.DecapECN(b, f.l3, f.flags, d.TOS)
	if !ok {
		return drop.BadECN
	}
	if overlay.FinishChecksum(b, f.l3, m) { // of a kernel's VTEP behind a veth pair or a tap
		p.stats.Finished++
	}
	eth := overlay.Ethernet(b)
	src, dst := eth.SrcKey(uint16(vni)), eth.DstKey(uint16(vni))
	if !src.Unicast() {
		return drop.SourceMulticast
	}
	if dst.LinkLocal() {
		return drop.LinkLocal
	}
	l.learn(src, overlay.DestRemote(uint16(peer)), now)
	if f.flags&overlay.FlagPorts == 0 {
		l.noteHost(f, vni, MaxPorts+uint16(peer), now)
	}
	l.stats.VNIs[vni].Decapsulated.Add(uint32(f.len))
	to := overlay.DestNone
	if !dst.Group() {
		if !dst.Unicast() {
			return drop.DestinationZero
		}
		to = l.find(dst, now)
	}
	out := member{port: NoPort}
	if to != overlay.DestNone {
		if to.Remote() {
			return drop.SplitHorizon
		}
		out = member{PortID(to.Port()), to.VLAN()}
	}
	if kind == leaf.Plain && l.n == 0 {
		return l.release(f, vni, out, now)
	}
	l.park(p, f, vni, peer, out, marked)
	if kind == leaf.Marked && l.brain.Exact(&d.Fabric) {
		a := &l.arrivals[l.n-1]
		a.TCPFlags = overlay.ExactKey(b, f.l3, m, &a.Key)
	}
	return drop.None
}

// park puts a frame into the vector that the brain decides about. There is always
// room: it is as long as a burst.
func (l *leafWorker) park(p *port, f *frame, vni VNIIndex, peer PeerID, to member, marked bool) {
	number := f.off >> l.shift
	x := &l.parked[number] // field by field, as in fifo.push
	x.off, x.len, x.in, x.hash = f.off, f.len, f.in, f.hash
	x.flags, x.l3, x.kind = f.flags, f.l3, f.kind
	x.to, x.vni, x.peer = to, vni, peer
	port := to.port
	if port == NoPort {
		port = PortID(l.cfg.Room)
	}
	n, d := l.n, &l.decap
	a := &l.arrivals[n]
	a.Hash, a.Len, a.Leaf, a.Port = f.hash, uint32(f.len), uint16(peer), uint16(port)
	a.CE = marked
	a.Fabric = d.Fabric // by itself: two at a time are copied twice
	l.numbers[n], l.from[n] = number, p.uplink
	l.n = n + 1
}

// release sends a tenant's frame on that need not wait, or need no longer, or says
// why it is to be dropped.
func (l *leafWorker) release(f *frame, vni VNIIndex, to member, now mono.Time) drop.Reason {
	if to.port == NoPort {
		return l.floodLocal(f, vni, now)
	}
	return l.deliver(f, vni, to)
}
