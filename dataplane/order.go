package dataplane

import (
	"fmt"
	"math/bits"
	"unsafe"

	"github.com/loomfabric/loom/dataplane/xsk"
	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/overlay"
	"github.com/loomfabric/loom/reorder"
)

// order is a worker's destination side of ConWeave: reorder.ConWeave decides
// which frames of other leaves wait, and this keeps them. Every leaf has it,
// whatever its own scheme: the one that sends decides about rerouting, and takes
// for granted that a peer which reads the fabric's fields puts packets in order.
//
// A queue is drained into the data queue of its egress port, ahead of the packet
// that comes next, and behind those that stand there: the flow's packets of the
// OLD path are among them.
type order struct {
	side   *reorder.ConWeave[uint32] // of numbers of UMEM frames
	frames []waiting                 // by that number: what waits; others are stale
	shift  uint8                     // from a frame's offset to its number
	held   int                       // frames
	grace  mono.Time                 // how much later than T_resume a backlog is read first
	stats  OrderStats
}

// waiting is a tenant's frame out of its tunnel, and where it goes when it may.
type waiting struct {
	frame
	to  member // its port is NoPort if it goes to all of its VNI
	vni VNIIndex
}

// OrderStats counts a destination's control packets that were not sent, by why.
type OrderStats struct {
	Incapable uint64 // the leaf no longer reads the fabric's fields
	NoPath    uint64 // no next hop with a known MAC address leads there
	NoFrame   uint64 // no free UMEM frame
}

// orderPorts is the number of ports that frames may wait for: those of the node,
// and behind them one that stands for all members of a VNI.
func orderPorts(ports int) int { return ports + 1 }

// newOrder makes a worker's order for a UMEM of so many bytes.
func newOrder(cfg *Config, area, frameSize int) (order, error) {
	side, err := reorder.New[uint32](cfg.Reorder)
	if err != nil {
		return order{}, fmt.Errorf("put packets in order: %w", err)
	}
	return order{
		side: side, frames: make([]waiting, area/frameSize), shift: uint8(bits.TrailingZeros(uint(frameSize))),
		grace: mono.Time(cfg.Reorder.ResumeExtra),
	}, nil
}

// arrive takes a tenant's frame whose header has ConWeave's fields: it goes on
// at once, or waits until what was sent before it has come.
func (w *worker) arrive(f *frame, vni VNIIndex, peer PeerID, to member, now mono.Time) {
	o, d := &w.order, &w.decap
	port := int(to.port)
	if to.port == NoPort {
		port = len(w.ports)
	}
	number := f.off >> o.shift
	verdict, q := o.side.Arrive(now, uint16(peer), f.hash, &d.Fabric, overlay.ECN(d.TOS&3) == overlay.CE, number, uint32(f.len), port)
	for _, m := range o.side.Outbox() {
		w.answer(&m, f, vni, now)
	}
	if verdict.DrainBefore() {
		w.drainOrder(q)
	}
	if verdict.Held() {
		o.frames[number] = waiting{*f, to, vni}
		o.held++
	} else {
		w.release(f, vni, to)
	}
	if verdict.DrainAfter() {
		w.drainOrder(q)
	}
}

// touchOrder brings what is known of a burst's flows into the cache, all at a time.
func (w *worker) touchOrder(descs []xsk.Desc) {
	for i := range descs {
		off := uint32(descs[i].Addr)
		if uint64(off)&w.frameMask < overlay.MetaLen {
			continue
		}
		if m := (*overlay.Meta)(unsafe.Pointer(&w.area[off-overlay.MetaLen])); m.Magic == overlay.MetaMagic {
			w.order.side.Touch(m.Hash)
		}
	}
}

// release sends a tenant's frame on that need not wait, or need no longer.
func (w *worker) release(f *frame, vni VNIIndex, to member) {
	if to.port == NoPort {
		w.floodLocal(f, vni)
		return
	}
	w.deliver(f, to)
}

// drainOrder sends on what a queue held.
func (w *worker) drainOrder(q int) {
	for {
		number, ok := w.order.side.Pop(q)
		if !ok {
			return
		}
		x := &w.order.frames[number]
		w.order.held--
		w.release(&x.frame, x.vni, x.to)
	}
}

// expireOrder drains the queues whose T_resume has passed. Time in which a worker
// did not look is not the network's: what waits in its rings is read first, the
// TAIL perhaps among it. behind says that there may be more of it; it counts for a
// while only, as under load there always is.
func (w *worker) expireOrder(now mono.Time, behind bool) {
	o := &w.order
	if o.held == 0 || behind && now-o.grace < o.side.Deadline() {
		return
	}
	for q, ok := o.side.Expire(now); ok; q, ok = o.side.Expire(now) {
		if number, ok := o.side.Peek(q); ok {
			first := &o.frames[number]
			for _, m := range o.side.Outbox() {
				w.answer(&m, &first.frame, first.vni, now)
			}
		}
		w.drainOrder(q)
	}
}

// flushOrder sends on all that waits.
func (w *worker) flushOrder(now mono.Time) {
	for q, ok := w.order.side.Flush(now); ok; q, ok = w.order.side.Flush(now) {
		w.drainOrder(q)
	}
}
