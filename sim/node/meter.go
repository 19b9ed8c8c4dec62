package node

import (
	"github.com/loomfabric/loom/congestion"
	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/sim/network"
)

// meter is a port towards the fabric and the meter of its link. A switch of the
// simulator is one worker, so its DRE is the link's.
type meter struct {
	port *network.Port
	dre  congestion.DRE
}

// depart does what the data plane's egress does with a packet whose first bit
// leaves: CE is raised to the link's metric, to which the packet itself does
// not count yet (CONGA §3.3, step 2), and then the link is metered (§3.2).
func (m *meter) depart(now mono.Time, p *network.Packet) {
	if p.Fabric.Capable && p.Kind != network.Link {
		p.Fabric.RaiseCE(m.dre.Metric(now, m.port.Rate))
	}
	m.dre.Add(now, p.Size)
}

// link returns what schemes are shown of the link.
func (m *meter) link(now mono.Time) (metric uint8, queue uint32) {
	return m.dre.Metric(now, m.port.Rate), uint32(m.port.QueuedIn(network.DataClass))
}
