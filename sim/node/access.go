package node

import (
	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/congestion"
	"github.com/loomfabric/loom/reorder"
	"github.com/loomfabric/loom/sim/engine"
	"github.com/loomfabric/loom/sim/network"
)

// Stats returns what happened so far.
func (l *Leaf) Stats() LeafStats { return l.stats }

// ExchangeStats returns what leaves told each other; zero for a plain leaf.
func (l *Leaf) ExchangeStats() congestion.ExchangeStats {
	if l.exchange == nil {
		return congestion.ExchangeStats{}
	}
	return l.exchange.Stats()
}

// Policies returns the schemes at work, by traffic class, the default last.
func (l *Leaf) Policies() []balance.Policy {
	out := make([]balance.Policy, len(l.classes))
	for i := range l.classes {
		out[i] = l.classes[i].policy
	}
	return out
}

// ToLeaf and FromLeaf are the leaf's congestion tables; nil for a plain leaf.
func (l *Leaf) ToLeaf() *congestion.ToLeaf { return l.view.Remote }

// FromLeaf is the table of what packets from other leaves met on their way.
func (l *Leaf) FromLeaf() *congestion.FromLeaf { return l.from }

// Metric returns the congestion metric of an uplink's link as of now.
func (l *Leaf) Metric(now engine.Time, uplink int) uint8 {
	m := &l.uplinks[uplink]
	return m.dre.Metric(now.Mono(), m.port.Rate)
}

// HostPort returns the access port of a host; nil if it is not behind this leaf.
func (l *Leaf) HostPort(h network.HostID) *network.Port {
	if int(h) >= len(l.hosts) {
		return nil
	}
	return l.hosts[h]
}

// Reorder returns ConWeave's destination side, for its counters; nil if no
// class of the leaf signals.
func (l *Leaf) Reorder() *reorder.ConWeave[*network.Packet] {
	if l.order == nil {
		return nil
	}
	return l.order.side
}

// Held returns how many packets the leaf keeps to put them in order
// (network.Holder).
func (l *Leaf) Held() int {
	if l.order == nil {
		return 0
	}
	return l.order.held
}
