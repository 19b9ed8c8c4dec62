package network

import "github.com/loomfabric/loom/sim/engine"

// Keep charges a packet that its node is to keep for the port, outside of the
// port's queues, to the node's buffer, as if it waited in the queue of data
// (ConWeave's reordering queues are part of the same memory: §4.1.3). Without
// room it drops the packet and returns false.
func (p *Port) Keep(now engine.Time, k *Packet) bool {
	if p.Buffer == nil {
		return true
	}
	why, ok := p.Buffer.admit(now, p, k, DataClass)
	if !ok {
		p.drop(k, why)
	}
	return ok
}

// Unkeep takes back the charge of a packet that was kept: it is to be sent now.
func (p *Port) Unkeep(now engine.Time, k *Packet) {
	if k.charge != nil {
		p.Buffer.release(now, k)
	}
}
