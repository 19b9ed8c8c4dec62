package rdma

import (
	"github.com/loomfabric/loom/sim/engine"
	"github.com/loomfabric/loom/sim/network"
)

// hop is a link on a flow's way, as its sending end sees it.
type hop struct {
	Rate     uint64      // bit/s
	Delay    engine.Time // propagation
	Overhead uint32      // bytes that encapsulation adds on this link
}

// tx is how long a packet of so many bytes takes on the link.
func (h *hop) tx(bytes uint32) engine.Time {
	return network.TxTime(bytes+h.Overhead, h.Rate)
}

// ideal returns how long a message takes in a network that is otherwise idle, at
// line rate: until its last byte has arrived, and until its last ACK is back,
// which is its base FCT (ConWeave §4.1). Nodes store and forward without delay.
// The window is left out: BDP is meant to cover the way.
func (c *Config) ideal(bytes uint64, out, back []hop) (received, acked engine.Time) {
	full := uint64(c.Payload)
	packets := max(1, (bytes+full-1)/full)
	last := uint32(bytes - (packets-1)*full)

	// Of equal packets, the k-th leaves a hop k-1 times what the slowest hop so
	// far takes after the first. The last one is shorter: on each hop it may have
	// to wait for the one before it.
	var first, slowest, before, end engine.Time
	for i := range out {
		h := &out[i]
		tx := h.tx(c.Payload + c.Header)
		first += tx
		slowest = max(slowest, tx)
		if packets > 1 {
			before = first + engine.Time(packets-2)*slowest
		}
		end = max(end, before) + h.tx(last+c.Header) + h.Delay
		first += h.Delay
	}
	received = end

	// The same goes for the last ACK, and those for each AckEvery packets before.
	each := engine.Time(c.AckEvery)
	earlier := engine.Time((packets - 1) / uint64(c.AckEvery))
	first += (each - 1) * slowest
	slowest *= each
	before = 0
	for i := range back {
		h := &back[i]
		tx := h.tx(c.AckBytes)
		first += tx
		slowest = max(slowest, tx)
		if earlier > 0 {
			before = first + (earlier-1)*slowest
		}
		end = max(end, before) + tx + h.Delay
		first += h.Delay
	}
	return received, end
}
