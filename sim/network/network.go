package network

import (
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/loomfabric/loom/sim/engine"
)

// Node is what stands at the end of a wire.
type Node interface {
	// Receive takes over a packet whose last bit has just come in by a port.
	Receive(now engine.Time, p *Packet, in *Port)
}

// Watcher is called for what happens at a port.
type Watcher interface {
	// Departing is called when the first bit of a packet leaves: nodes meter
	// their links and raise CE here (CONGA §3.2, §3.3).
	Departing(now engine.Time, p *Packet, out *Port)
}

// LinkWatcher is a node that wants to be told when a link goes down or comes up.
type LinkWatcher interface {
	// LinkChanged is called for the node's end of the link, after the change.
	LinkChanged(now engine.Time, p *Port, up bool)
}

// Network is all that a run simulates.
type Network struct {
	Engine *engine.Engine
	Pool   Pool
	Hosts  []*Host
	Ports  []*Port
	// Rand is where ports draw from for ECN. A run with another seed replaces it.
	Rand *rand.Rand

	flows []ends

	hops                      uint64
	made, delivered, consumed uint64
	dropped                   [Reasons]uint64
}

// New returns an empty network.
func New(e *engine.Engine) *Network {
	return &Network{Engine: e, Rand: rand.New(rand.NewPCG(0, 0))}
}

// Hops returns how many times a packet has arrived at a node so far.
func (n *Network) Hops() uint64 { return n.hops }

// Validate returns what is wrong with the network as it was put together: ports
// without a link, buffers too small for what was promised to ports. It is for
// before the run.
func (n *Network) Validate() error {
	var errs []error
	for _, h := range n.Hosts {
		if h.Port == nil {
			errs = append(errs, fmt.Errorf("network: host %d has no port: call NewPort", h.ID))
		}
	}
	seen := make(map[*Buffer]bool)
	for _, p := range n.Ports {
		if p.Peer == nil {
			errs = append(errs, fmt.Errorf("network: port %s has no peer: call Connect", p.Name))
			continue
		}
		if err := p.ECN.validate(); err != nil {
			errs = append(errs, fmt.Errorf("network: port %s: %w", p.Name, err))
		}
		if b := p.Buffer; b != nil && !seen[b] {
			seen[b] = true
			errs = append(errs, b.validate())
		}
	}
	return errors.Join(errs...)
}
