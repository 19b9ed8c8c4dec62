package dataplane

import (
	"github.com/loomfabric/loom/internal/drop"
	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/leaf"
	"github.com/loomfabric/loom/overlay"
)

const (
	// controlAt is where in a UMEM frame a packet of the fabric's own begins: where a
	// received one does.
	controlAt = 256
	// emptyEtherType is IEEE's for local experiments: it stands in the inner frame of
	// messages about no flow, and no host is meant to see it.
	emptyEtherType = 0x88b5
)

// What of a frame goes into a message behind its IP header, or behind its MAC
// addresses: as much as overlay.Dissect looks at. RoCEv2's UDP header and base
// transport header are the longest.
const (
	messageL4 = 20
	messageL2 = overlay.EthernetLen + 2*overlay.VLANLen
)

// sendMessage sends a packet of the fabric's own: the fabric's header, and the
// headers of the frame that caused it, by which its flow is known at the other end, or
// an empty frame.
func (l *leafWorker) sendMessage(o *leaf.Outgoing[uint32]) {
	t := &l.view.tunnels[int(o.Leaf)*MaxPaths+o.Path]
	missed := l.brain.Unsent()
	if o.Fabric.Opcode == overlay.OpHello {
		missed = &leaf.Unsent{} // nobody waits for it, and the next one is due soon
	}
	if !t.resolved { // all paths of a peer have a MAC address, or none does
		missed.NoPath++
		return
	}
	a, ok := l.pool.Get()
	if !ok {
		missed.NoFrame++
		return
	}
	l.made++
	overhead := overlay.Overhead
	if o.Fabric.Shim {
		overhead = overlay.MaxOverhead
	}
	c := frame{
		off: uint32(a) + controlAt, in: t.port, l3: overlay.EthernetLen, flags: overlay.FlagIPv4,
		kind: kindControl | kindCapable, hash: o.Hash,
	}
	vni, inner := overlay.VNI(0), overlay.EthernetLen
	if o.Cause != overlay.NoCause {
		x := &l.parked[o.Item]
		b := l.bytes(&x.frame)
		b = b[:headersLen(b, &x.frame)]
		vni, inner = l.view.tables.VNIs[x.vni].VNI, len(b)
		copy(l.area[c.off+uint32(overhead):], b)
	} else {
		b := l.area[c.off+uint32(overhead):][:inner]
		clear(b)
		overlay.Ethernet(b).SetEtherType(emptyEtherType)
	}
	c.len = uint16(overhead + inner)
	t.header.Encap(l.bytes(&c), inner, vni, o.Hash, overlay.DSCPControl, &o.Fabric)
	l.brain.Account(o.Fabric.Opcode, uint32(c.len))
	l.hopSent[t.hop].Add(uint32(c.len))
	if r := l.enqueue(&c, t.port); r != drop.None {
		l.discard(&c, r)
	}
}

// headersLen returns how many bytes of f, which are b, identify its flow.
func headersLen(b []byte, f *frame) int {
	n := messageL2
	switch {
	case f.flags&overlay.FlagIPv4 != 0:
		n = int(f.l3) + overlay.IPv4(b[f.l3:]).HeaderLen() + messageL4
	case f.flags&overlay.FlagIPv6 != 0:
		n = int(f.l3) + overlay.IPv6Len + messageL4
	}
	return min(n, len(b))
}

// message is a message as workers pass it on to each other: it carries the headers of
// a packet that this leaf sent, but receive-side scaling has brought it to any worker.
type message struct {
	overlay.Message
	at    mono.Time // when it came
	class int
}

// acceptMessage ends a message of another leaf: the scheme of the class that it is
// about handles it, in every worker. It returns drop.Control if that scheme does not
// expect it.
func (l *leafWorker) acceptMessage(f *frame, hash uint32, class int, peer PeerID, now mono.Time) drop.Reason {
	m := message{at: now, class: class, Message: overlay.Message{
		Leaf: uint16(peer), Link: overlay.AnyLink, Cause: overlay.NoCause, Hash: hash, Fabric: l.decap.Fabric,
	}}
	if !l.brain.Handle(now, class, &m.Message, true) {
		return drop.Control
	}
	if l.messages != nil {
		l.messages.send(l.id, &m)
	}
	l.consume(f)
	return drop.None
}

// receiveMessages takes in the messages that came to other workers.
func (l *leafWorker) receiveMessages() {
	for from := range l.messages.workers {
		r := l.messages.between(from, l.id)
		for m := r.front(); m != nil; m = r.front() {
			if m.class < len(l.classes) {
				l.brain.Handle(m.at, m.class, &m.Message, false)
			}
			r.pop()
		}
	}
}

// consume ends the life of a packet of the fabric's own that was for this node.
func (l *leafWorker) consume(f *frame) {
	l.consumed++
	l.pool.Put(uint64(f.off) &^ l.frameMask)
}
