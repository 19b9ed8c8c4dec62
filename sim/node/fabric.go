package node

import (
	"time"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/congestion"
	"github.com/loomfabric/loom/leaf"
	"github.com/loomfabric/loom/liveness"
	"github.com/loomfabric/loom/overlay"
	"github.com/loomfabric/loom/reorder"
	"github.com/loomfabric/loom/sim/engine"
	"github.com/loomfabric/loom/sim/network"
)

// fromFabric takes a packet out of its tunnel: what its header says of
// congestion is noted even if the packet is not wanted, messages end here, and the
// others go on to a host behind this leaf only (split horizon).
func (l *Leaf) fromFabric(now engine.Time, p *network.Packet, uplink uint8) {
	if l.explores != nil {
		l.countExploring(p)
	}
	if p.DstLeaf != l.Index || int(p.SrcLeaf) >= len(l.paths) {
		l.net.Drop(p, network.Unwanted)
		return
	}
	if l.cfg.Plain {
		if p.Kind == network.Control {
			l.net.Consume(p) // whatever it says
			return
		}
		l.decapsulate(now, p, uplink, leaf.Plain)
		return
	}
	kind := l.brain.Accept(now.Mono(), p.SrcLeaf, &p.Fabric)
	switch kind {
	case leaf.Plain, leaf.Marked:
		l.decapsulate(now, p, uplink, kind)
	case leaf.Greeting:
		l.brain.Hello(now.Mono(), p.SrcLeaf, &p.Fabric, p.Hello)
		l.stats.Control++
		l.net.Consume(p)
	case leaf.Message:
		l.message(now, p)
	case leaf.Unknown, leaf.Forged:
		l.net.Drop(p, network.Unwanted)
	}
}

// countExploring counts what explores, for this leaf's hosts or flooded, and the payload
// of what goes on to hosts.
func (l *Leaf) countExploring(p *network.Packet) {
	switch {
	case l.explores(&p.Fabric):
		l.stats.Requests++
		l.stats.RequestBytes += uint64(p.Size)
	case p.Kind == network.Data:
		l.stats.DataBytes += uint64(p.Len)
	}
}

// message ends a message: the scheme handles it.
func (l *Leaf) message(now engine.Time, p *network.Packet) {
	l.note = overlay.Message{Leaf: p.SrcLeaf, Link: overlay.AnyLink, Cause: overlay.NoCause, Hash: p.Hash, Fabric: p.Fabric}
	if !l.brain.Handle(now.Mono(), -1, &l.note, true) {
		l.net.Drop(p, network.Unwanted)
		return
	}
	l.stats.Control++
	l.net.Consume(p)
	l.wake(now)
}

// decapsulate takes a host's packet out of its tunnel.
func (l *Leaf) decapsulate(now engine.Time, p *network.Packet, uplink uint8, kind leaf.Kind) {
	// A packet has one pair of ECN bits here, the outer header's while it is in
	// the fabric. It was copied from the inner one when the packet went in, and
	// can only have become CE since, so decapsulation (RFC 6040 §4.2) leaves it
	// as it is, but for a mark on what cannot be marked.
	if p.CE && !p.ECT {
		l.net.Drop(p, network.Unwanted)
		return
	}
	p.Size -= uint32(p.Overhead)
	p.Overhead = 0
	port := l.HostPort(p.Dst)
	if port == nil {
		l.net.Drop(p, network.NoRoute)
		return
	}
	if kind == leaf.Plain {
		port.Send(now, p, p.Class)
		return
	}
	l.arrival[0] = reorder.Arrival{
		Hash: p.Hash, Len: p.Size, Leaf: p.SrcLeaf, Port: uint16(port.Index - balance.MaxPaths), CE: p.CE, Express: p.Class == network.ControlClass, Fabric: p.Fabric,
	}
	if a := &l.arrival[0]; l.cfg.Exact != nil && l.brain.Exact(&a.Fabric) {
		var x balance.Exact
		l.cfg.Exact(p, &x)
		a.Key, a.TCPFlags = x.Key, x.TCPFlags
	}
	// One that may have to wait and finds no room in the leaf's memory is lost before
	// anybody counts on it.
	if l.brain.MayHold(&l.arrival[0]) && !port.Charge(now, p) {
		return
	}
	l.item[0], l.from[0] = p, uplink
	l.act(now, l.brain.Arrive(now.Mono(), l.arrival[:], l.item[:], l.from[:]))
	l.wake(now)
}

// act does what the brain says, in the order that leaf.Output asks for.
func (l *Leaf) act(now engine.Time, o *leaf.Output[*network.Packet]) {
	for i := range o.Messages {
		if m := &o.Messages[i]; m.Link == overlay.AnyLink {
			l.send(now, m)
		} else {
			l.tell(now, &m.Message)
		}
	}
	for _, p := range o.Deliver {
		l.hosts[p.Dst].Send(now, p, p.Class)
	}
	for _, p := range o.Copies {
		l.hosts[p.Dst].Release(now, p)
		l.net.Drop(p, network.Duplicate)
	}
	for i := range o.Retry {
		l.toFabric(now, o.Retry[i].Item)
	}
}

// minFrame is the smallest Ethernet frame without its FCS, bytes.
const minFrame = 60

// longFrame is the length of a padded HELLO, bytes: a frame of an MTU of 1500 without
// its FCS.
const longFrame = 1514

// send sends a message to a leaf, with the headers of the packet that caused it and no
// payload.
func (l *Leaf) send(now engine.Time, o *leaf.Outgoing[*network.Packet]) {
	p := l.net.Pool.Get()
	p.Kind, p.Hash, p.Fabric, p.Size = network.Control, o.Hash, o.Fabric, minFrame
	if p.Fabric.Opcode == overlay.OpHello {
		h := o.Hello
		p.Hello = &h
		p.Size = overlay.EthernetLen + overlay.HelloLen
		if h.Large {
			p.Size = longFrame
		}
	} else if cause := o.Item; o.Cause != overlay.NoCause {
		p.Flow, p.Src, p.Dst = cause.Flow, cause.Dst, cause.Src
		p.Size = max(cause.Size-min(cause.Len, cause.Size), minFrame)
	}
	p.SrcLeaf, p.DstLeaf, p.Overhead = l.Index, o.Leaf, l.cfg.Overhead
	if p.Fabric.Shim {
		p.Overhead += l.cfg.Shim
	}
	p.Size += uint32(p.Overhead)
	l.brain.Account(p.Fabric.Opcode, p.Size)
	l.stats.Messages++
	l.uplinks[l.paths[o.Leaf].Uplink[o.Path]].port.Send(now, p, network.ControlClass)
}

// longestQueue returns how long the full queue of an uplink takes at most; 0 if
// nothing but a shared memory limits them.
func (l *Leaf) longestQueue() (longest time.Duration) {
	for i := range l.uplinks {
		p := l.uplinks[i].port
		longest = max(longest, time.Duration(float64(p.Limit)*8/float64(p.Rate)*1e9))
	}
	return longest
}

// Stats returns what happened so far.
func (l *Leaf) Stats() LeafStats { return l.stats }

// Brain returns what decides, for its counters.
func (l *Leaf) Brain() *leaf.Leaf[*network.Packet] { return l.brain }

// ToLeaf and FromLeaf are the leaf's congestion tables.
func (l *Leaf) ToLeaf() *congestion.ToLeaf { return l.shared.To }

// FromLeaf is the table of what packets from other leaves met on their way.
func (l *Leaf) FromLeaf() *congestion.FromLeaf { return l.shared.From }

// Table is what is known of the paths to and from the other leaves.
func (l *Leaf) Table() *liveness.Table { return l.shared.Paths }

// Metric returns the congestion metric of an uplink's link as of now.
func (l *Leaf) Metric(now engine.Time, uplink int) uint8 {
	metric, _ := l.uplinks[uplink].link(now.Mono())
	return metric
}

// HostPort returns the access port of a host; nil if it is not behind this leaf.
func (l *Leaf) HostPort(h network.HostID) *network.Port {
	if int(h) >= len(l.hosts) {
		return nil
	}
	return l.hosts[h]
}

// Held returns how many packets the leaf keeps (network.Holder).
func (l *Leaf) Held() int {
	if l.brain == nil {
		return 0
	}
	return l.brain.Held()
}
