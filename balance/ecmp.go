package balance

import "github.com/loomfabric/loom/internal/mono"

// ecmp spreads flows over the paths by a hash of the flow (RFC 2992, with the hash's
// range cut in proportion to the paths' weights). It keeps no state.
type ecmp struct {
	seed      uint64
	decisions uint64
}

var _ = register(Scheme{Name: "ecmp", Summary: "a flow's hash decides", New: newECMP, Fixed: true})

func newECMP(o *Options) Policy { return &ecmp{seed: o.Seed} }

func (e *ecmp) Stats() Stats { return Stats{Decisions: e.decisions} }

// Choose maps each flow to a fixed path as long as the number of paths stays.
// The flow's hash is mixed with the seed again: without that, every tier that
// hashes alike would see only the flows that the tier before sent its way, all
// of which it would send the same way (hash polarisation).
func (e *ecmp) Choose(_ mono.Time, v *View, pkts []Packet) {
	seed, decisions := e.seed, uint64(0)
	for i := range pkts {
		p := &pkts[i]
		paths := &v.Paths[p.Leaf]
		p.Path = paths.byHash(p.Hash, seed)
		decisions += uint64(min(paths.N, 1))
	}
	e.decisions += decisions
}

// Row spreads flows over all paths.
func (e *ecmp) Row(_ mono.Time, v *View, leaf uint16, r *Row) {
	r.all(&v.Paths[leaf])
	r.Seed = e.seed
}
