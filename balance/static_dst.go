package balance

import "github.com/loomfabric/loom/internal/mono"

// staticDst sends all packets to a host by the next hop that its address names: the
// address modulo the number of next hops, at every switch. It is the static routing that
// fat-trees were first compared with (Al-Fares et al., SIGCOMM 2008 §3.3), and CAAR (Zhang
// et al. 2015 §6.2: "dst%3" in a tree, "i%(k/2)" in a fat-tree).
type staticDst struct{ decisions uint64 }

var _ = register(Scheme{
	Name: "static-dst", Summary: "the destination's address decides, modulo the number of next hops",
	New: func(*Options) Policy { return &staticDst{} }, Hosts: true, EveryTier: true, Fixed: true,
})

// Stats returns the number of decisions.
func (s *staticDst) Stats() Stats { return Stats{Decisions: s.decisions} }

// Choose maps each destination to a fixed path as long as the set of paths stays.
func (s *staticDst) Choose(_ mono.Time, v *View, pkts []Packet) {
	for i := range pkts {
		p := &pkts[i]
		if n := v.Paths[p.Leaf].N; n > 0 {
			s.decisions++
			p.Path = uint8(p.Host % uint32(n))
		}
	}
}

// Explain says where the destination's packets go.
func (s *staticDst) Explain(_ mono.Time, v *View, p *Packet) Explanation {
	paths := &v.Paths[p.Leaf]
	x := newExplanation(paths)
	x.Path = int(p.Host % uint32(paths.N))
	x.Fresh = 1 << paths.Uplink[x.Path%MaxPaths]
	x.Reason = "the destination's address, modulo the number of uplinks, decides"
	return x
}
