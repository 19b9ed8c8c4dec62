package dataplane

import (
	"net/netip"
	"slices"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/internal/drop"
	"github.com/loomfabric/loom/internal/mono"
)

// Bounds on what a worker keeps for a recorder from one collection to the next.
const (
	recordFlows     = 4096 // flows under way; those that share an entry end each other
	recordDone      = 4096 // flows that have ended
	recordDecisions = 32
	recordDrops     = 64 // and of one reason an eighth of these
	recordSweep     = 1024
	// RecordBytes is how much of a dropped frame is kept.
	RecordBytes = 128
	// recordEvery is how many vectors go by from one recorded decision to the next.
	recordEvery = 256
	// RecordIdle is the pause, in nanoseconds, after which a flow is another one.
	RecordIdle = mono.Time(1e9)
)

// FlowRecord is a flow of a host of this leaf into the fabric.
type FlowRecord struct {
	Hash   uint32
	Class  uint8
	Peer   netip.Addr // VTEP
	First  mono.Time
	Last   mono.Time
	Frames uint64
	Bytes  uint64 // of tenants' frames
}

// DecisionRecord is one packet's path, and what its scheme saw.
type DecisionRecord struct {
	At       mono.Time
	Hash     uint32
	Class    uint8
	Peer     netip.Addr
	Scheme   string
	Uplink   uint8
	Uplinks  uint16           // that lead to the peer, a bit each
	Local    [MaxPaths]uint8  // metrics of this leaf's uplinks
	Remote   [MaxPaths]uint8  // that the peer fed back
	Queue    [MaxPaths]uint32 // bytes
	Starting bool             // the packet is the first of a flowlet
}

// DropRecord is the beginning of a dropped frame.
type DropRecord struct {
	At     mono.Time
	Port   PortID
	Reason drop.Reason
	Len    uint16
	Data   [RecordBytes]byte
}

// RecordPort is what a port has counted, all workers together.
type RecordPort struct {
	RxFrames, RxBytes, TxFrames, TxBytes, Dropped, Queue uint64
	Metric                                               uint8
}

// RecordBatch is what a recorder gets at a time. It is used again and again.
type RecordBatch struct {
	At        mono.Time
	Ports     []RecordPort // by PortID
	Drops     [drop.NumReasons]uint64
	Flows     []FlowRecord // that have ended
	Decisions []DecisionRecord
	Frames    []DropRecord
	Missed    uint64 // flows for which there was no room
}

// recorder is a worker's part of a flight recorder. Owned by the worker.
type recorder struct {
	flows [recordFlows]flowEntry
	sweep int // next flow to look at for whether it has ended
	skip  int // vectors until the next decision

	done      []flowEntry
	decisions []DecisionRecord
	drops     []DropRecord
	byReason  [drop.NumReasons]uint8 // of drops
	missed    uint64
}

// flowEntry is a flow under way; frames 0: none.
type flowEntry struct {
	hash          uint32
	peer          PeerID
	class         uint8
	first, last   mono.Time
	frames, bytes uint64
}

func newRecorder() *recorder {
	return &recorder{
		done: make([]flowEntry, 0, recordDone), decisions: make([]DecisionRecord, 0, recordDecisions), drops: make([]DropRecord, 0, recordDrops),
	}
}

// vector notes the packets of a class for which paths have been chosen.
func (r *recorder) vector(l *leafWorker, c *class, n int, now mono.Time) {
	index := uint8(slices.Index(l.classes, c))
	for i := range c.choice[:n] {
		p := &c.choice[i]
		e := &r.flows[p.Hash%recordFlows]
		if e.hash != p.Hash || e.frames == 0 || now-e.last > RecordIdle || e.class != index || e.peer != PeerID(p.Leaf) {
			r.end(e)
			*e = flowEntry{hash: p.Hash, peer: PeerID(p.Leaf), class: index, first: now}
		}
		e.last = now
		e.frames++
		e.bytes += uint64(p.Len)
	}
	if r.skip--; r.skip < 0 && n > 0 && len(r.decisions) < cap(r.decisions) {
		r.skip = recordEvery
		r.decide(l, c, index, now)
	}
}

// decide notes the decision about the first packet of a vector.
func (r *recorder) decide(l *leafWorker, c *class, index uint8, now mono.Time) {
	p := &c.choice[0]
	paths := &l.view.paths[p.Leaf]
	if paths.N == 0 {
		return
	}
	d := DecisionRecord{
		At: now, Hash: p.Hash, Class: index, Peer: l.view.tables.Peers[p.Leaf].VTEP, Scheme: c.Scheme.Name, Uplink: paths.Uplink[p.Path%MaxPaths],
	}
	for _, u := range paths.Uplink[:paths.N] {
		d.Uplinks |= 1 << u
	}
	l.Glance(now, &d.Local, &d.Queue)
	if v := l.brain.View(); v.Remote != nil {
		v.Remote.Metrics(p.Leaf, now, &d.Remote)
	}
	if _, ok := c.Policy.(balance.FlowletPolicy); ok {
		d.Starting = r.flows[p.Hash%recordFlows].frames == 1
	}
	r.decisions = append(r.decisions, d)
}

// end notes that a flow has ended.
func (r *recorder) end(e *flowEntry) {
	switch {
	case e.frames == 0:
	case len(r.done) == cap(r.done):
		r.missed++
	default:
		r.done = append(r.done, *e)
	}
	e.frames = 0
}

// dropped notes a frame that is dropped, if few were for that reason of late.
func (r *recorder) dropped(w *worker, f *frame, why drop.Reason) {
	if len(r.drops) == cap(r.drops) || r.byReason[why] == recordDrops/8 {
		return
	}
	r.byReason[why]++
	r.drops = append(r.drops, DropRecord{At: w.now, Port: f.in, Reason: why, Len: f.len})
	copy(r.drops[len(r.drops)-1].Data[:], w.bytes(f))
}

// collect moves what there is into b. all ends the flows under way, too, in the records.
func (r *recorder) collect(w *worker, b *RecordBatch, all bool) {
	steps := recordSweep
	if all {
		steps = recordFlows
	}
	for range steps {
		e := &r.flows[r.sweep]
		r.sweep = (r.sweep + 1) % recordFlows
		if e.frames > 0 && (all || w.now-e.last > RecordIdle) {
			r.end(e)
		}
	}
	for i := range r.done {
		e := &r.done[i]
		if int(e.peer) < len(w.view.tables.Peers) {
			b.Flows = append(b.Flows, FlowRecord{e.hash, e.class, w.view.tables.Peers[e.peer].VTEP, e.first, e.last, e.frames, e.bytes})
		}
	}
	b.Decisions, b.Frames, b.Missed = append(b.Decisions, r.decisions...), append(b.Frames, r.drops...), b.Missed+r.missed
	r.done, r.decisions, r.drops, r.missed, r.byReason = r.done[:0], r.decisions[:0], r.drops[:0], 0, [drop.NumReasons]uint8{}
}

// Record has the workers keep what a flight recorder collects.
func (n *Node) Record() {
	for _, w := range n.workers {
		r := newRecorder() // made here: it takes longer than a worker has
		w.call(func() { w.rec = r })
	}
}

// Collect fills b with what ports have counted, and with what the workers have kept since it
// was called last. With all, flows that are under way end in the records.
func (n *Node) Collect(b *RecordBatch, all bool) {
	l := n.layout.Load()
	b.At = now()
	b.Ports = append(b.Ports[:0], make([]RecordPort, len(l.ports))...)
	b.Flows, b.Decisions, b.Frames, b.Drops, b.Missed = b.Flows[:0], b.Decisions[:0], b.Frames[:0], [drop.NumReasons]uint64{}, 0
	for _, w := range n.workers {
		w.call(func() {
			for id := range min(len(w.ports), len(b.Ports)) {
				p, to := &w.ports[id], &b.Ports[id]
				to.RxFrames, to.RxBytes = to.RxFrames+p.stats.Received.Frames, to.RxBytes+p.stats.Received.Bytes
				to.TxFrames, to.TxBytes = to.TxFrames+p.stats.Sent.Frames, to.TxBytes+p.stats.Sent.Bytes
				to.Queue += p.egress.data.bytes
				to.Metric = max(to.Metric, p.egress.ce)
				for r, drops := range p.stats.Drops {
					to.Dropped += drops
					b.Drops[r] += drops
				}
			}
			if w.rec != nil && w.view != nil {
				w.rec.collect(w, b, all)
			}
		})
	}
}

// Recorded is whose record a dump is, and what of the fabric that node sees.
type Recorded struct {
	Leaf   bool
	VTEP   netip.Addr
	Ports  []PortConfig // by PortID
	Rates  []uint64     // of the ports, bits per second; 0: unknown
	Peers  []netip.Addr
	Scheme string // of what no class takes; "": a spine's selectors and hashes
}

// Recorded returns what a dump begins with.
func (n *Node) Recorded() (x Recorded) {
	l, v := n.layout.Load(), n.view.Load()
	x.Leaf, x.VTEP = n.cfg.Role == Leaf, n.cfg.VTEP
	for id := range l.ports {
		c := l.ports[id].PortConfig
		x.Ports = append(x.Ports, c)
		kernel := uint64(0)
		if v != nil && id < len(v.tables.Ports) {
			kernel = v.tables.Ports[id].Speed
		}
		speed, _ := c.Egress.Speed(kernel)
		x.Rates = append(x.Rates, speed)
	}
	if v != nil {
		for _, p := range v.tables.Peers {
			if p.VTEP.IsValid() {
				x.Peers = append(x.Peers, p.VTEP)
			}
		}
	}
	n.scheming.Lock()
	defer n.scheming.Unlock()
	if len(n.rules) > 0 {
		x.Scheme = n.rules[len(n.rules)-1].Scheme
	}
	return x
}

// OnCrash has do called when a worker panics, before the process ends: what it asks the
// workers is not answered any more. It is for before [Node.Run].
func (n *Node) OnCrash(do func()) { n.onCrash = do }

// crashed is deferred by workers.
func (n *Node) crashed() {
	if x := recover(); x != nil {
		if n.onCrash != nil {
			n.onCrash()
		}
		panic(x)
	}
}
