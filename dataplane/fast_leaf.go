package dataplane

import (
	"sync/atomic"

	"github.com/loomfabric/loom/bpf"
	"github.com/loomfabric/loom/congestion"
	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/leaf"
	"github.com/loomfabric/loom/overlay"
)

// newFDB makes the table of addresses of a leaf's worker: with a fast path, where the XDP
// programs read it.
func newFDB(w *worker) *overlay.FDB {
	if t := w.shared.fast; t != nil {
		return overlay.NewFDBIn(t.FDB(w.id), w.cfg.FDBSize, w.cfg.FDBAge, MaxVNIs, w.cfg.Room)
	}
	return overlay.NewFDB(w.cfg.FDBSize, w.cfg.FDBAge, MaxVNIs, w.cfg.Room)
}

// notice learns again the sources that only XDP has seen of late. It has compared the place,
// so they live where the table has them.
func (l *leafWorker) notice(now mono.Time) {
	if l.shared.fast == nil {
		return
	}
	l.shared.fast.Touched(l.id, func(word uint64) {
		key := overlay.FDBKey(word)
		if at := l.fdb.LookupKey(key, now); at != overlay.DestNone {
			l.learn(key, at, now)
		}
	})
}

// fastLeaf writes what a leaf's view says of peers and networks as the XDP programs read it.
// What there is no room for stays user space's.
func (v *view) fastLeaf(to *bpf.FastLeaf, vlans []bpf.FastVLANs) {
	*to = bpf.FastLeaf{}
	to.Tags = uint64(v.layout.tags())
	for i := range v.tables.Peers {
		if vtep := v.tables.Peers[i].VTEP; vtep.Is4() {
			to.AddVTEP(vtep, uint16(i), v.from[i])
		}
	}
	for i := range v.tables.VNIs {
		if vni := v.tables.VNIs[i].VNI; vni != 0 {
			to.AddNetwork(uint32(vni), uint16(i), v.senders[i])
		}
	}
	for i := range vlans {
		if i < len(v.ports) {
			copy(vlans[i].Network[:], v.ports[i].vlans)
		} else {
			vlans[i] = bpf.FastVLANs{}
		}
	}
}

// fastEars takes what XDP hears of peers into the tables of a leaf: CE and feedback (CONGA
// §3.3, steps 3 and 5). Its owner is fastPath.pulse.
type fastEars struct {
	tables *bpf.Fast
	leaf   *leaf.Shared
	had    []bpf.FastHeard // by CPU and peer: what was there at the last look
	at     int             // the next of them
}

// earsAtOnce is how many CPUs' words of a peer are looked at in one go: with many of both, a
// look does not take longer than the time between two.
const earsAtOnce = 1024

func newFastEars(tables *bpf.Fast, shared *leaf.Shared) *fastEars {
	shared.Paths.CountBeside(tables.Came, tables.SentTo)
	return &fastEars{tables: tables, leaf: shared, had: make([]bpf.FastHeard, tables.CPUs()*MaxPeers)}
}

// listen takes in what is new from peers below a number. It reports whether anything is.
func (e *fastEars) listen(now mono.Time, peers int) (any bool) {
	n := e.tables.CPUs() * peers
	for range min(n, earsAtOnce) {
		e.at = (e.at + 1) % n
		cpu, peer := e.at/peers, e.at%peers
		is, had := e.tables.Heard(cpu, peer), &e.had[cpu*MaxPeers+peer]
		if frames := atomic.LoadUint64(&is.Frames); frames != had.Frames {
			had.Frames, any = frames, true
			e.hear(is, had, uint16(peer), now)
		}
	}
	return any
}

// hear takes in what is new from a peer.
func (e *fastEars) hear(is, had *bpf.FastHeard, peer uint16, now mono.Time) {
	for tag := range uint8(congestion.MaxTags) {
		if w := atomic.LoadUint32(&is.Ce[tag]); w != had.Ce[tag] {
			e.leaf.From.Record(peer, tag, uint8(w&bpf.FastMetric), now)
			had.Ce[tag] = w
		}
		if w := atomic.LoadUint32(&is.Fed[tag]); w != had.Fed[tag] {
			e.leaf.To.Update(peer, tag, uint8(w&bpf.FastMetric), now)
			had.Fed[tag] = w
		}
	}
}

// countLeaf adds what the programs of a leaf's ports have counted. Lost frames have been
// taken away before.
func (f *fastPath) countLeaf(v *view, s *WorkerStats) {
	for in := range s.Ports {
		for out := range s.Ports {
			frames, came, left := f.tables.Passed(in, out)
			s.Ports[in].Received.Frames += frames
			s.Ports[in].Received.Bytes += came
			s.Ports[out].Sent.Frames += frames
			s.Ports[out].Sent.Bytes += left
		}
	}
	s.VNIs = make([]VNIStats, len(v.tables.VNIs))
	for i := range s.VNIs {
		s.VNIs[i].Decapsulated.Frames, s.VNIs[i].Decapsulated.Bytes = f.tables.Entered(i)
	}
	s.PeerReceived = make([]Traffic, len(v.tables.Peers))
	for peer := range s.PeerReceived {
		for cpu := range f.tables.CPUs() {
			h := f.tables.Heard(cpu, peer)
			s.PeerReceived[peer].Frames += atomic.LoadUint64(&h.Frames)
			s.PeerReceived[peer].Bytes += atomic.LoadUint64(&h.Bytes)
			s.Exchange.Arrived += atomic.LoadUint64(&h.Capable)
			s.Exchange.CongestedArrived += atomic.LoadUint64(&h.Congested)
			s.Exchange.FeedbackReceived += atomic.LoadUint64(&h.Feedback)
		}
	}
	f.countAccess(v, s)
}
