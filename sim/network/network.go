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

// Network is all that a run simulates, or a part of it ([Network.Part]): nodes that
// share an engine.
type Network struct {
	Engine *engine.Engine
	Pool   Pool
	// Rand is where ports draw from for ECN. A run with another seed replaces it.
	Rand *rand.Rand
	// Index is the part's number; 0 if the network has no parts.
	Index int
	*whole

	crossing []*Port     // those whose peer is in another part
	sent     engine.Time // of the first thing sent to another part since the last swap

	hops                      uint64
	made, delivered, consumed uint64
	dropped                   [Reasons]uint64
}

// whole is what the parts of a network share. None of it changes while they run side by
// side, but for what each port has.
type whole struct {
	Hosts []*Host
	Ports []*Port

	flows []ends
	parts []*Network // the first one is the network that New returned, unless it has parts
	split bool
	over  []*Packet // that no pool of a part needs
	side  int       // of the ports' boxes that is written to
}

// New returns an empty network.
func New(e *engine.Engine) *Network {
	n := newNetwork(e, &whole{})
	n.parts = []*Network{n}
	return n
}

func newNetwork(e *engine.Engine, w *whole) *Network {
	return &Network{Engine: e, Rand: rand.New(rand.NewPCG(0, 0)), whole: w, sent: engine.Never}
}

// Hops returns how many times a packet has arrived at a node so far.
func (n *Network) Hops() (sum uint64) {
	for _, p := range n.parts {
		sum += p.hops
	}
	return sum
}

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
