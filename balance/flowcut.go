package balance

import (
	"fmt"
	"math/rand/v2"

	"github.com/loomfabric/loom/congestion"
	"github.com/loomfabric/loom/internal/flowtable"
	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/overlay"
	"github.com/loomfabric/loom/reorder"
)

var _ = register(Scheme{
	Name: "flowcut", Summary: "the least congested path for a flow of which nothing is in flight",
	New: newFlowcut, Gap: flowGap, Keys: func() Params { return &FlowcutKeys{64 << 10} },
	Wire: flowcutID, Shim: true, NeedsPeer: true,
	Receiver: func(*Options) (Receiver, error) { return newFlowcutReceiver(), nil },
})

const flowcutID overlay.SchemeID = 3

// FlowcutKeys are what flowcut is told beside its name.
type FlowcutKeys struct {
	// Flowcuts is the number of entries of each worker's table of flows, of 32 bytes
	// each: a power of two from 4 to 16777216. A flow without an entry stays on its
	// hash's path.
	Flowcuts int `yaml:"flowcuts"`
}

// Validate reports a size that makes no sense.
func (k *FlowcutKeys) Validate() error {
	if k.Flowcuts < flowtable.Ways || k.Flowcuts > flowtable.MaxEntries || k.Flowcuts&(k.Flowcuts-1) != 0 {
		return fieldError("flowcuts", fmt.Sprintf("use a power of two from %d to %d", flowtable.Ways, flowtable.MaxEntries), "flow table of %d entries", k.Flowcuts)
	}
	return nil
}

// flowcut moves a flow only when none of its packets is in flight, so that it stays in
// order and its destination need not hold any (Bonato et al., flowcut switching, 2025).
// The new path is the least congested one, as under conga.
//
// The paper has variants in which all switches, the first one, or network cards do this.
// Ours is the second: the first switch is the source's leaf. Of the paper's text the
// abstract and public summaries were at hand, so no section is named here.
//
// It differs from the paper in these points:
//   - The paper's switch counts the bytes in flight by the acknowledgements that come
//     back through it. Here the source numbers a flow's packets and asks about one, and
//     the destination's leaf answers. A path keeps the order, so nothing is in flight
//     once the last packet has been answered for: what was sent before it has arrived or
//     is lost. A lost packet or answer needs no repair, as the next packet asks again.
//   - Answers cost packets, so a flow asks only while another path is less congested
//     than its own. That is found out once in a time constant of the metrics (tau).
//   - A flow that has paused for congestion.flow_gap has nothing in flight, even if no
//     answer came.
//   - The paper drains a flow whose round trips say that its path is congested: the flow
//     pauses until nothing of it is in flight, and then takes another path. How long a
//     round trip has to be, and for how long it has to last, is not in what was at hand.
//     A leaf does not hold hosts' packets back: a flow that never has its last packet
//     answered for stays.
//
// A flow whose path goes away moves at once, and may be reordered.
type flowcut struct {
	seed     uint64
	gap, tau mono.Time
	decision congestion.Decision
	rng      *rand.PCG
	flows    flowtable.Table[flowcutFlow]
	// unmarked is when a packet last went by hash. A flow that gets an entry soon after
	// may have packets in flight there.
	unmarked mono.Time
	hashed   bool // unmarked is meant
	remote   [MaxPaths]uint8
	stats    FlowcutStats
}

// flowcutFlow is what is known of a flow.
type flowcutFlow struct {
	compared mono.Time  // when its path was last compared with the others
	seq      flowcutSeq // of its last packet
	uplink   uint8
	wants    bool // another path was less congested
	drained  bool // its last packet has been answered for
}

// flowcutSeq numbers the packets of a flow, and wraps. Its low 16 bits travel as Arg and
// the 2 bits above as Epoch. An answer that is late by 262,144 packets of its own flow
// looks like one about the last packet.
type flowcutSeq uint32

const flowcutSeqMask flowcutSeq = 1<<18 - 1

// split returns the fields that carry a number.
func (s flowcutSeq) split() (overlay.Epoch, overlay.Tstamp) {
	return overlay.Epoch(s >> 16 & 3), overlay.Tstamp(s)
}

// joinFlowcutSeq returns the number that a header carries.
func joinFlowcutSeq(f *overlay.Fabric) flowcutSeq {
	return flowcutSeq(f.Epoch&3)<<16 | flowcutSeq(f.Arg)
}

// FlowcutStats counts what the sending side of flowcut did.
type FlowcutStats struct {
	Flows     uint64 `help:"Flows that got an entry in the table."`
	Cuts      uint64 `help:"Times that a path was chosen anew because nothing of the flow was in flight, by an answer."`
	Pauses    uint64 `help:"Times that a path was chosen anew after a pause of flow_gap."`
	Moves     uint64 `help:"Cuts and pauses after which the flow took another path."`
	Lost      uint64 `stat:"lost_moves" help:"Flows that took another path because theirs went away."`
	Requests  uint64 `stat:"requests_frames" unit:"frames" help:"Frames that asked for an answer."`
	Stale     uint64 `stat:"stale_replies" help:"Answers about another packet than the flow's last one."`
	Overflow  uint64 `stat:"overflow_frames" unit:"frames" help:"Frames sent by hash because the table of flows had no room."`
	Incapable uint64 `stat:"incapable_frames" unit:"frames" help:"Frames sent by hash because the leaf does not read the fabric's fields."`
}

func newFlowcut(o *Options) Policy {
	gap := mono.Time(o.Congestion.FlowGap)
	return &flowcut{
		seed: o.Seed, gap: gap, tau: mono.Time(o.Congestion.Tau), decision: o.Congestion.Decision, rng: newRNG(o),
		flows: flowtable.New[flowcutFlow](o.Keys.(*FlowcutKeys).Flowcuts, gap),
	}
}

// Stats returns the counters.
func (c *flowcut) Stats() Stats {
	own := c.stats
	return Stats{Decisions: own.Flows + own.Cuts + own.Pauses + own.Lost, Own: &own}
}

// Retime changes nothing: flow_gap does not follow from round trips.
func (c *flowcut) Retime(mono.Time, *reorder.Times) error { return nil }

// Handle takes the answer about a packet.
func (c *flowcut) Handle(_ mono.Time, _ *View, m *overlay.Message) bool {
	if m.Fabric.Opcode != overlay.OpRTTReply || !m.Fabric.Shim {
		return false
	}
	e := c.flows.Find(m.Hash, m.Leaf)
	if e == nil {
		return false
	}
	if joinFlowcutSeq(&m.Fabric) == e.V.seq&flowcutSeqMask {
		e.V.drained = true
	} else {
		c.stats.Stale++
	}
	return true
}

// Choose sends each packet after its flow, unless nothing of that is in flight.
func (c *flowcut) Choose(now mono.Time, v *View, pkts []Packet) {
	looked := false
	for i := range pkts {
		p := &pkts[i]
		paths := &v.Paths[p.Leaf]
		p.Marks = Marks{Selector: selectorByHash(p.Hash, c.seed)}
		if paths.N == 0 {
			continue
		}
		e := c.flows.Find(p.Hash, p.Leaf)
		why := c.cut(now, paths, e)
		if v.Capable != nil && !v.Capable.Capable(p.Leaf, now) {
			c.incapable(now, paths, p, e, why)
			continue
		}
		if e == nil {
			if e = c.flows.Insert(now, p.Hash, p.Leaf); e == nil {
				c.stats.Overflow++
				c.byHash(now, paths, p)
				continue
			}
			e.V.seq = flowcutSeq(c.rng.Uint64()) // tables may be new, and flows not
		}
		compare := why != flowcutStays || now.Apart(e.V.compared, c.tau)
		if compare && !looked {
			looked = true
			v.look(now)
		}
		c.step(now, v, p, e, why, compare)
		e.Last = now
		// Only the last one of a train can be the flow's last packet.
		last := i+1 == len(pkts) || pkts[i+1].Hash != p.Hash || pkts[i+1].Leaf != p.Leaf
		c.mark(p, &e.V, last)
		p.Path = uint8(paths.Index[e.V.uplink%MaxPaths])
	}
}

// flowcutWhy says why a flow's path is chosen anew.
type flowcutWhy uint8

const (
	flowcutStays  flowcutWhy = iota
	flowcutNew               // it has no entry
	flowcutLost              // its path is gone
	flowcutPaused            // nothing is in flight, as time tells
	flowcutCut               // nothing is in flight, as its last packet was answered for
)

// cut reports whether a flow may take another path. e is nil if it has no entry.
func (c *flowcut) cut(now mono.Time, paths *Paths, e *flowtable.Entry[flowcutFlow]) flowcutWhy {
	switch {
	case e == nil:
		return flowcutNew
	case c.flows.Aged(now, e):
		return flowcutPaused
	case paths.Index[e.V.uplink%MaxPaths] < 0:
		return flowcutLost
	case e.V.drained:
		return flowcutCut
	}
	return flowcutStays
}

// step chooses the flow's path if that is due, or else finds out whether the flow wants
// another one.
func (c *flowcut) step(now mono.Time, v *View, p *Packet, e *flowtable.Entry[flowcutFlow], why flowcutWhy, compare bool) {
	if !compare {
		return
	}
	f, paths := &e.V, &v.Paths[p.Leaf]
	cached := f.uplink
	if why == flowcutNew {
		cached = congestion.NoUplink
	}
	v.remote(p.Leaf, now, &c.remote)
	best := c.decision.Pick(paths.Uplink[:paths.N], v.Local, &c.remote, cached, c.rng)
	f.compared = now
	moves := best != f.uplink
	if why == flowcutStays {
		f.wants = moves
		return
	}
	f.uplink, f.wants = best, false
	switch why {
	case flowcutNew:
		c.stats.Flows++
		if c.hashed && !now.Apart(c.unmarked, c.gap) {
			f.uplink = paths.Uplink[c.share(paths, p.Hash)%MaxPaths]
		}
		return
	case flowcutLost:
		c.stats.Lost++
		return
	case flowcutPaused:
		c.stats.Pauses++
	case flowcutCut:
		c.stats.Cuts++
	}
	if moves {
		c.stats.Moves++
	}
}

// mark numbers a packet, and has it ask for an answer if that can be of use.
func (c *flowcut) mark(p *Packet, f *flowcutFlow, last bool) {
	f.seq++
	f.drained = false
	if !f.wants || !last {
		return
	}
	c.stats.Requests++
	p.Opcode, p.Shim = overlay.OpRTTRequest, true
	p.Epoch, p.Arg = f.seq.split()
}

// incapable sends a packet to a leaf that answers nothing: by hash, but not away from a
// path on which packets of the flow may be in flight.
func (c *flowcut) incapable(now mono.Time, paths *Paths, p *Packet, e *flowtable.Entry[flowcutFlow], why flowcutWhy) {
	c.stats.Incapable++
	if why == flowcutStays || why == flowcutCut {
		e.Last = now
		e.V.seq++
		e.V.drained = false
		p.Path = uint8(paths.Index[e.V.uplink%MaxPaths])
		return
	}
	if e != nil {
		e.Remove()
	}
	c.byHash(now, paths, p)
}

// byHash sends a packet as ecmp does.
func (c *flowcut) byHash(now mono.Time, paths *Paths, p *Packet) {
	c.unmarked, c.hashed = now, true
	p.Path = uint8(paths.Index[paths.Uplink[c.share(paths, p.Hash)%MaxPaths]])
}

// share returns the path that ecmp would give a flow.
func (c *flowcut) share(paths *Paths, hash uint32) uint8 {
	return paths.byHash(hash, c.seed)
}

// flowcutReceiver answers for packets. It holds none.
type flowcutReceiver struct {
	out   []overlay.Message
	stats FlowcutReceiverStats
}

// FlowcutReceiverStats counts what the receiving side of flowcut did.
type FlowcutReceiverStats struct {
	Packets uint64 `stat:"arrived_frames" unit:"frames" help:"Frames that arrived with flowcut's marks."`
	Replies uint64 `help:"Answers to the sources of frames."`
}

func newFlowcutReceiver() *flowcutReceiver {
	return &flowcutReceiver{out: make([]overlay.Message, 0, 64)}
}

// Receive answers for the packets that ask, in trains of a flow for the last one.
func (r *flowcutReceiver) Receive(_ mono.Time, pkts []reorder.Arrival) {
	r.out = r.out[:0]
	for i := range pkts {
		p := &pkts[i]
		p.Verdict, p.Also = reorder.Pass, nil
		r.stats.Packets++
		f := &p.Fabric
		if f.Opcode != overlay.OpRTTRequest {
			continue
		}
		if i+1 < len(pkts) {
			if n := &pkts[i+1]; n.Hash == p.Hash && n.Leaf == p.Leaf && n.Fabric.Opcode == overlay.OpRTTRequest {
				continue
			}
		}
		r.stats.Replies++
		r.out = append(r.out, overlay.Message{
			Leaf: p.Leaf, Link: overlay.AnyLink, Cause: int16(i), Hash: p.Hash,
			Fabric: overlay.Fabric{
				Capable: true, Scheme: flowcutID, Opcode: overlay.OpRTTReply, Epoch: f.Epoch, Path: f.Path, Shim: true, Arg: f.Arg,
			},
		})
	}
}

// MayHold says that no packet has to wait.
func (r *flowcutReceiver) MayHold(*reorder.Arrival) bool { return false }

// Expire has no queue to return.
func (r *flowcutReceiver) Expire(mono.Time) (queue int, ok bool) {
	r.out = r.out[:0]
	return 0, false
}

// Flush has no queue to return.
func (r *flowcutReceiver) Flush(now mono.Time) (queue int, ok bool) { return r.Expire(now) }

// Deadline returns that nothing is held.
func (r *flowcutReceiver) Deadline() mono.Time { return reorder.Never }

// Outbox returns the answers to the last vector.
func (r *flowcutReceiver) Outbox() []overlay.Message { return r.out }

// Queues returns that there are none.
func (r *flowcutReceiver) Queues() (queues, perQueue, packets int) { return 0, 0, 0 }

// Grace returns 0: nothing has a deadline.
func (r *flowcutReceiver) Grace() mono.Time { return 0 }

// Stats returns a pointer to a copy of the counters.
func (r *flowcutReceiver) Stats() any { s := r.stats; return &s }
