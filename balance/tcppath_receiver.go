package balance

import (
	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/overlay"
	"github.com/loomfabric/loom/reorder"
)

// tcpPathReceiver is what a leaf does with explorations that reach it: the first copy
// locks its path for the packets back (§III-B), and the others are late.
type tcpPathReceiver struct {
	shared *tcpPathShared
	seed   uint64
	worker int
	stats  TCPPathReceiverStats
}

// TCPPathReceiverStats counts what the receiving side of tcp-path and tfe did.
type TCPPathReceiverStats struct {
	Packets  uint64 `stat:"arrived_frames" unit:"frames" help:"Frames that arrived with TCP-Path's marks."`
	Requests uint64 `stat:"requests_frames" unit:"frames" help:"Frames that explored and came first: their paths were locked."`
	Late     uint64 `stat:"late_frames" unit:"frames" help:"Frames that explored and came behind another copy."`
	Bytes    uint64 `stat:"exploration_bytes" unit:"bytes" help:"Length of frames that explored, without outer headers."`
	NoRoom   uint64 `stat:"no_room_frames" unit:"frames" help:"Frames that explored in vain because the table of flows had no room."`
	Replies  uint64 `help:"Frames that confirmed a path which was explored here."`
	Stale    uint64 `stat:"stale_replies" help:"Frames that answered an exploration which is not under way."`
	// InTable is reported by one of the leaf's workers.
	InTable int `stat:"flows,gauge" help:"Connections and pairs of hosts that have an entry in the leaf's table."`
}

func newTCPPathReceiver(o *Options) *tcpPathReceiver {
	shared, ok := o.Shared.(*tcpPathShared)
	if !ok {
		shared = newTCPPathShared(o).(*tcpPathShared)
	}
	return &tcpPathReceiver{shared: shared, seed: tcpPathHashSeed(o), worker: o.Worker}
}

// Receive decides about packets in the order in which they came.
func (r *tcpPathReceiver) Receive(now mono.Time, pkts []reorder.Arrival) {
	r.shared.now.Store(int64(now))
	for i := range pkts {
		p := &pkts[i]
		p.Verdict, p.Also = reorder.Pass, nil
		r.stats.Packets++
		f := &p.Fabric
		if f.Opcode != overlay.OpData {
			continue
		}
		key := &p.Key
		if f.Epoch == tcpPathPair {
			pair := key.Pair()
			key = &pair
		}
		tag := tcpPathTag(key.ReverseHash(r.seed), p.Leaf) // of the packets that go back
		switch {
		case f.Rerouted == f.Tail:
			r.request(now, p, tag)
		case f.Rerouted:
			r.reply(now, f, tag)
		}
	}
}

// request locks the path of the first copy that comes.
func (r *tcpPathReceiver) request(now mono.Time, p *reorder.Arrival, tag uint64) {
	f, flows := &p.Fabric, r.shared.flows
	r.stats.Bytes += uint64(p.Len)
	w := flows.Find(tag)
	have := tcpPathFlow(w.Value)
	locked := makeTCPPathFlow(p.Uplink, f.Path.Selector(), f.Path.Uplink(), f.TxTstamp)
	// One by the path that is locked is no copy of one that came, whatever its number:
	// numbers wrap.
	if flows.Live(now, w) && !have.source() && have.number() == f.TxTstamp && have&^tcpPathConfirmed != locked {
		r.stats.Late++
		p.Verdict = reorder.Discard
		return
	}
	if w.Found() && flows.Set(now, w, uint32(locked)) || !w.Found() && flows.Insert(now, tag, uint32(locked)) {
		r.stats.Requests++
		return
	}
	r.stats.NoRoom++
	if f.Path != overlay.PathID(f.Arg) {
		p.Verdict = reorder.Discard
	}
}

// reply confirms the path that the other leaf has locked.
func (r *tcpPathReceiver) reply(now mono.Time, f *overlay.Fabric, tag uint64) {
	w := r.shared.flows.Find(tag)
	have := tcpPathFlow(w.Value)
	if !w.Found() || !have.source() || have.number() != f.Arg || have.confirmed() {
		r.stats.Stale++
		return
	}
	confirmed := makeTCPPathFlow(f.Path.Uplink(), f.Path.Selector(), f.LBTag, f.Arg) | tcpPathSource | tcpPathConfirmed
	if r.shared.flows.Set(now, w, uint32(confirmed)) {
		r.stats.Replies++
	}
}

// Entries returns how many flows are in the leaf's table.
func (r *tcpPathReceiver) Entries(now mono.Time) int { return r.shared.flows.Count(now) }

// MayHold says that no packet has to wait.
func (r *tcpPathReceiver) MayHold(*reorder.Arrival) bool { return false }

// Expire has no queue to return.
func (r *tcpPathReceiver) Expire(mono.Time) (queue int, ok bool) { return 0, false }

// Flush has no queue to return.
func (r *tcpPathReceiver) Flush(mono.Time) (queue int, ok bool) { return 0, false }

// Deadline returns that nothing is held.
func (r *tcpPathReceiver) Deadline() mono.Time { return reorder.Never }

// Outbox is empty: packets answer.
func (r *tcpPathReceiver) Outbox() []overlay.Message { return nil }

// Queues returns that there are none.
func (r *tcpPathReceiver) Queues() (queues, perQueue, packets int) { return 0, 0, 0 }

// Grace returns 0: nothing has a deadline.
func (r *tcpPathReceiver) Grace() mono.Time { return 0 }

// Stats returns a pointer to a copy of the counters.
func (r *tcpPathReceiver) Stats() any {
	s := r.stats
	if r.worker == 0 {
		s.InTable = r.Entries(mono.Time(r.shared.now.Load()))
	}
	return &s
}
