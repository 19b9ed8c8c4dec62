package dataplane

import (
	"math/bits"
	"sync/atomic"

	"github.com/loomfabric/loom/internal/drop"
	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/leaf"
	"github.com/loomfabric/loom/overlay"
	"github.com/loomfabric/loom/reorder"
)

// leafWorker is what a leaf's worker has besides its rings: forwarding tables, and
// the brain that decides ([leaf.Leaf]), by which frames are known by the numbers of
// their UMEM frames. Owned by the worker's thread.
type leafWorker struct {
	*worker
	brain *leaf.Leaf[uint32]

	fdb          *overlay.FDB
	hosts        *overlay.Hosts // who has which IP address, for people
	classes      []*class       // the last one takes what the others do not
	uplinks      []PortID       // by LBTag; NoPort: nobody has it
	peerNumbers  []uint16       // by PeerID: what all nodes know leaves by
	storms       []storm        // by VNIIndex: of what hosts have flooded
	fabricStorms []storm        // and of what the fabric brings to be flooded
	flushed      []uint32       // by PortID: view that took the port's addresses out of the FDB
	recent       recent
	sweep        mono.Time
	departed     []departed    // networks that are gone, whose addresses are being forgotten
	held         atomic.Uint64 // how often an address began to be held; for [Node.reportMoves]
	looked       mono.Time     // when the brain's view of links was filled
	hurry        bool          // frames do not wait because their scheme says so
	kernel       bool          // addresses are the kernel's: the worker neither learns nor floods

	learned  *workerRings[learned] // nil with one worker, as the next
	messages *workerRings[message]

	// parked are the frames that the brain holds, or is about to decide about, by
	// UMEM frame number; others are stale.
	parked []parked
	shift  uint8 // from a frame's offset to its number

	// The frames of a burst from the fabric that the brain is to decide about.
	n        int
	arrivals [burstSize]reorder.Arrival
	numbers  [burstSize]uint32
	from     [burstSize]uint8

	decap  overlay.Decapped
	fields overlay.Fabric
	hello  overlay.Hello
	stats  leafStats
}

// parked is a tenant's frame on its way through the brain: out of its tunnel, with
// where it goes when it may; or on its way into one.
type parked struct {
	frame
	to   member // its port is NoPort if it goes to all of its VNI
	vni  VNIIndex
	peer PeerID
}

// leafStats is what a leaf's worker counts itself.
type leafStats struct {
	FDBStats
	VNIs         []VNIStats
	PeerSent     []Traffic
	PeerReceived []Traffic
}

// arrivalPorts is the number of ports that frames may wait for: as many as the node has
// room for, and behind them one that stands for all members of a VNI.
func arrivalPorts(room int) int { return room + 1 }

// newLeafWorker makes a leaf's part of a worker.
func newLeafWorker(w *worker, frameSize int) (*leafWorker, error) {
	l := &leafWorker{
		worker: w, fdb: newFDB(w), hosts: overlay.NewHosts(hostPlaces, MaxPorts+MaxPeers, hostAge),
		flushed: make([]uint32, w.cfg.Room), kernel: w.cfg.KernelOverlay,
		parked: make([]parked, len(w.area)/frameSize), shift: uint8(bits.TrailingZeros(uint(frameSize))),
	}
	rules := w.cfg.rules()
	var err error
	l.brain, err = leaf.New[uint32](leaf.Config{
		Worker: w.id, Seed: w.cfg.Seed, Classes: w.shared.fastSchemes(rules, w.shared.rules, w.id), Congestion: w.cfg.Congestion, Sections: w.cfg.sections(),
		Leaves: MaxPeers, Ports: arrivalPorts(w.cfg.Room), Links: l, Node: leafNode{l}, Answers: answerBudget,
	}, w.shared.leaf)
	if err != nil {
		return nil, err
	}
	for i, c := range l.brain.Classes() {
		l.classes = append(l.classes, newClass(c, rules[i]))
	}
	return l, nil
}

// begin takes in what the other workers have to say, before the bursts of a round.
func (l *leafWorker) begin(now mono.Time) {
	if l.learned != nil {
		l.receiveLearned(now)
		l.receiveMessages()
	}
	l.recent = recent{}
}

// end does what is due, after the bursts of a round. behind says that there may be
// more in the uplinks' rings.
func (l *leafWorker) end(now mono.Time, behind bool) {
	if l.brain.Deadline() <= now {
		l.act(l.brain.Tick(now, behind), now)
	}
	l.age(now)
}

// arrange takes note of which uplinks there are, and of what ports may learn.
func (l *leafWorker) arrange(to *layout) {
	l.uplinks = to.uplinks
	l.brain.SetUplinks(to.tags())
	for i := range to.ports {
		l.ports[i].uplink = to.ports[i].tag
		l.fdb.SetPortLimit(uint16(i), int(to.ports[i].FDBLimit))
	}
}

// act does what the brain says. Messages go first: they carry the headers of frames
// that are then delivered.
func (l *leafWorker) act(o *leaf.Output[uint32], now mono.Time) {
	for i := range o.Messages {
		l.sendMessage(&o.Messages[i], now)
	}
	if l.taps != nil {
		l.taps.waited(o.Deliver, now)
	}
	for _, number := range o.Deliver {
		x := &l.parked[number]
		if r := l.release(&x.frame, x.vni, x.to, now); r != drop.None {
			l.discard(&x.frame, r)
		}
	}
	for _, number := range o.Copies {
		l.discard(&l.parked[number].frame, drop.Copy)
	}
	if len(o.Retry) > 0 {
		l.retry(o.Retry, now)
	}
}

// retry offers frames that had to wait to their class again.
func (l *leafWorker) retry(waited []leaf.Waiting[uint32], now mono.Time) {
	for i := range waited {
		x := &l.parked[waited[i].Item]
		if l.taps != nil {
			l.taps.waited([]uint32{waited[i].Item}, now)
		}
		f, m := x.frame, &l.meta
		overlay.Dissect(l.bytes(&f), l.seed, m)
		f.kind = 0
		for c := range l.classes { // its class may be gone: then the default one takes it
			if l.classes[c].Class == waited[i].Class || c == len(l.classes)-1 {
				f.kind = uint8(c) << kindClass
				break
			}
		}
		l.toFabric(&f, x.vni, x.peer, m, now)
	}
	l.encapAll(now)
}

// encapAll sends the frames of all classes that wait for an uplink.
func (l *leafWorker) encapAll(now mono.Time) {
	for _, c := range l.classes {
		if c.n > 0 {
			l.encap(c, now)
		}
	}
}

// flush sends on all frames that the brain holds.
func (l *leafWorker) flush(now mono.Time) {
	l.hurry = true
	l.act(l.brain.Flush(now), now)
	l.hurry = false
}

// leave is called before another view takes the place of the present one. It drops what
// was known of peers whose place in the tables goes to others. What is held goes on
// first: under the new view, frames and answers for the old peers would go to the
// wrong leaves.
func (l *leafWorker) leave(v *view, now mono.Time) {
	if l.view == nil {
		return
	}
	old, peers := l.view.tables.Peers, v.tables.Peers
	flushed := false
	for i := range min(len(old), len(peers)) {
		if old[i].VTEP == peers[i].VTEP {
			continue
		}
		if !flushed {
			l.flush(now)
			flushed = true
		}
		l.shared.leaf.Forget(uint16(i))
	}
}

// adopt brings tables, limits and counters in line with a new view.
func (l *leafWorker) adopt(old, v *view) {
	if old == nil || old.layout != v.layout {
		l.arrange(v.layout)
	}
	l.adoptFDB(old, v)
	l.bindClasses()
	l.number(v)
	l.brain.SetPaths(v.paths)
}
