package dataplane

import (
	"time"

	"github.com/loomfabric/loom/internal/drop"
	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/leaf"
	"github.com/loomfabric/loom/overlay"
)

// controlAt is where in a UMEM frame a packet of the fabric's own begins: where a
// received one does.
const controlAt = 256

// What of a frame goes into a message behind its IP header, or behind its MAC
// addresses: as much as overlay.Dissect looks at. RoCEv2's UDP header and base
// transport header are the longest.
const (
	messageL4 = 20
	messageL2 = overlay.EthernetLen + 2*overlay.VLANLen
)

// answerBudget is what each worker answers a peer at most. A source is due one answer an
// epoch, and short flows have the most epochs, at least one each: these are the answers
// to 10 Gb/s of nothing but flows of 5 kB, more than a worker forwards of one peer. A
// burst is two answers to each frame of a full ring.
var answerBudget = leaf.Budget{Interval: 4 * time.Microsecond, Burst: 4096}

// sendMessage sends a packet of the fabric's own: the fabric's header, and the
// headers of the frame that caused it, by which its flow is known at the other end, or
// an empty frame.
func (l *leafWorker) sendMessage(o *leaf.Outgoing[uint32], now mono.Time) {
	if o.Link != overlay.AnyLink {
		if int(o.Link) >= len(l.uplinks) || l.uplinks[o.Link] == NoPort {
			l.brain.Unsent().NoPath++
		} else if l.sendLink(l.uplinks[o.Link], &o.Fabric, l.brain.Unsent(), now) {
			l.brain.Account(o.Fabric.Opcode, overlay.LinkMessageLen)
		}
		return
	}
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
	if l.taps != nil {
		l.taps.made(uint32(a))
	}
	overhead := t.header.Headers()
	if o.Fabric.Shim {
		overhead += overlay.ShimLen
	}
	c := frame{
		off: uint32(a) + controlAt, in: t.port, l3: overlay.EthernetLen, flags: t.header.Family(),
		kind: kindControl | kindCapable, hash: o.Hash,
	}
	vni, inner := overlay.VNI(0), overlay.EthernetLen
	if o.Fabric.Opcode == overlay.OpHello {
		inner = l.writeHello(l.area[c.off+uint32(overhead):], t, &o.Hello)
	} else if o.Cause != overlay.NoCause {
		x := &l.parked[o.Item]
		b := l.bytes(&x.frame)
		b = b[:headersLen(b, &x.frame)]
		vni, inner = l.view.tables.VNIs[x.vni].VNI, len(b)
		copy(l.area[c.off+uint32(overhead):], b)
	} else {
		b := l.area[c.off+uint32(overhead):][:inner]
		clear(b)
		overlay.Ethernet(b).SetEtherType(overlay.EtherTypeLocal)
	}
	if l.cfg.Keys != nil {
		inner += overlay.SealLen
	}
	c.len = uint16(overhead + inner)
	b := l.bytes(&c)
	t.header.Encap(b, inner, vni, o.Hash, overlay.DSCPControl, &o.Fabric)
	if l.cfg.Keys != nil {
		l.cfg.Keys.Seal(b)
	}
	l.brain.Account(o.Fabric.Opcode, uint32(c.len))
	l.hopSent[t.hop].Add(uint32(c.len))
	if r := l.enqueue(&c, t.port); r != drop.None {
		l.discard(&c, r)
	}
}

// writeHello writes a HELLO's inner frame to b, which is as long as the room in a UMEM
// frame, and returns its length. A padded one is as long as the longest frame that a host
// may send by the path.
func (l *leafWorker) writeHello(b []byte, t *tunnel, h *overlay.Hello) int {
	n := overlay.EthernetLen + overlay.HelloLen
	if h.Large {
		long := min(int(l.view.longest), int(t.maxFrame)) - t.header.Headers() - overlay.ShimLen
		if l.cfg.Keys != nil {
			long -= overlay.SealLen
		}
		n = max(n, long)
	}
	b = b[:n]
	clear(b)
	overlay.Ethernet(b).SetEtherType(overlay.EtherTypeLocal)
	h.Encode(b[overlay.EthernetLen:])
	return n
}

// acceptHello ends a HELLO.
func (l *leafWorker) acceptHello(f *frame, peer PeerID, now mono.Time) drop.Reason {
	d := &l.decap
	if r := l.hello.Decode(l.bytes(f)[d.Inner:d.End]); r != drop.None {
		return r
	}
	l.brain.Hello(now, uint16(peer), &d.Fabric, &l.hello)
	if p := &l.ports[f.in]; l.shared.leaf.Capable.Capable(uint16(peer), now) { // it has proved itself
		l.shared.came.note(peer, d.Fabric.Path, p.uplink, now)
	}
	l.consume(f)
	return drop.None
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

// sendLink sends a message to the node at the other end of a port, or counts why it
// cannot. The message goes to that node's MAC address and to no group: bridges keep
// frames for the link's own groups to themselves, they flood all others over every
// link, and interfaces need not let a group in that they have not joined. Frames wait
// for an address that is not known, so there is little that a neighbour could be told
// about such a link.
func (w *worker) sendLink(id PortID, f *overlay.Fabric, unsent *leaf.Unsent, now mono.Time) bool {
	p := &w.view.ports[id]
	if !p.up || !p.linked {
		unsent.NoPath++
		return false
	}
	hop := &w.view.hops[p.hop]
	if !hop.resolved {
		unsent.NoPath++
		w.resolve(p.hop, now)
		return false
	}
	a, ok := w.pool.Get()
	if !ok {
		unsent.NoFrame++
		return false
	}
	w.made++
	if w.taps != nil {
		w.taps.made(uint32(a))
	}
	c := frame{off: uint32(a) + controlAt, len: overlay.LinkMessageLen, in: id, kind: kindControl}
	b := w.bytes(&c)
	clear(b)
	overlay.EncodeLink(b, hop.src, hop.dst, f)
	w.hopSent[p.hop].Add(uint32(c.len))
	if r := w.enqueue(&c, id); r != drop.None {
		w.discard(&c, r)
	}
	return true
}

// decodeLink reads a message of the node at the other end of p into f, or says why b is
// none.
func (w *worker) decodeLink(p *port, b []byte, f *overlay.Fabric) drop.Reason {
	r := overlay.DecodeLink(b, f)
	if r == drop.None && overlay.Ethernet(b).Dst() != w.view.ports[p.id].mac {
		return drop.Control // for another one on a link of many
	}
	return r
}

// message is a message as workers pass it on to each other: receive-side scaling has
// brought it to any worker. One of a leaf carries the headers of a packet that this
// leaf sent, and its flow is known to one worker. One of a neighbour is for all.
type message struct {
	overlay.Message
	at    mono.Time // when it came
	class int       // below 0: all
	port  PortID    // of a neighbour's: that it came by
}

// acceptMessage ends a message of another leaf: the scheme of the class that it is
// about handles it, in every worker. It returns drop.Control if that scheme does not
// expect it.
func (l *leafWorker) acceptMessage(f *frame, hash uint32, class int, peer PeerID, now mono.Time) drop.Reason {
	l.note = message{at: now, class: class, Message: overlay.Message{
		Leaf: uint16(peer), Link: overlay.AnyLink, Cause: overlay.NoCause, Hash: hash, Fabric: l.decap.Fabric,
	}}
	return l.accept(f)
}

// acceptLink does the same to a message of the node at the other end of an uplink, for
// the schemes of all classes.
func (l *leafWorker) acceptLink(p *port, f *frame, now mono.Time) drop.Reason {
	l.note = message{at: now, class: -1, Message: overlay.Message{Link: p.uplink, Cause: overlay.NoCause}}
	if r := l.decodeLink(p, l.bytes(f), &l.note.Fabric); r != drop.None {
		return r
	}
	return l.accept(f)
}

// accept ends the message in l.note, which came in f.
func (l *leafWorker) accept(f *frame) drop.Reason {
	m := &l.note
	if !l.brain.Handle(m.at, m.class, &m.Message, true) {
		return drop.Control
	}
	if l.messages != nil {
		l.messages.send(l.id, m)
	}
	l.consume(f)
	return drop.None
}

// receiveMessages takes in the messages that came to other workers.
func (l *leafWorker) receiveMessages() {
	l.messages.each(l.id, func(m *message) {
		if m.class < len(l.classes) {
			l.brain.Handle(m.at, m.class, &m.Message, false)
		}
	})
}

// consume ends the life of a packet of the fabric's own that was for this node.
func (w *worker) consume(f *frame) {
	w.consumed++
	if w.taps != nil {
		*w.taps.note(f.off) = tapNote{}
	}
	w.pool.Put(uint64(f.off) &^ w.frameMask)
}
