package network

import (
	"github.com/loomfabric/loom/sim/engine"
)

// Part adds a part to a network that is empty so far: nodes that are made with it have
// an engine, a pool and counters of their own, and share hosts' numbers, ports and flows
// with all others. Parts run side by side (package parallel); links between two of them need
// a delay. The network that New returned is then none of them: it stands for the whole.
func (n *Network) Part(e *engine.Engine) *Network {
	if !n.split {
		n.parts, n.split = nil, true
	}
	part := newNetwork(e, n.whole)
	part.Index = len(n.parts)
	n.parts = append(n.parts, part)
	return part
}

// Parts returns the parts, in order; the network itself if it has none.
func (n *Network) Parts() []*Network { return n.parts }

// Split reports whether the network has parts. Then what concerns more than one of them
// has to wait until they stand still.
func (n *Network) Split() bool { return n.split }

// crossing is what a port sends to a peer in another part: a packet, or with none an
// event of the peer.
type crossing struct {
	at   engine.Time
	k    *Packet
	what uint64
}

// cross puts something into the port's box. A box has two sides: one is written to in a
// window, and the other one, from the window before, is emptied by the peer's part.
func (p *Port) cross(c crossing) {
	box := &p.boxes[p.net.side]
	*box = append(*box, c)
	p.net.sent = min(p.net.sent, c.at)
}

// Swap ends a window (parallel.Links).
func (n *Network) Swap() {
	n.side = 1 - n.side
	for _, p := range n.parts {
		p.sent = engine.Never
	}
	n.over = level(n.parts, n.over)
}

// Sent returns the time of the first thing that a part has sent since Swap (parallel.Links).
func (n *Network) Sent(part int) engine.Time { return n.parts[part].sent }

// Deliver takes what was sent to a part in the window before (parallel.Links). It goes by
// the ports in the order in which they were connected, and for each by the order in which
// things were sent: that is the order of equal times.
func (n *Network) Deliver(part int) {
	for _, p := range n.parts[part].crossing {
		box := &p.Peer.boxes[1-n.side]
		for _, c := range *box {
			if c.k != nil {
				p.expect(c.at, c.k)
			} else {
				p.schedule(c.at, c.what)
			}
		}
		*box = (*box)[:0]
	}
}
