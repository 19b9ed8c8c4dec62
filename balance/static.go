package balance

import "github.com/loomfabric/loom/internal/mono"

// static splits flows over the paths in proportions that were configured, by a
// hash of the flow: the oblivious routing of CONGA §2.4, "weighted random load
// balancing with weights chosen according to the topology". Paths share the
// weights that the configuration gives their uplinks. If those that are usable
// have no weight, the first of them takes everything: one path, as a spanning
// tree would have it, for the others to be compared with.
type static struct {
	seed      uint64
	weights   [MaxPaths]uint32
	decisions uint64
}

func newStatic(o *Options) Policy { return &static{seed: o.Seed, weights: o.Weights} }

func (*static) Name() string { return "static" }

func (s *static) Stats() Stats { return Stats{Decisions: s.decisions} }

// Choose maps each flow to a fixed path as long as the set of paths stays.
func (s *static) Choose(_ mono.Time, v *View, pkts []Packet) {
	for i := range pkts {
		p := &pkts[i]
		paths := &v.Paths[p.Leaf]
		n := paths.N
		if n == 0 {
			continue
		}
		s.decisions++
		total := uint64(0)
		for _, u := range paths.Uplink[:n] {
			total += uint64(s.weights[u&(MaxPaths-1)])
		}
		p.Path = 0
		if total == 0 {
			continue
		}
		// At most 2^36 times a fraction of 2^28: no overflow.
		at := uint64(remix(uint64(p.Hash)^s.seed)>>4) * total >> 28
		for path, u := range paths.Uplink[:n] {
			w := uint64(s.weights[u&(MaxPaths-1)])
			if at < w {
				p.Path = uint8(path)
				break
			}
			at -= w
		}
	}
}
