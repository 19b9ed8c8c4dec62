package balance

import (
	"math/bits"
	"sync/atomic"
	"time"

	"github.com/loomfabric/loom/internal/flowtable"
	"github.com/loomfabric/loom/internal/gcra"
	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/internal/units"
	"github.com/loomfabric/loom/overlay"
	"github.com/loomfabric/loom/reorder"
)

var _ = register(Scheme{
	Name: "tcp-path", Summary: "the path by which the first copy of a connection's SYN arrived",
	New: newTCPPath, Keys: newTCPPathKeys, Fixed: true,
	Wire: tcpPathID, Shim: true, NeedsPeer: true, Exact: true, Copies: true, Section: tcpPathSection,
	Explores: tcpPathExplores,
	Shared:   newTCPPathShared,
	Receiver: func(o *Options) (Receiver, error) { return newTCPPathReceiver(o), nil },
})

var _ = register(Scheme{
	Name: "tfe", Summary: "tcp-path for connections with a reserved port, a flow's hash for the others",
	New: newTFE, Keys: newTFEKeys, Fixed: true,
	Wire: tcpPathID, Shim: true, NeedsPeer: true, Exact: true, Copies: true, Section: tcpPathSection,
	Explores: tcpPathExplores,
	Shared:   newTCPPathShared,
})

const tcpPathID overlay.SchemeID = 5

// What the packets of an exploration are, by their marks Rerouted and Tail; all have the
// shim. In a message of opcode OpExplore Tail alone is a PathFail.
//
//	R T
//	0 0  PathRequest: a copy of a SYN, or of the first packet between two hosts
//	1 1  PathRecoveryRequest: a copy of the packet that found its path broken
//	1 0  PathReply: the first packet back; its PathID is that of the copy which was first
//
// A request's Arg is the PathID of the copy that is to be delivered where there is no
// room in the table, a reply's is the exploration's number: the TX_TSTAMP of its copies.
const tcpPathPair overlay.Epoch = 1 // Epoch of a request: its path is for all packets between the two hosts

// tcpPathExplores reports whether a packet is a request.
func tcpPathExplores(f *overlay.Fabric) bool {
	return f.Scheme == tcpPathID && f.Shim && f.Opcode == overlay.OpData && f.Rerouted == f.Tail
}

// tcpPath sends a connection both ways by the path on which the first copy of its SYN
// arrived (Alvarez-Horcajo et al., TCP-Path, 2020). The decision is made once, by what
// the queues of all paths were at that moment, and the flow then stays in order.
//
// It differs from the paper in these points (docs/decisions/0019-tcp-path.md):
//   - Leaves alone have tables. The paper's switches flood a request; here the source's
//     leaf sends a copy by each PathID, which names the whole way, and spines follow the
//     selector. Each leaf has one entry for a flow, under the key of the packets that it
//     sends.
//   - A copy tells by a number which exploration it belongs to. So a SYN that was sent
//     again explores anew, and only copies of one exploration are late.
//   - A recovery explores with the packet that found the path broken, which is delivered.
//     Packets behind it have the fallback until the reply comes. In the paper they are lost.
//   - A PathFail is about an uplink of its sender, not about a flow: the leaf that gets
//     it finds out flow by flow, with their next packets.
type tcpPath struct {
	budget         gcra.Bucket // of explorations
	seed, hashSeed uint64
	worker         int
	selectors      uint8
	arpPath        bool
	only           units.Ports // of the flows that it is for; empty: all
	shared         *tcpPathShared
	age            flowtable.Tick

	fails []tcpPathFails // by leaf
	led   []uint16       // by leaf, of worker 0: the uplinks that led there
	next  mono.Time      // when worker 0 compares them with those that do
	stats TCPPathStats
}

// tcpPathShared is what a leaf's workers have in common: which of them a packet comes to,
// from a host or from the fabric, is not the scheme's to say.
type tcpPathShared struct {
	flows *flowtable.Words
	now   atomic.Int64 // of late
}

func newTCPPathShared(o *Options) any {
	p := o.Section.(*TCPPathParams)
	return &tcpPathShared{flows: flowtable.NewWords(p.Flows, mono.Time(p.Lock), mono.Time(p.Age))}
}

// tcpPathFails are the uplinks that another leaf has lost, and when.
type tcpPathFails struct {
	valid uint16
	at    [MaxPaths]flowtable.Tick
}

// tcpPathFlow is a value in the table: what a leaf knows of the packets that it sends of
// a flow.
//
//	0-3    uplink       of this leaf, on the path
//	4-7    selector     of both directions
//	8-11   peer         the other leaf's uplink
//	12-27  number       of the exploration
//	28-29  tries        recoveries in a row that nobody answered
//	30     source       this leaf explores; otherwise it answers
//	31     confirmed    flowtable.LongLived
//
// A source that is not confirmed has no path yet. One that answers is not confirmed as
// long as its host has not answered: the entry is a lock.
type tcpPathFlow uint32

const (
	tcpPathSource    tcpPathFlow = 1 << 30
	tcpPathConfirmed tcpPathFlow = tcpPathFlow(flowtable.LongLived)
	tcpPathTries                 = 3 // at most, and what 2 bits hold
)

func makeTCPPathFlow(uplink, selector, peer uint8, number overlay.Tstamp) tcpPathFlow {
	return tcpPathFlow(uplink&15) | tcpPathFlow(selector&15)<<4 | tcpPathFlow(peer&15)<<8 | tcpPathFlow(number)<<12
}

func (f tcpPathFlow) uplink() uint8          { return uint8(f & 15) }
func (f tcpPathFlow) selector() uint8        { return uint8(f >> 4 & 15) }
func (f tcpPathFlow) peer() uint8            { return uint8(f >> 8 & 15) }
func (f tcpPathFlow) number() overlay.Tstamp { return overlay.Tstamp(f >> 12) }
func (f tcpPathFlow) tries() uint8           { return uint8(f >> 28 & 3) }
func (f tcpPathFlow) source() bool           { return f&tcpPathSource != 0 }
func (f tcpPathFlow) confirmed() bool        { return f&tcpPathConfirmed != 0 }

// TCPPathStats counts what the sending side of tcp-path and tfe did.
type TCPPathStats struct {
	Explorations uint64 `help:"Explorations that began: of new connections, of pairs of hosts, and recoveries."`
	Recoveries   uint64 `help:"Explorations that began because a path was broken."`
	Copies       uint64 `stat:"exploration_frames" unit:"frames" help:"Frames that explored, all copies of them."`
	Bytes        uint64 `stat:"exploration_bytes" unit:"bytes" help:"Length of the frames that explored, without outer headers."`
	Replies      uint64 `help:"Frames that confirmed a path to the leaf which explores."`
	Waiting      uint64 `stat:"waiting_frames" unit:"frames" help:"Frames that had the fallback because the answer to an exploration was still to come."`
	Missed       uint64 `stat:"missed_frames" unit:"frames" help:"Frames that had the fallback because their connection has no path."`
	Broken       uint64 `stat:"broken_frames" unit:"frames" help:"Frames whose path was broken."`
	Overflow     uint64 `help:"Connections and pairs of hosts that had the fallback because the table of flows had no room."`
	Limited      uint64 `stat:"limited_explorations" help:"Explorations that did not begin, because too many did in that second; the flow has the fallback."`
	Others       uint64 `stat:"other_frames" unit:"frames" help:"Frames that had the fallback because the scheme is not for them."`
	Incapable    uint64 `stat:"incapable_frames" unit:"frames" help:"Frames that had the fallback because the leaf does not read the fabric's fields."`
	FailsSent    uint64 `stat:"path_fails_sent" help:"PathFails to other leaves about lost uplinks."`
	Fails        uint64 `stat:"path_fails_received" help:"PathFails of other leaves about lost uplinks."`
}

func newTCPPath(o *Options) Policy { return makeTCPPath(o, o.Keys.(*TCPPathKeys), units.Ports{}) }

func newTFE(o *Options) Policy {
	k := o.Keys.(*TFEKeys)
	return makeTCPPath(o, &k.TCPPathKeys, k.ElephantPorts)
}

func makeTCPPath(o *Options, k *TCPPathKeys, only units.Ports) Policy {
	shared, ok := o.Shared.(*tcpPathShared)
	if !ok {
		shared = newTCPPathShared(o).(*tcpPathShared)
	}
	p := o.Section.(*TCPPathParams)
	t := &tcpPath{
		seed: o.Seed, hashSeed: tcpPathHashSeed(o), worker: o.Worker, selectors: uint8(p.Selectors()),
		arpPath: k.Fallback == fallbackARPPath, only: only, shared: shared, age: flowtable.TickOf(mono.Time(p.Age)) + 1,
		fails: make([]tcpPathFails, o.Leaves),
	}
	if p.Explorations > 0 {
		t.budget = gcra.New(uint64(1e12)/uint64(p.Explorations), uint64(p.Explorations/50)+1)
	}
	if t.worker == 0 {
		t.led = make([]uint16, o.Leaves)
	}
	return t
}

// tcpPathHashSeed returns the seed of a leaf's tags.
func tcpPathHashSeed(o *Options) uint64 { return o.Seed ^ 0x7463702d70617468 }

// tcpPathTag tells flows apart, and those of leaves. The leaf's number does not say which
// set of the table a flow is in.
func tcpPathTag(hash uint64, leaf uint16) uint64 { return flowtable.Tag(hash ^ uint64(leaf)<<48) }

// Stats returns the counters.
func (t *tcpPath) Stats() Stats {
	own := t.stats
	return Stats{Decisions: own.Explorations + own.Waiting + own.Missed + own.Others + own.Incapable, Own: &own}
}

// Choose sends packets of flows that have a path by it. It has a copy of a SYN go by
// every path.
func (t *tcpPath) Choose(now mono.Time, v *View, pkts []Packet) {
	for i := range pkts {
		p := &pkts[i]
		paths := &v.Paths[p.Leaf]
		p.Marks = Marks{Selector: selectorByHash(p.Hash, t.seed)}
		p.Copies, p.Selectors, p.Answers = 0, 0, 0
		if paths.N == 0 {
			continue
		}
		p.Path = paths.byHash(p.Hash, t.seed)
		switch {
		case v.Exact == nil:
			t.stats.Others++
		case v.Capable != nil && !v.Capable.Capable(p.Leaf, now):
			t.stats.Incapable++
		default:
			t.choose(now, paths, p, &v.Exact[i])
		}
	}
}

// choose is Choose for one packet, whose Path and Selector are those of ecmp.
func (t *tcpPath) choose(now mono.Time, paths *Paths, p *Packet, x *Exact) {
	if !t.isFor(&x.Key) {
		t.stats.Others++
	} else if t.follow(now, paths, p, tcpPathTag(x.Key.Hash(t.hashSeed), p.Leaf), tcpPathStepOf(x.TCPFlags)) {
		return
	}
	if t.arpPath {
		pair := x.Key.Pair()
		t.follow(now, paths, p, tcpPathTag(pair.Hash(t.hashSeed), p.Leaf), tcpPathStep{explores: true, confirms: true, pair: true})
	}
}

// isFor reports whether the scheme explores for a flow.
func (t *tcpPath) isFor(k *overlay.FlowKey) bool {
	return k.Proto == overlay.ProtoTCP && (t.only.First == 0 || t.only.Contains(k.SrcPort) || t.only.Contains(k.DstPort))
}

// tcpPathStep is what a packet may bring about.
type tcpPathStep struct {
	explores bool // it begins a flow
	confirms bool // it answers the packet that began one
	repeats  bool // the answer to it may have been lost
	pair     bool // its flow is all that goes between two hosts
}

func tcpPathStepOf(flags uint8) tcpPathStep {
	syn, ack := flags&overlay.TCPSyn != 0, flags&overlay.TCPAck != 0
	return tcpPathStep{explores: syn && !ack, confirms: ack && flags&overlay.TCPRst == 0, repeats: syn && ack}
}

// follow sends a packet by its flow's path, or has it explore. It reports false if there
// is no path for the packet, which then keeps the one that it has.
func (t *tcpPath) follow(now mono.Time, paths *Paths, p *Packet, tag uint64, step tcpPathStep) bool {
	flows := t.shared.flows
	w := flows.Find(tag)
	f := tcpPathFlow(w.Value)
	switch {
	case !flows.Live(now, w):
		// A flow of which this leaf once found the path has paused for long, or nobody has
		// answered: it is looked for again. Where the other leaf never has room that is in vain.
		again := w.Found() && f.source() && (f.confirmed() || f.tries() > 0 && f.tries() < tcpPathTries)
		if step.explores || again {
			return t.explore(now, paths, p, tag, w, step, !step.explores)
		}
		t.missed(step)
		return false
	case f.source() && !f.confirmed():
		t.stats.Waiting++
		return false
	case t.broken(p.Leaf, paths, f, w.Last):
		t.stats.Broken++
		// Not while copies of the exploration before may be under way: the other leaf
		// knows the last one's number alone.
		if f.source() && flowtable.TickOf(now).After(w.Last+tcpPathCalm) {
			return t.explore(now, paths, p, tag, w, step, true)
		}
		return false
	}
	p.Path, p.Selector = uint8(paths.Index[f.uplink()]), f.selector()
	switch {
	case f.confirmed() && !(step.repeats && !f.source()):
		flows.Use(now, w)
		return true
	case !step.confirms:
		return true
	}
	flows.Set(now, w, uint32(f|tcpPathConfirmed))
	t.stats.Replies++
	p.Shim, p.Rerouted, p.Answers, p.Arg = true, true, f.peer()+1, f.number()
	if step.pair {
		p.Epoch = tcpPathPair
	}
	return true
}

func (t *tcpPath) missed(step tcpPathStep) {
	if !step.pair {
		t.stats.Missed++
	}
}

// explore has a packet go by every path. It reports false if there is no room for the
// flow in the table.
func (t *tcpPath) explore(now mono.Time, paths *Paths, p *Packet, tag uint64, w flowtable.Word, step tcpPathStep, recovers bool) bool {
	f := makeTCPPathFlow(0, 0, 0, overlay.TstampOf(now)) | tcpPathSource
	if w.Found() && tcpPathFlow(w.Value).number() == f.number() { // numbers wrap: the other leaf could take all copies for late ones
		t.stats.Waiting++
		return false
	}
	if recovers {
		tries := uint8(0)
		if old := tcpPathFlow(w.Value); !old.confirmed() {
			tries = old.tries()
		}
		f |= tcpPathFlow(min(tries+1, tcpPathTries)) << 28
	}
	if t.budget.Limits() && !t.budget.Take(now) {
		t.stats.Limited++
		return false
	}
	if w.Found() && !t.shared.flows.Set(now, w, uint32(f)) || !w.Found() && !t.shared.flows.Insert(now, tag, uint32(f)) {
		t.stats.Overflow++
		return false
	}
	// Of paths that share an uplink one is enough: no two copies have the same PathID.
	p.Path = uint8(paths.Index[paths.Uplink[p.Path&(MaxPaths-1)]&(MaxPaths-1)])
	for i, u := range paths.Uplink[:paths.N] {
		if int(paths.Index[u&(MaxPaths-1)]) == i {
			p.Copies |= 1 << i
		}
	}
	copies := uint64(bits.OnesCount16(p.Copies))
	if t.selectors > 1 {
		p.Selector %= t.selectors
		p.Selectors = 1<<t.selectors - 1
		copies *= uint64(t.selectors)
	}
	p.Shim, p.Rerouted, p.Tail = true, recovers, recovers
	p.Arg = overlay.Tstamp(overlay.MakePathID(paths.Uplink[p.Path&(MaxPaths-1)], p.Selector))
	if step.pair {
		p.Epoch = tcpPathPair
	}
	t.stats.Explorations++
	if recovers {
		t.stats.Recoveries++
	}
	t.stats.Copies += copies
	t.stats.Bytes += copies * uint64(p.Len)
	return true
}

// broken reports whether a path is gone: an uplink of this leaf no longer leads to the
// other one, or that one has lost its uplink since the path was last used.
func (t *tcpPath) broken(leaf uint16, paths *Paths, f tcpPathFlow, last flowtable.Tick) bool {
	if paths.Index[f.uplink()] < 0 {
		return true
	}
	if int(leaf) >= len(t.fails) {
		return false
	}
	fails := &t.fails[leaf]
	return fails.valid>>f.peer()&1 != 0 && !last.After(fails.at[f.peer()])
}

// Handle takes a PathFail.
func (t *tcpPath) Handle(now mono.Time, _ *View, m *overlay.Message) bool {
	f := &m.Fabric
	if f.Opcode != overlay.OpExplore || !f.Tail || f.Rerouted || m.Link != overlay.AnyLink || int(m.Leaf) >= len(t.fails) {
		return false
	}
	t.stats.Fails++
	u := f.Path.Uplink()
	t.fails[m.Leaf].valid |= 1 << u
	t.fails[m.Leaf].at[u] = flowtable.TickOf(now)
	return true
}

const (
	// tcpPathCalm is for how long after its last use a path that is broken is not looked
	// for again.
	tcpPathCalm flowtable.Tick = 1
	// tcpPathWatch is how often lost uplinks are looked for.
	tcpPathWatch = mono.Time(10 * time.Millisecond)
	// tcpPathBatch is how many PathFails are sent at a time, at most.
	tcpPathBatch = 32
)

// Deadline returns when Tick is to be called next.
func (t *tcpPath) Deadline() mono.Time {
	if t.worker != 0 {
		return reorder.Never
	}
	return t.next
}

// Tick tells other leaves of uplinks that no longer lead to them.
func (t *tcpPath) Tick(now mono.Time, v *View, out []overlay.Message) []overlay.Message {
	t.shared.now.Store(int64(now))
	t.next = now + tcpPathWatch
	sent := 0
	for leaf := range min(len(v.Paths), len(t.led)) {
		t.expire(now, &t.fails[leaf])
		paths := &v.Paths[leaf]
		mask := uint16(0)
		for u := range paths.Index {
			if paths.Index[u] >= 0 {
				mask |= 1 << u
			}
		}
		lost := t.led[leaf] &^ mask
		if paths.N == 0 {
			lost = 0 // nothing can be said
		}
		for ; lost != 0 && sent < tcpPathBatch; lost &= lost - 1 {
			u := bits.TrailingZeros16(lost)
			t.stats.FailsSent++
			sent++
			out = append(out, overlay.Message{
				Leaf: uint16(leaf), Link: overlay.AnyLink, Cause: overlay.NoCause,
				Fabric: overlay.Fabric{Opcode: overlay.OpExplore, Tail: true, Path: overlay.MakePathID(uint8(u), 0)},
			})
		}
		t.led[leaf] = mask | lost // what there was no room for is said the next time
	}
	return out
}

// expire forgets failures that are older than any flow in the table.
func (t *tcpPath) expire(now mono.Time, fails *tcpPathFails) {
	for m := fails.valid; m != 0; m &= m - 1 {
		if u := bits.TrailingZeros16(m); flowtable.TickOf(now)-fails.at[u] > t.age {
			fails.valid &^= 1 << u
		}
	}
}
