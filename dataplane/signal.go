package dataplane

import (
	"math/bits"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/internal/drop"
	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/overlay"
	"github.com/loomfabric/loom/reorder"
)

// answer tells the leaf that f came from something about f's flow: a packet of
// the fabric's own, with f's headers in it by which the flow is known there. It
// goes back by the uplink that f came in by, if that leads to the leaf, so that a
// path which loses packets is not the only one to bring answers about others.
func (w *worker) answer(m *reorder.Control, f *frame, vni VNIIndex, now mono.Time) {
	o := &w.order
	t := w.wayBack(PeerID(m.Leaf), f)
	if t == nil {
		o.stats.NoPath++
		return
	}
	if !w.exchange.Depart(m.Leaf, t.uplink, overlay.MakePathID(t.uplink, uint8(m.Hash)), now, &w.fields) {
		o.stats.Incapable++
		return
	}
	m.Mark(&w.fields)
	a, ok := w.pool.Get()
	if !ok {
		o.stats.NoFrame++
		return
	}
	w.stats.Made++
	overhead := overlay.Overhead
	if w.fields.Shim {
		overhead = overlay.MaxOverhead
	}
	inner := w.bytes(f)
	inner = inner[:headersLen(inner, f)]
	c := frame{
		off: uint32(a) + controlAt, len: uint16(overhead + len(inner)), in: t.port,
		l3: overlay.EthernetLen, flags: overlay.FlagIPv4, kind: kindControl | kindCapable, hash: m.Hash,
	}
	b := w.bytes(&c)
	copy(b[overhead:], inner)
	t.header.Encap(b, len(inner), w.view.tables.VNIs[vni].VNI, m.Hash, overlay.DSCPControl, &w.fields)
	o.side.Account(m.Opcode, uint32(c.len))
	w.stats.HopSent[t.hop].Add(uint32(c.len))
	w.enqueue(&c, t.port)
}

// What of a frame goes into an answer behind its IP header, or behind its MAC
// addresses: as much as overlay.Dissect looks at. RoCEv2's UDP header and base
// transport header are the longest.
const (
	answerL4 = 20
	answerL2 = overlay.EthernetLen + 2*overlay.VLANLen
)

// headersLen returns how many bytes of f, which are b, identify its flow.
func headersLen(b []byte, f *frame) int {
	n := answerL2
	switch {
	case f.flags&overlay.FlagIPv4 != 0:
		n = int(f.l3) + overlay.IPv4(b[f.l3:]).HeaderLen() + answerL4
	case f.flags&overlay.FlagIPv6 != 0:
		n = int(f.l3) + overlay.IPv6Len + answerL4
	}
	return min(n, len(b))
}

// wayBack returns a path to a peer for an answer to f; nil: there is none.
func (w *worker) wayBack(peer PeerID, f *frame) *tunnel {
	v := w.view
	if int(peer) >= len(v.paths) || v.paths[peer].N == 0 {
		return nil
	}
	paths := &v.paths[peer]
	path := int(uint64(f.hash) * uint64(paths.N) >> 32)
	if w.ports[f.in].kind == Uplink {
		if i := paths.Index[w.ports[f.in].uplink]; i >= 0 {
			path = int(i)
		}
	}
	if t := &v.tunnels[int(peer)*MaxPaths+path]; t.resolved {
		return t
	}
	return nil // all paths of a peer have a MAC address, or none does
}

// control ends a control packet of another leaf. The scheme of the class that it
// is about hears of it, and the other workers' do: it carries the headers of a
// packet that this leaf sent, but receive-side scaling has brought it to any
// worker.
func (w *worker) control(f *frame, m *overlay.Meta, vni VNIIndex, peer PeerID, now mono.Time) {
	s := signal{fields: w.decap.Fabric, at: now, hash: m.Hash, peer: peer, class: uint8(w.classify(w.bytes(f), m, m.L3, vni))}
	why, ok := w.heed(&s)
	switch {
	case !ok:
		w.discard(f, drop.Control)
		return
	case w.signals != nil:
		w.tellSignal(&s, why)
	default:
		w.classes[s.class].signal.Ignore(why)
	}
	w.stats.SignalsHeard++
	w.consume(f)
}

// tellSignal tells the other workers of a control packet. If it says nothing to
// this one they are asked, too: only one that says nothing to any of them was
// ignored.
func (w *worker) tellSignal(s *signal, why balance.Ignored) {
	s.poll = noPoll
	if why != balance.Heeded {
		s.poll = w.signals.ask(w.id, uint8(why))
	}
	lost := w.signals.tell(w.id, s)
	w.signals.answer(w.id, s.poll, uint8(balance.Heeded), lost) // it may have been for one of these: nobody can say
}

// signal is a control packet as workers tell each other of it.
type signal struct {
	fields overlay.Fabric
	at     mono.Time // when it came
	hash   uint32    // of the flow that it is about
	peer   PeerID
	class  uint8
	poll   poll // why it was ignored, if it was by the teller
}

// heed lets the scheme of a class know, and returns why that ignored it. It reports
// false if the scheme does not care.
func (w *worker) heed(s *signal) (why balance.Ignored, ok bool) {
	if int(s.class) >= len(w.classes) || w.classes[s.class].signal == nil {
		return balance.Heeded, false
	}
	return w.classes[s.class].signal.Overhear(s.at, uint16(s.peer), s.hash, &s.fields), true
}

// hearSignals takes in the control packets that came to other workers. One that
// all workers have ignored is counted by the last of them, under the reason of the
// one that got furthest with it.
func (w *worker) hearSignals() {
	for from := range w.signals.workers {
		r := w.signals.between(from, w.id)
		for s := r.front(); s != nil; s = r.front() {
			why, ok := w.heed(s)
			if ok {
				w.stats.SignalsTold++
			}
			all := w.signals.answer(from, s.poll, uint8(why), 1)
			if all != 0 && all&(1<<balance.Heeded) == 0 {
				w.classes[s.class].signal.Ignore(balance.Ignored(bits.Len16(all) - 1))
			}
			r.pop()
		}
	}
}
