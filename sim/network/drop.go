package network

import "fmt"

// Reason says why a packet was dropped.
type Reason uint8

// The reasons.
const (
	QueueFull    Reason = iota // the port's own limit
	BufferFull                 // over the queue's dynamic threshold, or the whole buffer is used
	HeadroomFull               // came in after XOFF and found no headroom: PFC is configured wrong
	LinkDown                   // was to be sent on a link that is down, or waited for it when it went down
	LinkCut                    // was on the wire when the link went down
	NoRoute                    // a node knows no way to its destination
	NoFlow                     // came to a host for a flow that has ended
	Unwanted                   // a node has no use for it: a scheme's control packet that came too late
	Duplicate                  // a copy of a packet that has come over another path
	Reasons      = 9
)

var reasonNames = [Reasons]string{
	"queue_full", "buffer_full", "headroom_full", "link_down", "link_cut", "no_route", "no_flow", "unwanted", "duplicate",
}

// String returns the name that results list the reason by.
func (r Reason) String() string {
	if r < Reasons {
		return reasonNames[r]
	}
	return fmt.Sprintf("Reason(%d)", uint8(r))
}

// Copy returns a copy of a packet, for a second path.
func (n *Network) Copy(p *Packet) *Packet {
	c := n.Pool.Get()
	*c = *p
	c.in, c.charge = nil, nil
	return c
}

// Drop ends a packet that its owner cannot deal with, and counts it.
func (n *Network) Drop(p *Packet, why Reason) {
	if p.in == nil {
		n.made++ // and never sent
	}
	n.drop(p, why)
}

func (n *Network) drop(p *Packet, why Reason) {
	n.dropped[why]++
	n.Pool.Put(p)
}

// Made returns how many packets hosts and nodes have made.
func (n *Network) Made() uint64 { return n.made }

// Lost returns how many packets were dropped, for whatever reason.
func (n *Network) Lost() (sum uint64) {
	for _, d := range n.dropped {
		sum += d
	}
	return sum
}

// Consume ends a packet that reached the node that it was for: leaves consume
// the fabric's control packets. What a host's endpoint is handed is counted
// already; it goes back to the pool.
func (n *Network) Consume(p *Packet) {
	if p.in == nil {
		n.made++
	}
	n.consumed++
	n.Pool.Put(p)
}

// Holder is a node that keeps packets for a while.
type Holder interface {
	// Held returns how many it has now.
	Held() int
}

// Ledger says where all packets of a network are.
type Ledger struct {
	Made      uint64 // sent by hosts, and by nodes of their own
	Delivered uint64 // handed to hosts' endpoints
	Consumed  uint64 // by nodes
	Dropped   [Reasons]uint64
	Queued    uint64 // at ports
	Flying    uint64 // on wires, those that are being sent included
	Held      uint64 // by nodes that are [Holder]s
}

// Ledger counts what is where. It looks at every port.
func (n *Network) Ledger() Ledger {
	var l Ledger
	for _, part := range n.parts {
		l.Made += part.made
		l.Delivered += part.delivered
		l.Consumed += part.consumed
		for why, dropped := range part.dropped {
			l.Dropped[why] += dropped
		}
	}
	seen := make(map[Node]bool)
	for _, p := range n.Ports {
		for c := range p.queues {
			l.Queued += uint64(p.queues[c].n)
		}
		l.Flying += uint64(p.wire.n)
		for side := range p.boxes {
			for _, c := range p.boxes[side] {
				if c.k != nil {
					l.Flying++
				}
			}
		}
		if h, ok := p.Node.(Holder); ok && !seen[p.Node] {
			seen[p.Node] = true
			l.Held += uint64(h.Held())
		}
	}
	return l
}

// TotalDropped is the sum over all reasons.
func (l Ledger) TotalDropped() (sum uint64) {
	for _, d := range l.Dropped {
		sum += d
	}
	return sum
}

// Check returns an error if packets came from nowhere or went there:
// made = delivered + consumed + dropped + queued + flying + held.
func (l Ledger) Check() error {
	sum := l.Delivered + l.Consumed + l.TotalDropped() + l.Queued + l.Flying + l.Held
	if sum != l.Made {
		return fmt.Errorf("network: %d packets were made, and %d are accounted for: %d delivered, %d consumed, %d dropped, %d queued, %d on wires, %d held by nodes; the code that ends a packet must call Drop or Consume",
			l.Made, sum, l.Delivered, l.Consumed, l.TotalDropped(), l.Queued, l.Flying, l.Held)
	}
	return nil
}
