package node

import (
	"fmt"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/overlay"
	"github.com/loomfabric/loom/reorder"
	"github.com/loomfabric/loom/sim/engine"
	"github.com/loomfabric/loom/sim/network"
)

// order is a leaf's destination side of ConWeave: reorder.ConWeave decides, and
// this does as it says. It is there if any class of the leaf signals.
//
// A queue that is drained goes out by a class of its own, ahead of later
// packets (ConWeave §3.3.1), but not ahead of what stands in the port's data
// queue at the moment: the flow's packets of the OLD path are there, TAIL last.
// So its packets stay in the leaf until the port has sent these.
type order struct {
	leaf  *Leaf
	side  *reorder.ConWeave[*network.Packet]
	ports []outlet // by access port
	held  int      // packets in queues and outlets
	timer engine.Timer
	id    engine.ID
}

// outlet is where drained packets wait for an access port.
type outlet struct {
	gone  uint64 // bytes of Data that the port has begun to send
	ready bool   // an event is under way for the first of them
	first int    // in wait
	wait  []drained
}

// drained is a packet that was let go.
type drained struct {
	p     *network.Packet
	after uint64 // what gone must be for it
}

// newOrder makes the destination side for a leaf whose ports are all there.
func newOrder(l *Leaf, leaves int) (*order, error) {
	p := l.cfg.Reorder
	if p == (reorder.Params{}) {
		p = reorder.Datacenter()
	}
	p.Leaves, p.Ports = leaves, len(l.access)
	side, err := reorder.New[*network.Packet](p)
	if err != nil {
		return nil, fmt.Errorf("leaf %s: %w", l.Name, err)
	}
	o := &order{leaf: l, side: side, ports: make([]outlet, len(l.access)), timer: engine.NewTimer()}
	o.id = l.net.Engine.Register(o)
	return o, nil
}

// arrive takes a packet that came out of its tunnel.
func (o *order) arrive(now engine.Time, p *network.Packet, port *network.Port) {
	place := port.Index - balance.MaxPaths
	// Only these may have to wait. One that finds no room in the leaf's memory
	// is lost before anybody counts on it.
	if p.Fabric.Rerouted && !port.Charge(now, p) {
		return
	}
	v, q := o.side.Arrive(now.Mono(), p.SrcLeaf, p.Hash, &p.Fabric, p.CE, p, p.Size, place)
	o.answer(now, p)
	if v.DrainBefore() {
		o.drain(now, q, place)
	}
	if v.Held() {
		o.held++
	} else {
		port.Release(now, p)
		port.Send(now, p, p.Class)
		if v.DrainAfter() {
			o.drain(now, q, place)
		}
	}
	o.wake()
}

// drain empties a queue towards its port.
func (o *order) drain(now engine.Time, q, place int) {
	port, out := o.leaf.access[place], &o.ports[place]
	after := out.gone + port.QueuedIn(network.DataClass)
	for {
		p, ok := o.side.Pop(q)
		if !ok {
			break
		}
		if p.Class == network.ControlClass { // its flow's older packets went there too
			o.held--
			port.Release(now, p)
			port.Send(now, p, network.ControlClass)
			continue
		}
		out.wait = append(out.wait, drained{p, after})
	}
	o.release(now, place)
}

// release sends what no longer has to wait.
func (o *order) release(now engine.Time, place int) {
	port, out := o.leaf.access[place], &o.ports[place]
	for out.first < len(out.wait) && out.wait[out.first].after <= out.gone {
		p := out.wait[out.first].p
		out.wait[out.first].p = nil
		out.first++
		o.held--
		port.Release(now, p)
		port.Send(now, p, network.DrainClass)
	}
	if 2*out.first >= len(out.wait) { // room is found again at no cost a packet
		n := copy(out.wait, out.wait[out.first:])
		clear(out.wait[n:])
		out.first, out.wait = 0, out.wait[:n]
	}
}

// departing counts what an access port sends. What may go now is sent by an
// event: the port is in the middle of sending.
func (o *order) departing(now engine.Time, p *network.Packet, place int) {
	if p.Class != network.DataClass {
		return
	}
	out := &o.ports[place]
	out.gone += uint64(p.Size)
	if !out.ready && out.first < len(out.wait) && out.wait[out.first].after <= out.gone {
		out.ready = true
		o.leaf.net.Engine.At(now, o.id, uint64(place)<<1|eventRelease)
	}
}

// down lets go what waits for an access port that is down, to be dropped there:
// nothing is ahead of it any more.
func (o *order) down(now engine.Time, place int) {
	out := &o.ports[place]
	for i := out.first; i < len(out.wait); i++ {
		out.wait[i].after = out.gone
	}
	o.release(now, place)
}

// What the events are: the low bit of their argument. The access port's number
// stands above.
const (
	eventResume  = iota // a T_resume may have passed
	eventRelease        // a port has sent what drained packets wait for
)

// Handle is the engine's to call.
func (o *order) Handle(now engine.Time, arg uint64) {
	if arg&1 == eventRelease {
		place := int(arg >> 1)
		o.ports[place].ready = false
		o.release(now, place)
		return
	}
	if !o.timer.Due(o.leaf.net.Engine, now, o.id, eventResume) {
		return
	}
	for {
		q, ok := o.side.Expire(now.Mono())
		if !ok {
			break
		}
		p, ok := o.side.Peek(q)
		if !ok {
			continue
		}
		o.answer(now, p)
		place := o.leaf.hosts[p.Dst].Index - balance.MaxPaths
		o.drain(now, q, place)
	}
	o.wake()
}

// wake sets the timer to the earliest T_resume.
func (o *order) wake() {
	if at := o.side.Deadline(); at != reorder.Never {
		o.timer.Set(o.leaf.net.Engine, max(engine.Time(at)*engine.Nanosecond, o.leaf.net.Engine.Now()), o.id, eventResume)
	} else {
		o.timer.Off()
	}
}

// answer sends what the destination side has to say to sources about a packet,
// with its headers and no payload (§3.4).
func (o *order) answer(now engine.Time, cause *network.Packet) {
	for i := range o.side.Outbox() {
		c := &o.side.Outbox()[i]
		p := o.leaf.net.Pool.Get()
		p.Flow, p.Src, p.Dst, p.Hash, p.Kind = cause.Flow, cause.Dst, cause.Src, c.Hash, network.Control
		p.Size = max(cause.Size-min(cause.Len, cause.Size), minFrame)
		p.Seq = uint64(cause.Kind)
		o.leaf.signal(now, p, c)
	}
}

// minFrame is the smallest Ethernet frame without its FCS, bytes.
const minFrame = 60

// signal sends a control packet to a leaf, over a path by its hash. One to a
// leaf that no longer reads the fabric's fields is not for anybody.
func (l *Leaf) signal(now engine.Time, p *network.Packet, c *reorder.Control) {
	t := now.Mono()
	choice := &l.choice[0]
	choice.Hash, choice.Leaf, choice.Len = p.Hash, c.Leaf, uint16(p.Size)
	l.plain.Choose(t, &l.view, l.choice[:])
	paths := &l.view.Paths[c.Leaf]
	if paths.N == 0 {
		l.net.Drop(p, network.NoRoute)
		return
	}
	uplink := paths.Uplink[choice.Path]
	if !l.capableNow(c.Leaf, t) || !l.exchange.Depart(c.Leaf, uplink, overlay.MakePathID(uplink, uint8(p.Hash)), t, &p.Fabric) {
		l.net.Drop(p, network.Unwanted)
		return
	}
	p.SrcLeaf, p.DstLeaf, p.Overhead = l.Index, c.Leaf, l.cfg.Overhead
	if c.Mark(&p.Fabric); p.Fabric.Shim {
		p.Overhead += l.cfg.Shim
	}
	p.Size += uint32(p.Overhead)
	l.order.side.Account(c.Opcode, p.Size)
	l.stats.Signals++
	l.uplinks[uplink].port.Send(now, p, network.ControlClass)
}
