package tcp

import (
	"github.com/loomfabric/loom/sim/engine"
	"github.com/loomfabric/loom/sim/network"
)

// Hop is a link on a flow's way, in the direction of interest.
type Hop struct {
	Rate     uint64 // bits per second
	Delay    engine.Time
	Overhead uint32 // what encapsulation adds to a packet there, bytes
}

// tx is how long a packet of so many bytes takes on the link.
func (h *Hop) tx(bytes uint32) engine.Time {
	wire := network.Port{PortConfig: network.PortConfig{Rate: h.Rate}}
	return wire.TxTime(bytes + h.Overhead)
}

// Ideal is how long a flow takes at line rate in a network that is otherwise
// idle, until the receiver has its last byte: the least that any window allows,
// to which CONGA §5.2 normalises. With Handshake it has that round trip, over
// back; flows on open connections want it without. Nodes store and forward
// without delay. What slow start adds on the way to line rate is not in it.
func (c *Config) Ideal(bytes uint64, out, back []Hop) engine.Time {
	segments, _ := c.WireBytes(bytes)
	segments = max(1, segments)
	last := uint32(bytes - (segments-1)*uint64(c.Segment()))

	// Of equal packets, the k-th leaves a hop k-1 times what the slowest hop so
	// far takes after the first. The last one is shorter: on each hop it may have
	// to wait for the one before it.
	var first, slowest, before, end engine.Time
	for i := range out {
		h := &out[i]
		tx := h.tx(c.Segment() + c.Header)
		first += tx
		slowest = max(slowest, tx)
		if segments > 1 {
			before = first + engine.Time(segments-2)*slowest
		}
		end = max(end, before) + h.tx(last+c.Header) + h.Delay
		first += h.Delay
	}
	if c.Handshake {
		for _, way := range [][]Hop{out, back} {
			for i := range way {
				end += way[i].tx(synSize) + way[i].Delay
			}
		}
	}
	return end
}
