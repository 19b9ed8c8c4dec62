package network

import "github.com/loomfabric/loom/sim/engine"

// Charge charges a packet to the node's buffer as if it waited in the port's
// queue of data. A node calls it for a packet that it holds outside of the
// queues: ConWeave's reordering queues are part of the same memory (§4.1.3).
// Without room Charge drops the packet and returns false.
func (p *Port) Charge(now engine.Time, k *Packet) bool {
	if p.Buffer == nil {
		return true
	}
	why, ok := p.Buffer.admit(now, p, k)
	if !ok {
		p.drop(k, why)
	}
	return ok
}

// Release takes back the charge of a packet that is about to be sent.
func (p *Port) Release(now engine.Time, k *Packet) {
	if k.charge != nil {
		p.Buffer.release(now, k)
	}
}
