package balance

import (
	"math/rand/v2"

	"github.com/loomfabric/loom/internal/mono"
)

// spray sends each packet on a path of its own, chosen at random by the paths' weights:
// random packet spraying (Dixit et al., INFOCOM 2013; [10] of the CONGA paper).
// Random and not in turn, because the turns of independent leaves fall into
// step.
type spray struct {
	rng       *rand.PCG
	decisions uint64
}

var _ = register(Scheme{Name: "spray", Summary: "a random path for each packet", New: newSpray})

func newSpray(o *Options) Policy { return &spray{rng: newRNG(o)} }

func (s *spray) Stats() Stats { return Stats{Decisions: s.decisions} }

// Choose draws a path for each packet.
func (s *spray) Choose(_ mono.Time, v *View, pkts []Packet) {
	for i := range pkts {
		p := &pkts[i]
		if paths := &v.Paths[p.Leaf]; paths.N > 0 {
			p.Path = paths.draw(s.rng)
			s.decisions++
		}
	}
}
