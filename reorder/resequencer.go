package reorder

import (
	"time"

	"github.com/loomfabric/loom/internal/flowtable"
	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/overlay"
)

// Young is how many packets of a sequence say that they are among its first ones. A
// receiver that does not know the flow then waits for number 0; otherwise it takes the
// packet's number for the one that is due.
const Young = 256

// Resequencer hands out the packets of each flow in the order in which the flow's source
// leaf has numbered them, whatever path each of them took. It is the receiving side of
// ordered spraying, docs/ordered-spray.md.
//
// A packet that is ahead of the one that is due waits for it. The wait ends when the
// missing packets come, or when they are known to be lost: each path keeps the order of
// its packets, so once every path has delivered something that left later than the
// waiting packet, whatever left before that is not under way any more. Where a path is
// idle and proves nothing, the wait ends after a multiple of what the delays of paths
// differ by.
//
// Packets wait one a queue: the number of the queue is that of the packet's place. A
// Resequencer is owned by one worker; it is not safe for concurrent use. Nothing is
// allocated after [NewResequencer].
type Resequencer struct {
	params ResequencerParams
	peers  Peers
	flows  flowtable.Table[sequence]
	spots  []spot
	index  []int32 // first spot of each hash
	mask   uint32
	free   int32
	all    chain // spots that hold a packet, by when it came
	from   []source
	ready  []uint16 // leaves of which a wait may be over

	drained []uint16 // of the present vector; verdicts have parts of it
	returns []uint16 // where pending begins; empty
	pending []uint16 // queues that Expire or Flush has yet to return
	said    []overlay.Message
	stats   ResequencerStats
}

// Peers tells a resequencer by which of their uplinks other leaves send.
type Peers interface {
	// Present returns the uplinks of a leaf by which its packets may come, a bit each;
	// 0: that is not known.
	Present(leaf uint16) uint16
}

// sequence is what is known of a flow that arrives. The flow is pinned while packets of it
// wait.
type sequence struct {
	due   uint16 // number of the packet that goes on next
	sent  overlay.Tstamp
	held  uint16 // packets that wait
	top   uint16 // the highest number among them
	epoch overlay.Epoch
}

// flowEntry is a flow in the table.
type flowEntry = flowtable.Entry[sequence]

// spot is a place for a packet that waits.
type spot struct {
	came   mono.Time
	flow   int32
	next   int32 // of equal hash, or free
	link   link  // in all
	own    link  // in the chain of its leaf
	number uint16
	leaf   uint16
	sent   overlay.Tstamp
	length uint32
}

// link is a spot's place in a chain.
type link struct{ older, newer int32 }

// chain is a list of spots by when their packets came.
type chain struct{ oldest, newest int32 }

// source is what is known of a leaf whose packets come.
type source struct {
	held    chain
	paths   []passed // by uplink and selector
	guard   time.Duration
	delays  delays
	told    mono.Time // when it was last asked to spare memory
	isReady bool
}

// passed is the last packet of a path: when it left, and when it came.
type passed struct {
	came mono.Time
	sent overlay.Tstamp
}

const noSpot = int32(-1)

// freshFor is how long a timestamp of 16 bits of microseconds can be compared with
// others, with room for a delay.
const freshFor = mono.Time(20 * time.Millisecond)

// NewResequencer returns an empty resequencer. The parameters must be valid.
func NewResequencer(p ResequencerParams, leaves int, peers Peers) *Resequencer {
	buckets := 1
	for buckets < 2*p.Packets {
		buckets *= 2
	}
	r := &Resequencer{
		params: p, peers: peers,
		flows: flowtable.New[sequence](p.Flows, mono.Time(p.Hold)),
		spots: make([]spot, p.Packets), index: make([]int32, buckets), mask: uint32(buckets - 1), free: noSpot,
		all: chain{noSpot, noSpot}, from: make([]source, leaves), ready: make([]uint16, 0, leaves),
		drained: make([]uint16, 0, p.Packets+64), returns: make([]uint16, 0, p.Packets),
		said: make([]overlay.Message, 0, 64),
	}
	r.pending = r.returns
	for i := range r.index {
		r.index[i] = noSpot
	}
	for i := len(r.spots) - 1; i >= 0; i-- {
		r.spots[i].next, r.free = r.free, int32(i)
	}
	each := maxUplinks * p.Selectors
	paths := make([]passed, leaves*each)
	for i := range r.from {
		r.from[i].paths = paths[i*each : (i+1)*each]
		r.from[i].held = chain{noSpot, noSpot}
		r.from[i].guard = p.Guard
	}
	return r
}

// Receive decides about packets in the order in which they came.
func (r *Resequencer) Receive(now mono.Time, pkts []Arrival) {
	r.drained, r.said = r.drained[:0], r.said[:0]
	if r.all.newest != noSpot && now < r.spots[r.all.newest].came { // the clock was set back
		for i := r.all.oldest; i != noSpot; i = r.spots[i].link.newer {
			r.spots[i].came = now
		}
	}
	for i := range pkts {
		p := &pkts[i]
		r.stats.Packets++
		p.Verdict, p.Also = Pass, nil
		if int(p.Leaf) < len(r.from) {
			r.pass(now, p)
		}
		r.arrive(now, p, i)
	}
}

// arrive decides about a packet.
func (r *Resequencer) arrive(now mono.Time, p *Arrival, i int) {
	f, first := &p.Fabric, len(r.drained)
	e := r.flows.Find(p.Hash, p.Leaf)
	if e == nil {
		if e = r.flows.Insert(now, p.Hash, p.Leaf); e == nil {
			r.stats.NoFlow++
			return
		}
		r.begin(e, f)
	} else if r.begins(now, e, f) {
		r.giveUp(e, e.V.top) // nothing of the former sequence is under way
		r.begin(e, f)
	}
	number := uint16(f.Arg)
	ahead := int16(number - e.V.due)
	if int(ahead) >= r.params.Window && !now.Apart(e.Last, freshFor) && f.TxTstamp.Sub(e.V.sent) < 0 {
		ahead = -1 // it left before what has gone on: its number is from before a wrap
	}
	e.Last = now
	switch {
	case ahead < 0:
		r.stats.Late++
		return
	case ahead > 0 && r.lookup(r.flows.Index(e), number) != noSpot:
		r.stats.Copies++
		p.Verdict = Discard
		return
	case ahead > 0 && r.hold(now, e, p):
		r.verdict(p, DrainHold, first)
		r.spare(now, p, i)
		return
	case ahead > 0:
		r.stats.Exhausted++
		r.skipTo(e, number)
	}
	e.V.due, e.V.sent = number+1, f.TxTstamp
	// A verdict names queues before the packet or behind it. What could follow on both
	// waits for the flow's next packet, or for Expire.
	if r.verdict(p, DrainPass, first); p.Verdict == Pass {
		r.follow(e)
		r.verdict(p, PassDrain, first)
	}
}

// verdict has the queues that were drained from first on sent on with a packet.
func (r *Resequencer) verdict(p *Arrival, v Verdict, first int) {
	list := r.drained[first:]
	switch {
	case len(list) > 0:
		p.Verdict, p.Drain, p.Also = v, list[0], list[1:]
	case v == DrainHold:
		p.Verdict = Hold
	}
}

// begins reports whether a packet begins its flow's sequence anew: after a pause, because
// its source has forgotten the flow, or because the source has restarted. A source gives
// numbers and times in one order, so one of the first numbers that left later than what
// has gone on, and is far behind that, cannot belong to the sequence.
func (r *Resequencer) begins(now mono.Time, e *flowEntry, f *overlay.Fabric) bool {
	behind := int16(e.V.due - uint16(f.Arg))
	switch {
	case f.Epoch != e.V.epoch:
		return true
	case behind <= 0:
		return false
	case now.Apart(e.Last, mono.Time(r.params.Inactive/2)):
		return true
	}
	return f.Rerouted && behind > Young && !now.Apart(e.Last, freshFor) && f.TxTstamp.Sub(e.V.sent) > 0
}

// begin begins a flow's sequence with the first packet of it that comes.
func (r *Resequencer) begin(e *flowEntry, f *overlay.Fabric) {
	r.stats.Sequences++
	e.V = sequence{due: uint16(f.Arg), sent: f.TxTstamp, epoch: f.Epoch}
	if f.Rerouted && e.V.due < Young && e.V.due > 0 {
		e.V.due = 0
		e.V.sent -= overlay.Tstamp(freshFor / 1000) // those before it left earlier
	}
}

// follow drains what a flow holds from the number that is due on, as far as none is
// missing.
func (r *Resequencer) follow(e *flowEntry) {
	for e.V.held > 0 {
		i := r.lookup(r.flows.Index(e), e.V.due)
		if i == noSpot {
			return
		}
		e.V.due, e.V.sent = e.V.due+1, r.spots[i].sent
		r.take(e, i)
	}
}

// skipTo drains what a flow holds of numbers up to n, in order, whatever is missing.
func (r *Resequencer) skipTo(e *flowEntry, n uint16) {
	flow := r.flows.Index(e)
	for number := e.V.due; e.V.held > 0 && int16(number-n) <= 0; number++ {
		if i := r.lookup(flow, number); i != noSpot {
			e.V.due, e.V.sent = number+1, r.spots[i].sent
			r.take(e, i)
		}
	}
}

// giveUp is skipTo, and drains what follows on that.
func (r *Resequencer) giveUp(e *flowEntry, n uint16) {
	r.skipTo(e, n)
	r.follow(e)
}

// hash returns the place of a flow's packet in the index.
func (r *Resequencer) hash(flow int32, number uint16) *int32 {
	return &r.index[(uint32(flow)*0x9E3779B1>>12+uint32(number))&r.mask]
}

// lookup returns where a packet of a flow waits; noSpot: it does not.
func (r *Resequencer) lookup(flow int32, number uint16) int32 {
	i := *r.hash(flow, number)
	for i != noSpot && (r.spots[i].number != number || r.spots[i].flow != flow) {
		i = r.spots[i].next
	}
	return i
}

// hold keeps a packet. It reports false if there is no room, or if the packet is too far
// ahead.
func (r *Resequencer) hold(now mono.Time, e *flowEntry, p *Arrival) bool {
	number, flow := uint16(p.Fabric.Arg), r.flows.Index(e)
	i := r.free
	if i == noSpot || int(number-e.V.due) >= r.params.Window || int(p.Leaf) >= len(r.from) {
		return false
	}
	s := &r.spots[i]
	r.free = s.next
	at := r.hash(flow, number)
	*s = spot{came: now, flow: flow, next: *at, number: number, leaf: p.Leaf, sent: p.Fabric.TxTstamp, length: p.Len}
	*at = i
	r.append(i)
	if e.V.held == 0 || int16(number-e.V.top) > 0 {
		e.V.top = number
	}
	e.V.held++
	e.Pin()
	st := &r.stats
	st.Held++
	st.Waiting++
	st.WaitingPeak = max(st.WaitingPeak, st.Waiting)
	st.WaitingBytes += uint64(p.Len)
	st.WaitingBytesPeak = max(st.WaitingBytesPeak, st.WaitingBytes)
	st.WaitingDepth.Add(uint64(st.Waiting))
	st.BytesDepth.Add(st.WaitingBytes)
	p.Hold = uint16(i)
	return true
}

// take drains a spot: the driver sends on what is there before it looks at anything else.
func (r *Resequencer) take(e *flowEntry, i int32) {
	s := &r.spots[i]
	at := r.hash(s.flow, s.number)
	for *at != i {
		at = &r.spots[*at].next
	}
	*at = s.next
	r.remove(i)
	if e.V.held--; e.V.held == 0 {
		e.Unpin()
	}
	r.stats.Waiting--
	r.stats.WaitingBytes -= uint64(s.length)
	s.next, r.free = r.free, i
	r.drained = append(r.drained, uint16(i))
}

// append puts a spot at the ends of its chains.
func (r *Resequencer) append(i int32) {
	s := &r.spots[i]
	own := &r.from[s.leaf].held
	s.link, s.own = link{r.all.newest, noSpot}, link{own.newest, noSpot}
	if r.all.newest == noSpot {
		r.all.oldest = i
	} else {
		r.spots[r.all.newest].link.newer = i
	}
	if own.newest == noSpot {
		own.oldest = i
	} else {
		r.spots[own.newest].own.newer = i
	}
	r.all.newest, own.newest = i, i
}

// remove takes a spot out of its chains.
func (r *Resequencer) remove(i int32) {
	s := &r.spots[i]
	own := &r.from[s.leaf].held
	if s.link.older == noSpot {
		r.all.oldest = s.link.newer
	} else {
		r.spots[s.link.older].link.newer = s.link.newer
	}
	if s.link.newer == noSpot {
		r.all.newest = s.link.older
	} else {
		r.spots[s.link.newer].link.older = s.link.older
	}
	if s.own.older == noSpot {
		own.oldest = s.own.newer
	} else {
		r.spots[s.own.older].own.newer = s.own.newer
	}
	if s.own.newer == noSpot {
		own.newest = s.own.older
	} else {
		r.spots[s.own.newer].own.older = s.own.older
	}
}

// spare asks a leaf not to spray for a while if memory runs short.
func (r *Resequencer) spare(now mono.Time, p *Arrival, i int) {
	s := &r.from[p.Leaf]
	if r.stats.Waiting*4 < r.params.Packets*3 || s.told != 0 && !now.Apart(s.told, mono.Time(r.params.Hold/2)) {
		return
	}
	s.told = now
	r.stats.Refusals++
	r.said = append(r.said, overlay.Message{
		Leaf: p.Leaf, Link: overlay.AnyLink, Cause: int16(i), Hash: p.Hash,
		Fabric: overlay.Fabric{Opcode: overlay.OpNotify, Scheme: r.params.Wire, Rerouted: true, Path: p.Fabric.Path},
	})
}

// MayHold reports whether Receive might hold such a packet.
func (r *Resequencer) MayHold(*Arrival) bool { return true }

// Outbox returns what the last Receive has to say.
func (r *Resequencer) Outbox() []overlay.Message { return r.said }

// Queues returns the limits of what is held.
func (r *Resequencer) Queues() (queues, perQueue, packets int) {
	return len(r.spots), 1, len(r.spots)
}

// Stats returns a pointer to a copy of the counters.
func (r *Resequencer) Stats() any { s := r.Counters(); return &s }

// Counters returns what happened so far.
func (r *Resequencer) Counters() ResequencerStats {
	s := r.stats
	for i := range r.from {
		if d := &r.from[i].delays; d.known {
			s.HoldLimit = max(s.HoldLimit, r.limit(d).Seconds())
			s.Guard = max(s.Guard, r.from[i].guard.Seconds())
		}
	}
	return s
}
