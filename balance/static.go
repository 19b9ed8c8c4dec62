package balance

import (
	"fmt"
	"math"

	"github.com/loomfabric/loom/internal/mono"
)

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

var _ = register(Scheme{
	Name: "static", Summary: "a flow's hash decides, by weights of the uplinks",
	New: newStatic, Keys: func() Params { return &StaticKeys{} }, Fixed: true,
})

// StaticKeys are what static is told beside its name.
type StaticKeys struct {
	// Weights are the shares of the uplinks, in their order. None: the first usable
	// uplink takes all.
	Weights []uint32 `yaml:"weights"`
}

// Validate reports weights that make no sense.
func (k *StaticKeys) Validate() error {
	sum := uint64(0)
	for _, w := range k.Weights {
		sum += uint64(w)
	}
	switch {
	case len(k.Weights) > MaxPaths:
		return fieldError("weights", fmt.Sprintf("use one for each uplink, at most %d", MaxPaths), "%d weights", len(k.Weights))
	case len(k.Weights) > 0 && sum == 0:
		return fieldError("weights", "give each uplink its share, as in [2, 1]", "weights that add up to 0")
	case sum > math.MaxUint32:
		return fieldError("weights", "give each uplink its share, as in [2, 1]", "weights that add up to %d", sum)
	}
	return nil
}

// FitUplinks reports a number of weights that is not n.
func (k *StaticKeys) FitUplinks(n int) error {
	if len(k.Weights) > 0 && len(k.Weights) != n {
		return fieldError("weights", "give one for each uplink, in their order", "%d weights for %d uplinks", len(k.Weights), n)
	}
	return nil
}

// ForUplinks returns the weights by the uplinks' numbers.
func (k *StaticKeys) ForUplinks(numbers []uint8) Params {
	if len(k.Weights) == 0 {
		return k
	}
	weights := make([]uint32, MaxPaths)
	for i, n := range numbers {
		if i < len(k.Weights) {
			weights[n&(MaxPaths-1)] = k.Weights[i]
		}
	}
	return &StaticKeys{weights}
}

func newStatic(o *Options) Policy {
	s := &static{seed: o.Seed}
	copy(s.weights[:], o.Keys.(*StaticKeys).Weights)
	return s
}

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
		at := uint64(Remix(uint64(p.Hash)^s.seed)>>4) * total >> 28
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
