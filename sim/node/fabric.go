package node

import (
	"github.com/loomfabric/loom/sim/engine"
	"github.com/loomfabric/loom/sim/network"
)

// fromFabric takes a packet out of its tunnel: what its header says of
// congestion is noted even if the packet is not wanted, control packets end
// here, and the others go on to a host behind this leaf only (split horizon).
func (l *Leaf) fromFabric(now engine.Time, p *network.Packet) {
	if p.DstLeaf != l.Index || int(p.SrcLeaf) >= len(l.peers) {
		l.net.Drop(p, network.Unwanted)
		return
	}
	t := now.Mono()
	if l.exchange != nil {
		l.hear(p.SrcLeaf, t)
		l.exchange.Arrive(p.SrcLeaf, t, &p.Fabric)
	}
	if p.Kind == network.Control {
		l.control(now, p)
		return
	}
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
	l.stats.Decapsulated++
	if l.order != nil {
		l.order.arrive(now, p, port)
		return
	}
	port.Send(now, p, p.Class)
}

// control ends a control packet: a scheme that signals hears of it. It carries
// the headers of the packet that caused it, of which Seq says the kind, and
// goes to the class that these belong to.
func (l *Leaf) control(now engine.Time, p *network.Packet) {
	l.stats.Control++
	p.Kind = network.Kind(p.Seq)
	c := l.classify(p)
	p.Kind = network.Control
	if c.signal == nil {
		l.stats.Unheard++
	} else {
		c.signal.Hear(now.Mono(), p.SrcLeaf, p.Hash, &p.Fabric)
	}
	l.net.Consume(p)
}
