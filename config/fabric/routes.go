package fabric

import "net/netip"

// Route is a set of equal-cost next hops to one VTEP.
type Route struct {
	Dst  netip.Addr // a leaf's VTEP
	Hops []Hop      // never empty, in the order of Topology.Links
}

// Hop is one next hop: a link and the neighbour's address on it.
type Hop struct {
	Link    int // index in Topology.Links
	Port    string
	Gateway netip.Addr
}

// Routes are what a routing protocol would have installed once it has
// converged: by leaf and by spine, one route per reachable VTEP.
type Routes struct {
	Leaves [][]Route
	Spines [][]Route
}

// Routes computes the routes for the links' state (by index; true is up), as
// eBGP does in a leaf–spine fabric (RFC 7938 §5.2, no path through another
// leaf): a spine reaches a leaf over its live links to it; a leaf reaches
// another over every live uplink to a spine that can still reach that leaf.
func (t *Topology) Routes(up []bool) Routes {
	r := Routes{Leaves: make([][]Route, len(t.Leaves)), Spines: make([][]Route, len(t.Spines))}
	reach := make([][]bool, len(t.Spines)) // spine, leaf
	for s := range t.Spines {
		reach[s] = make([]bool, len(t.Leaves))
		for _, dst := range t.Leaves {
			var hops []Hop
			for _, l := range t.Links {
				if up[l.Index] && l.Spine == s && l.Leaf == dst.Index {
					hops = append(hops, Hop{Link: l.Index, Port: l.SpinePort, Gateway: l.LeafAddr})
				}
			}
			if len(hops) > 0 {
				reach[s][dst.Index] = true
				r.Spines[s] = append(r.Spines[s], Route{Dst: dst.VTEP, Hops: hops})
			}
		}
	}
	for _, src := range t.Leaves {
		for _, dst := range t.Leaves {
			if src.Index == dst.Index {
				continue
			}
			var hops []Hop
			for _, l := range t.Links {
				if up[l.Index] && l.Leaf == src.Index && reach[l.Spine][dst.Index] {
					hops = append(hops, Hop{Link: l.Index, Port: l.LeafPort, Gateway: l.SpineAddr})
				}
			}
			if len(hops) > 0 {
				r.Leaves[src.Index] = append(r.Leaves[src.Index], Route{Dst: dst.VTEP, Hops: hops})
			}
		}
	}
	return r
}
