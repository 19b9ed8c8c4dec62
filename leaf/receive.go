package leaf

import (
	"fmt"
	"slices"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/overlay"
	"github.com/loomfabric/loom/reorder"
)

// receiver is a scheme's receiving side, and what is held for it.
type receiver[T any] struct {
	scheme *balance.Scheme
	r      balance.Receiver
	holds  *reorder.Holds[kept[T]]
}

// kept is a packet that is held.
type kept[T any] struct {
	item   T
	uplink uint8 // that it came by
}

// Output is what there is to do after a call of Arrive, Tick or Flush. It is valid
// until the next one. The driver sends the messages first: they carry the headers of
// packets that are then delivered.
type Output[T any] struct {
	Messages []Outgoing[T]
	Deliver  []T // packets to send on, in this order
	Copies   []T // packets to drop: copies of what has come
	Retry    []Waiting[T]
}

// Outgoing is a message to send. Its header is complete.
type Outgoing[T any] struct {
	overlay.Message
	Item T   // whose headers it carries; meant unless Cause is overlay.NoCause
	Path int // index of the leaf's paths by which it leaves; meant unless it is for a neighbour
	// Hello is the body of a HELLO; meant if the opcode says that it is one.
	Hello overlay.Hello
}

// hears reports whether packets of a scheme's wire number may come.
func (c *Config) hears(wire overlay.SchemeID) bool {
	if c.Senders == nil {
		return true
	}
	is := func(name string) bool {
		s := balance.Find(name)
		return s != nil && s.Wire == wire
	}
	return slices.ContainsFunc(c.Senders, is) || slices.ContainsFunc(c.Classes, func(r ClassConfig) bool { return is(r.Scheme) })
}

// makeReceivers makes the receiving sides of all schemes that other leaves may send by:
// whichever scheme a leaf's own traffic has, they take for granted that one which reads
// the fabric's fields puts packets in order.
func (l *Leaf[T]) makeReceivers() error {
	held := 0
	for _, s := range balance.Schemes() {
		l.wires |= 1 << s.Wire
		if s.Receiver == nil || !l.cfg.hears(s.Wire) {
			continue
		}
		o := l.cfg.options(s, balance.Options{Peers: l.shared.Paths})
		if err := s.Complete(&o); err != nil {
			return fmt.Errorf("scheme %s: %w", s.Name, err)
		}
		var err error
		if o.Shared, err = l.shared.state(s, o); err != nil {
			return fmt.Errorf("scheme %s: %w", s.Name, err)
		}
		r, err := s.Receiver(&o)
		if err != nil {
			return fmt.Errorf("scheme %s: %w", s.Name, err)
		}
		queues, perQueue, packets := r.Queues()
		rx := &receiver[T]{scheme: s, r: r, holds: reorder.NewHolds[kept[T]](queues, packets, perQueue)}
		l.receivers[s.Wire] = rx
		l.active = append(l.active, rx)
		held += packets
	}
	l.wires &^= 1 // 0 is none
	for _, rx := range l.active {
		if rx.scheme.Exact {
			l.exact |= 1 << rx.scheme.Wire
		}
	}
	l.out.Deliver = make([]T, 0, Burst+held)
	l.out.Copies = make([]T, 0, Burst)
	l.out.Messages = make([]Outgoing[T], 0, 4*Burst)
	l.said = make([]overlay.Message, 0, Burst)
	return nil
}

// reset empties the output, and begins a call with what is known of paths now.
func (l *Leaf[T]) reset() *Output[T] {
	l.follow()
	o := &l.out
	o.Messages, o.Deliver, o.Copies, o.Retry = o.Messages[:0], o.Deliver[:0], o.Copies[:0], o.Retry[:0]
	return o
}

// Arrive decides about tenants' packets of one burst, in the order in which they
// came: Marked ones, and Plain ones that must not overtake them. uplinks are those
// that they came by.
func (l *Leaf[T]) Arrive(now mono.Time, pkts []reorder.Arrival, items []T, uplinks []uint8) *Output[T] {
	o := l.reset()
	for first := 0; first < len(pkts); {
		rx := l.receiverOf(&pkts[first])
		end := first + 1
		for end < len(pkts) && l.receiverOf(&pkts[end]) == rx {
			end++
		}
		if rx == nil {
			o.Deliver = append(o.Deliver, items[first:end]...)
		} else {
			for i := first; i < end; i++ {
				pkts[i].Uplink = uplinks[i]
			}
			rx.r.Receive(now, pkts[first:end])
			for _, m := range rx.r.Outbox() {
				l.answer(now, m, items[first+int(m.Cause)], uplinks[first+int(m.Cause)])
			}
			for i := first; i < end; i++ {
				if pkts[i].Verdict == reorder.Pass {
					o.Deliver = append(o.Deliver, items[i])
				} else {
					l.apply(rx, &pkts[i], items[i], uplinks[i])
				}
			}
		}
		first = end
	}
	return o
}

// Exact reports whether a Marked packet is for a receiver that wants to know Key and
// TCPFlags of it.
func (l *Leaf[T]) Exact(f *overlay.Fabric) bool {
	return l.exact>>(f.Scheme&(overlay.NumSchemes-1))&1 != 0
}

// receiverOf returns the receiver that a packet is for; nil: none.
func (l *Leaf[T]) receiverOf(p *reorder.Arrival) *receiver[T] {
	if !p.Fabric.Shim {
		return nil
	}
	return l.receivers[p.Fabric.Scheme&(overlay.NumSchemes-1)]
}

// MayHold reports whether a packet might have to wait, for drivers that account for
// memory first.
func (l *Leaf[T]) MayHold(p *reorder.Arrival) bool {
	rx := l.receiverOf(p)
	return rx != nil && rx.r.MayHold(p)
}

// apply does with a packet that does not just pass what its receiver says.
func (l *Leaf[T]) apply(rx *receiver[T], p *reorder.Arrival, item T, uplink uint8) {
	o := &l.out
	v := p.Verdict
	if v.DrainBefore() {
		l.drainAll(rx, p)
	}
	switch {
	case v == reorder.Discard:
		o.Copies = append(o.Copies, item)
	case v.Held() && rx.holds.Push(int(p.Hold), kept[T]{item, uplink}):
	default:
		o.Deliver = append(o.Deliver, item)
	}
	if v.DrainAfter() {
		l.drainAll(rx, p)
	}
}

// drainAll delivers what the queues held that a packet's verdict names.
func (l *Leaf[T]) drainAll(rx *receiver[T], p *reorder.Arrival) {
	l.drain(rx, int(p.Drain))
	for _, q := range p.Also {
		l.drain(rx, int(q))
	}
}

// drain delivers what a queue held.
func (l *Leaf[T]) drain(rx *receiver[T], q int) {
	for {
		k, ok := rx.holds.Pop(q)
		if !ok {
			return
		}
		l.out.Deliver = append(l.out.Deliver, k.item)
	}
}

// expire delivers what has waited for its time.
func (l *Leaf[T]) expire(now mono.Time, rx *receiver[T]) {
	for q, ok := rx.r.Expire(now); ok; q, ok = rx.r.Expire(now) {
		if first, ok := rx.holds.Peek(q); ok {
			for _, m := range rx.r.Outbox() {
				m.Cause = 0
				l.answer(now, m, first.item, first.uplink)
			}
		}
		l.drain(rx, q)
	}
}

// Flush delivers all that is held, for a driver that stops or whose peers have
// changed: an answer about them would go to another one.
func (l *Leaf[T]) Flush(now mono.Time) *Output[T] {
	o := l.reset()
	for _, rx := range l.active {
		for q, ok := rx.r.Flush(now); ok; q, ok = rx.r.Flush(now) {
			l.drain(rx, q)
		}
	}
	l.gate.due(reorder.Never, o)
	return o
}

// Held returns how many packets are held.
func (l *Leaf[T]) Held() int {
	n := len(l.gate.heap)
	for _, rx := range l.active {
		n += rx.holds.Total()
	}
	return n
}

// Receiver returns the receiving side of a wire number; nil: there is none.
func (l *Leaf[T]) Receiver(id overlay.SchemeID) balance.Receiver {
	if rx := l.receivers[id&(overlay.NumSchemes-1)]; rx != nil {
		return rx.r
	}
	return nil
}

// answer says what a receiver has to say, unless the leaf that caused it has used its
// budget up.
func (l *Leaf[T]) answer(now mono.Time, m overlay.Message, item T, uplink uint8) {
	if m.Link == overlay.AnyLink && !l.budgets.take(m.Leaf, now) {
		l.stats.Unsent.OverBudget++
		return
	}
	l.say(now, m, item, uplink)
}

// say completes a message to a leaf and puts it into the output. It goes back by the
// uplink that its cause came by, if that leads to the leaf, so that a path which
// loses packets is not the only one to bring answers about others; else by hash. To
// a leaf that no longer reads the fabric's fields nothing is said.
func (l *Leaf[T]) say(now mono.Time, m overlay.Message, item T, uplink uint8) {
	x := Outgoing[T]{Message: m, Item: item}
	x.Fabric.Capable = true
	if m.Link == overlay.AnyLink {
		if int(m.Leaf) >= len(l.view.Paths) || l.view.Paths[m.Leaf].N == 0 {
			l.stats.Unsent.NoPath++
			return
		}
		paths := &l.view.Paths[m.Leaf]
		x.Path = int(uint64(m.Hash) * uint64(paths.N) >> 32)
		if uplink < balance.MaxPaths && paths.Index[uplink] >= 0 {
			x.Path = int(paths.Index[uplink])
		}
		var f overlay.Fabric
		if !l.exchange.Depart(m.Leaf, paths.Uplink[x.Path], m.Fabric.Path, now, &f) {
			l.stats.Unsent.Incapable++
			return
		}
		x.Fabric.LBTag = f.LBTag
		x.Fabric.FBValid, x.Fabric.FBTag, x.Fabric.FBMetric = f.FBValid, f.FBTag, f.FBMetric
		if l.on {
			x.Path = int(l.index[m.Leaf][x.Path])
		}
	}
	l.out.Messages = append(l.out.Messages, x)
}
