package network

import (
	"fmt"

	"github.com/loomfabric/loom/leaf"
)

// ECN says when a port marks packets that are capable of it: by the bytes in its
// data queue at the moment, as leaf.Marker decides. With a Kmax of 0 it never marks.
//
// By default a packet is judged as it leaves the queue, by what it leaves
// behind, as in the data plane. With Enqueue it is judged as it comes, by what it
// finds: DCTCP's "if the queue occupancy is greater than K upon its arrival" (DCTCP
// §3.1), with Kmin = Kmax = K. DCTCP works with both; RFC 8257 §3.1 leaves it open.
type ECN struct {
	Kmin, Kmax uint64 // bytes
	Pmax       float64
	Enqueue    bool
}

func (e *ECN) validate() error {
	if e.Kmax < e.Kmin || !(e.Pmax >= 0 && e.Pmax <= 1) {
		return fmt.Errorf("ECN with Kmin %d, Kmax %d and Pmax %v: Kmax must not be below Kmin, nor Pmax outside of 0 to 1", e.Kmin, e.Kmax, e.Pmax)
	}
	return nil
}

// mark decides whether a packet at a queue of that many bytes is marked.
func (p *Port) mark(k *Packet, queue uint64) {
	e := &p.ECN
	if m := (leaf.Marker{Kmin: e.Kmin, Kmax: e.Kmax, Pmax: e.Pmax, RNG: p.net.Rand}); k.ECT && m.Hit(queue) {
		k.CE = true
		p.stats.Marked++
	}
}
