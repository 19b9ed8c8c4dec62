package balance

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/loomfabric/loom/internal/flowtable"
	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/internal/stat"
	"github.com/loomfabric/loom/internal/units"
	"github.com/loomfabric/loom/overlay"
	"github.com/loomfabric/loom/reorder"
)

var _ = register(Scheme{
	Name: "presto", Summary: "the next path in turn for each flowcell of a flow, and flowcells put in order behind it",
	New:  newPresto,
	Wire: prestoID, Shim: true, NeedsPeer: true, Section: prestoSection,
	Receiver: func(o *Options) (Receiver, error) { return newPrestoReceiver(o) },
})

const prestoID overlay.SchemeID = 2

var prestoSection = &Section{
	Name: "presto",
	Summary: "Presto are the parameters of scheme presto, and of what puts its flowcells in order. " +
		"The second part counts on every leaf, whatever its own scheme.",
	New:      newPrestoParams,
	Profiles: []Profile{Datacenter, Lab},
}

// PrestoParams are the tunables of Presto (He et al., SIGCOMM 2015).
type PrestoParams struct {
	// Cell is the size of a flowcell, 1500 bytes to 1 MiB: what of a flow takes one
	// path before the next one's turn (§3.1: 64 KB, what segmentation offload hands
	// over at most).
	Cell units.Size `yaml:"cell"`
	// Inactive is the pause after which nothing of a flow is under way: it begins
	// anew, and its place in the tables may go to another one. Destinations hold to
	// half of it, as packets may take longer than those before them.
	Inactive time.Duration `yaml:"inactive"`
	// Flush is for how long a flowcell is held while one before it is missing (§3.2), at
	// most half of inactive. The delays of two paths may differ by that much.
	Flush time.Duration `yaml:"flush"`
	// Flows is the number of entries of each table of flows, of those that are sent
	// and of those that are received: a power of two from 4 to 16777216.
	Flows int `yaml:"flows"`
	// Queues is the number of flowcells of which packets may be held, at most 65535.
	// What does not fit is sent on as it comes.
	Queues int `yaml:"queues"`
	// Packets is the number of packets that may be held.
	Packets int `yaml:"packets"`
}

func newPrestoParams(profile Profile) Params {
	p := &PrestoParams{
		Cell: 64 << 10, Inactive: 2 * time.Millisecond, Flush: 200 * time.Microsecond,
		Flows: 64 << 10, Queues: 1024, Packets: 4096,
	}
	if profile != Datacenter {
		p.Inactive, p.Flush = time.Second, 10*time.Millisecond
	}
	return p
}

// Validate reports the first parameter that makes no sense.
func (p *PrestoParams) Validate() error {
	switch {
	case p.Cell < 1500 || p.Cell > 1<<20:
		return fieldError("cell", "use 1500 to 1MiB", "flowcells of %v bytes", p.Cell)
	case p.Inactive <= 0 || p.Inactive > time.Hour:
		return fieldError("inactive", "use a time above 0 and up to an hour", "inactive is %v", p.Inactive)
	case p.Flush <= 0 || p.Flush > time.Second:
		return fieldError("flush", "use a time above 0 and up to a second", "flush is %v", p.Flush)
	case p.Flush > p.Inactive/2:
		return fieldError("flush", "use at most half of inactive", "flush is %v and inactive is %v", p.Flush, p.Inactive)
	case p.Flows < flowtable.Ways || p.Flows > flowtable.MaxEntries || p.Flows&(p.Flows-1) != 0:
		return fieldError("flows", fmt.Sprintf("use a power of two from %d to %d", flowtable.Ways, flowtable.MaxEntries), "flow tables of %d entries", p.Flows)
	case p.Queues < 1 || p.Queues > reorder.MaxQueues:
		return fieldError("queues", fmt.Sprintf("use 1 to %d", reorder.MaxQueues), "%d queues", p.Queues)
	case p.Packets < 1 || p.Packets > 1<<24:
		return fieldError("packets", fmt.Sprintf("use 1 to %d", 1<<24), "%d packets", p.Packets)
	}
	return nil
}

// Holds returns how many packets may be held.
func (p *PrestoParams) Holds() int { return p.Packets }

// Limit returns p with at most so many packets held.
func (p *PrestoParams) Limit(packets int) Params {
	c := *p
	c.Packets = min(c.Packets, packets)
	return &c
}

// presto sends each flowcell of a flow by the next path in turn (§3.1), beginning with
// one at random. Paths with weights have as many turns as they weigh, where the paper
// names a path several times in the list of turns. On the wire Arg numbers the flowcells of a flow, from 0 on. Tail marks
// the last packet of each, and Rerouted those of a flowcell that is not to wait for the
// one before: the flow's first, and one that begins because a path has gone. Epoch tells
// a flow that began anew from what it was before.
type presto struct {
	cell  uint32
	seed  uint64
	rng   *rand.PCG
	flows flowtable.Table[prestoFlow]
	plain plainTimes
	stats PrestoStats
}

// prestoFlow is what is known of a flow under way.
type prestoFlow struct {
	sent   uint32 // of the present flowcell, bytes
	cell   uint16 // its number
	uplink uint8  // that it takes
	state  prestoState
	epoch  overlay.Epoch
}

// prestoState is where a flow is, with flags.
type prestoState uint8

const (
	prestoAlone prestoState = 1 << iota // the flowcell does not wait for the one before
	prestoEnded                         // the flowcell has had its last packet
)

// PrestoStats counts what Presto's sending side did.
type PrestoStats struct {
	Flows     uint64 `help:"Flows that began, or began again after a pause."`
	Cells     uint64 `help:"Flowcells that began."`
	Cut       uint64 `help:"Flowcells that ended early because their path went away."`
	Overflow  uint64 `stat:"overflow_frames" unit:"frames" help:"Frames sent by hash because the table of flows had no room."`
	Incapable uint64 `stat:"incapable_frames" unit:"frames" help:"Frames sent by hash because the leaf does not read the fabric's fields."`
}

func newPresto(o *Options) Policy {
	p := o.Section.(*PrestoParams)
	return &presto{
		cell: uint32(p.Cell), seed: o.Seed, rng: newRNG(o),
		flows: flowtable.New[prestoFlow](p.Flows, mono.Time(p.Inactive)), plain: make(plainTimes, o.Leaves),
	}
}

// Stats returns the counters.
func (s *presto) Stats() Stats {
	own := s.stats
	return Stats{Decisions: own.Cells, Own: &own}
}

// Choose counts each flow's bytes, and goes to the next path where a flowcell is full.
func (s *presto) Choose(now mono.Time, v *View, pkts []Packet) {
	for i := range pkts {
		p := &pkts[i]
		paths := &v.Paths[p.Leaf]
		p.Marks = Marks{}
		if paths.N == 0 {
			continue
		}
		if v.Capable != nil && !v.Capable.Capable(p.Leaf, now) {
			s.stats.Incapable++
			s.plain.note(p.Leaf, now)
			s.byHash(paths, p)
			continue
		}
		e := s.find(now, p, paths)
		if e == nil {
			s.stats.Overflow++
			s.byHash(paths, p)
			continue
		}
		s.place(paths, p.Hash, e)
		e.sent += uint32(p.Len)
		if e.sent >= s.cell {
			e.state |= prestoEnded
		}
		p.Path = uint8(paths.Index[e.uplink])
		p.Marks = Marks{
			Shim: true, Arg: overlay.Tstamp(e.cell), Epoch: e.epoch, Selector: s.selector(p.Hash),
			Tail: e.state&prestoEnded != 0, Rerouted: e.state&prestoAlone != 0,
		}
	}
}

// place begins a flowcell if the flow's last one has ended, or its path has gone.
func (s *presto) place(paths *Paths, hash uint32, e *prestoFlow) {
	at := paths.Index[e.uplink%MaxPaths]
	switch {
	case e.state&prestoEnded != 0:
		e.state = 0
	case at < 0:
		s.stats.Cut++
		e.state = prestoAlone
	default:
		return
	}
	s.stats.Cells++
	e.cell++
	e.sent = 0
	next := uint8(int(at)+1) % paths.N // the first path, if the last one has gone
	if paths.Weighted {
		// Steps of the golden section meet each part of a range in turn, too, as often as
		// it is large.
		next = paths.Share(hash + uint32(e.cell)*0x9E3779B9)
	}
	e.uplink = paths.Uplink[next%MaxPaths]
}

// underWay reports whether a flow goes on: it has not paused, and its leaf was sent no plain
// packet since.
func (s *presto) underWay(now mono.Time, leaf uint16, e *flowtable.Entry[prestoFlow]) bool {
	return !s.plain.since(leaf, e.Last) && !s.flows.Aged(now, e)
}

// find returns what is known of a packet's flow, as new if it had no entry or is not under
// way; nil: there is no room.
func (s *presto) find(now mono.Time, p *Packet, paths *Paths) *prestoFlow {
	e := s.flows.Find(p.Hash, p.Leaf)
	if e != nil && s.underWay(now, p.Leaf, e) {
		e.Last = now
		return &e.V
	}
	known := e != nil
	if !known {
		if e = s.flows.Insert(now, p.Hash, p.Leaf); e == nil {
			return nil
		}
	}
	s.stats.Flows++
	s.stats.Cells++
	epoch := overlay.Epoch(draw(s.rng, 4)) // tables may be new, and flows not
	if known {
		epoch = e.V.epoch.Next()
	}
	e.Last = now
	e.V = prestoFlow{state: prestoAlone, epoch: epoch, uplink: paths.Uplink[paths.draw(s.rng)%MaxPaths]}
	return &e.V
}

// byHash sends a packet as ecmp does.
func (s *presto) byHash(paths *Paths, p *Packet) {
	p.Path = paths.byHash(p.Hash, s.seed)
	p.Selector = s.selector(p.Hash)
}

// selector returns the next tier's choice for a flow. The next tier has no turn.
func (s *presto) selector(hash uint32) uint8 {
	return selectorByHash(hash, s.seed)
}

// prestoReceiver puts the flowcells of flows in order, which the paper has the hosts'
// receive offload do (§3.2): a packet of the flowcell that is due goes on, for a path
// keeps the order; one of a later flowcell waits until the ones before have had their
// last packets, or until it has waited for Flush.
type prestoReceiver struct {
	flush   mono.Time
	idle    mono.Time // half of Inactive: a flow that was silent for so long may begin anew
	packets int

	flows  flowtable.Table[prestoOrder]
	queues []prestoQueue
	free   int32

	oldest, newest int32    // queues that hold something, by when they began to
	drained        []uint16 // of the present vector; verdicts have parts of it
	returns        []uint16 // where pending begins
	pending        []uint16 // queues that Expire or Flush has yet to return
	stats          PrestoReceiverStats
}

// prestoOrder is what is known of a flow that arrives. The flow is pinned while it has
// queues.
type prestoOrder struct {
	queue int32  // of the first flowcell that waits; they are in order
	cell  uint16 // that is due
	epoch overlay.Epoch
	ended bool // cell has had its last packet
}

// prestoEntry is a flow in the table.
type prestoEntry = flowtable.Entry[prestoOrder]

// prestoQueue is the packets of one flowcell that are held.
type prestoQueue struct {
	since        mono.Time // arrival of the first one
	cell         uint16
	ended        bool // the last packet is among them
	packets      int32
	flow         int32
	next         int32 // of the flow, by number; or free
	older, newer int32 // of all that hold something
}

const none = int32(-1)

// PrestoReceiverStats counts what Presto's receiving side did.
type PrestoReceiverStats struct {
	Packets   uint64 `stat:"arrived_frames" unit:"frames" help:"Frames that arrived with Presto's marks."`
	Held      uint64 `stat:"held_frames" unit:"frames" help:"Frames that had to wait for an earlier flowcell."`
	Flushes   uint64 `help:"Flowcells that were sent on because one before them did not come in time."`
	Exhausted uint64 `help:"Times that a flow's flowcells were sent on because there was no room for one more frame."`
	Late      uint64 `stat:"late_frames" unit:"frames" help:"Frames of a flowcell before one that was sent on."`
	NoFlow    uint64 `stat:"no_flow_frames" unit:"frames" help:"Frames sent on as they came because the table of flows had no room."`

	InUse       int `stat:"cells_held,gauge" help:"Flowcells whose frames are held."`
	InUsePeak   int `stat:"cells_held_peak,max" metric:"-" help:"Most flowcells whose frames were ever held at a time."`
	Waiting     int `stat:"waiting_frames,gauge" unit:"frames" help:"Frames that are held."`
	WaitingPeak int `stat:"waiting_peak_frames,max" metric:"-" unit:"frames" help:"Most frames that were ever held at a time."`

	// The peaks say neither when nor how often, and are for answers and for results.
	CellsDepth   stat.Sizes `stat:"cells_held_depth" help:"Flowcells whose frames a worker held, each time that the first frame of one had to wait."`
	WaitingDepth stat.Sizes `stat:"waiting_depth_frames" unit:"frames" help:"Frames that a worker held, at each one that has to wait."`
}

func newPrestoReceiver(o *Options) (*prestoReceiver, error) {
	p := o.Section.(*PrestoParams)
	r := &prestoReceiver{
		flush: mono.Time(p.Flush), idle: mono.Time(p.Inactive / 2), packets: p.Packets,
		flows:  flowtable.New[prestoOrder](p.Flows, mono.Time(p.Inactive/2)),
		queues: make([]prestoQueue, p.Queues), free: none, oldest: none, newest: none,
		drained: make([]uint16, 0, p.Queues+64), returns: make([]uint16, 0, p.Queues),
	}
	r.pending = r.returns
	for i := len(r.queues) - 1; i >= 0; i-- {
		r.queues[i].next, r.free = r.free, int32(i)
	}
	return r, nil
}

// Receive decides about packets in the order in which they came.
func (r *prestoReceiver) Receive(now mono.Time, pkts []reorder.Arrival) {
	r.drained = r.drained[:0]
	if r.newest != none && now < r.queues[r.newest].since { // the clock was set back
		for q := r.oldest; q != none; q = r.queues[q].newer {
			r.queues[q].since = now
		}
	}
	for i := range pkts {
		r.arrive(now, &pkts[i])
	}
}

func (r *prestoReceiver) arrive(now mono.Time, p *reorder.Arrival) {
	r.stats.Packets++
	p.Verdict, p.Also = reorder.Pass, nil
	e := r.find(now, p)
	if e == nil {
		r.stats.NoFlow++
		return
	}
	f, cell, start := &p.Fabric, uint16(p.Fabric.Arg), len(r.drained)
	if r.begins(now, e, f) {
		r.begin(e, f)
	}
	e.Last = now
	ahead := int16(cell - e.V.cell)
	switch {
	case ahead < 0 || f.Epoch != e.V.epoch:
		r.stats.Late++
		return
	case ahead == 0:
	case f.Rerouted || ahead == 1 && e.V.ended:
		r.skip(e, cell)
	case r.hold(now, e, p):
		r.verdict(p, reorder.DrainHold, start)
		return
	default:
		r.stats.Exhausted++
		r.skip(e, cell)
	}
	r.verdict(p, reorder.DrainPass, start)
	e.V.ended = e.V.ended || f.Tail
	// A verdict names queues before the packet or behind it. What could follow on both
	// waits for the flow's next packet, or Flush.
	if p.Verdict == reorder.Pass {
		r.follow(e)
		r.verdict(p, reorder.PassDrain, start)
	}
}

// verdict has the queues that were drained from first on sent on with a packet.
func (r *prestoReceiver) verdict(p *reorder.Arrival, v reorder.Verdict, first int) {
	if list := r.drained[first:]; len(list) > 0 {
		p.Verdict, p.Drain, p.Also = v, list[0], list[1:]
	}
}

// begins reports whether a flow begins anew with a packet: after a pause, or because
// its source has forgotten it. Packets from before that come later do not begin it
// again, unless they are of its first flowcells, too.
func (r *prestoReceiver) begins(now mono.Time, e *prestoEntry, f *overlay.Fabric) bool {
	other, cell := f.Epoch != e.V.epoch, uint16(f.Arg)
	if now.Apart(e.Last, r.idle) {
		return other || int16(cell-e.V.cell) < 0
	}
	return other && (f.Rerouted || cell < MaxPaths)
}

// begin begins a flow with the first packet of it that comes. If that is of another
// flowcell than the first, it may have overtaken that: there are no more flowcells under
// way by other paths, and before it on its own, than there are paths. A flow that is
// further on was forgotten here.
func (r *prestoReceiver) begin(e *prestoEntry, f *overlay.Fabric) {
	for e.V.queue != none {
		r.take(e)
	}
	e.V.epoch, e.V.cell, e.V.ended = f.Epoch, uint16(f.Arg), false
	if !f.Rerouted && e.V.cell < MaxPaths {
		e.V.cell = 0
	}
}

// find returns the entry of a packet's flow, a new one that begins with the packet if it
// has none; nil: there is no room.
func (r *prestoReceiver) find(now mono.Time, p *reorder.Arrival) *prestoEntry {
	e := r.flows.Find(p.Hash, p.Leaf)
	if e == nil {
		if e = r.flows.Insert(now, p.Hash, p.Leaf); e == nil {
			return nil
		}
		e.V.queue = none
		r.begin(e, &p.Fabric)
	}
	return e
}

// hold keeps a packet of a later flowcell. It reports false if there is no room.
func (r *prestoReceiver) hold(now mono.Time, e *prestoEntry, p *reorder.Arrival) bool {
	if r.stats.Waiting == r.packets {
		return false
	}
	cell := uint16(p.Fabric.Arg)
	link := &e.V.queue
	for *link != none && int16(r.queues[*link].cell-cell) < 0 {
		link = &r.queues[*link].next
	}
	if *link == none || r.queues[*link].cell != cell {
		q := r.free
		if q == none {
			return false
		}
		r.free = r.queues[q].next
		r.queues[q] = prestoQueue{since: now, cell: cell, flow: r.flows.Index(e), next: *link, older: r.newest, newer: none}
		*link = q
		e.Pin()
		if r.newest == none {
			r.oldest = q
		} else {
			r.queues[r.newest].newer = q
		}
		r.newest = q
		r.stats.InUse++
		r.stats.InUsePeak = max(r.stats.InUsePeak, r.stats.InUse)
		r.stats.CellsDepth.Add(uint64(r.stats.InUse))
	}
	q := &r.queues[*link]
	q.packets++
	q.ended = q.ended || p.Fabric.Tail
	r.stats.Held++
	r.stats.Waiting++
	r.stats.WaitingPeak = max(r.stats.WaitingPeak, r.stats.Waiting)
	r.stats.WaitingDepth.Add(uint64(r.stats.Waiting))
	p.Verdict, p.Hold = reorder.Hold, uint16(*link)
	return true
}

// skip makes a flowcell the one that is due, and drains the flow's queues up to it.
func (r *prestoReceiver) skip(e *prestoEntry, cell uint16) {
	e.V.cell, e.V.ended = cell, false
	for e.V.queue != none && int16(r.queues[e.V.queue].cell-cell) <= 0 {
		q := &r.queues[e.V.queue]
		e.V.ended = q.ended && q.cell == cell
		r.take(e)
	}
}

// follow drains the flow's queues of the flowcells that follow on one that has ended,
// as far as none is missing.
func (r *prestoReceiver) follow(e *prestoEntry) {
	for e.V.ended && e.V.queue != none && r.queues[e.V.queue].cell == e.V.cell+1 {
		e.V.cell, e.V.ended = e.V.cell+1, r.queues[e.V.queue].ended
		r.take(e)
	}
}

// take drains the first queue of a flow and frees it: the driver sends on what it held
// before it looks at anything else.
func (r *prestoReceiver) take(e *prestoEntry) {
	i := e.V.queue
	q := &r.queues[i]
	if e.V.queue = q.next; e.V.queue == none {
		e.Unpin()
	}
	if q.older == none {
		r.oldest = q.newer
	} else {
		r.queues[q.older].newer = q.newer
	}
	if q.newer == none {
		r.newest = q.older
	} else {
		r.queues[q.newer].older = q.older
	}
	r.stats.Waiting -= int(q.packets)
	r.stats.InUse--
	q.next, r.free = r.free, i
	r.drained = append(r.drained, uint16(i))
}

// MayHold reports whether Receive might hold such a packet.
func (r *prestoReceiver) MayHold(*reorder.Arrival) bool { return true }

// Expire returns a queue for whose flowcell the ones before did not come in time.
func (r *prestoReceiver) Expire(now mono.Time) (queue int, ok bool) {
	if len(r.pending) == 0 && r.oldest != none {
		// One that has come in the future has waited for long: the clock was set back.
		if waited := now - r.queues[r.oldest].since; waited < r.flush && waited >= 0 {
			return 0, false
		}
	}
	return r.Flush(now)
}

// giveUp sends on a flowcell, with those of its flow that wait before it and those
// that follow on it.
func (r *prestoReceiver) giveUp(queue int32) {
	r.stats.Flushes++
	q := &r.queues[queue]
	e := r.flows.At(q.flow)
	r.drained = r.drained[:0]
	r.skip(e, q.cell)
	r.follow(e)
	r.pending = append(r.pending, r.drained...)
}

// Flush is Expire for any queue, whatever its time.
func (r *prestoReceiver) Flush(mono.Time) (queue int, ok bool) {
	if len(r.pending) == 0 && r.oldest != none {
		r.giveUp(r.oldest)
	}
	if len(r.pending) == 0 {
		return 0, false
	}
	q := r.pending[0]
	if r.pending = r.pending[1:]; len(r.pending) == 0 {
		r.pending = r.returns
	}
	return int(q), true
}

// Deadline returns when Expire is to be called next.
func (r *prestoReceiver) Deadline() mono.Time {
	if r.oldest == none {
		return reorder.Never
	}
	return r.queues[r.oldest].since + r.flush
}

// Outbox is empty: nobody waits for an answer.
func (r *prestoReceiver) Outbox() []overlay.Message { return nil }

// Queues returns the limits of what is held.
func (r *prestoReceiver) Queues() (queues, perQueue, packets int) {
	return len(r.queues), r.packets, r.packets
}

// Grace returns Flush: what a driver has not read yet may be what is missing.
func (r *prestoReceiver) Grace() mono.Time { return r.flush }

// Stats returns a pointer to a copy of the counters.
func (r *prestoReceiver) Stats() any { s := r.stats; return &s }
