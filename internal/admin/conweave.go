package admin

import (
	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/dataplane"
	"github.com/loomfabric/loom/reorder"
)

// ConWeave is the answer of /v1/conweave: parameters and state of both sides, and
// what they counted since the start, all workers together.
type ConWeave struct {
	*dataplane.ConWeaveState
	SourceCounters []Counters `json:"source_counters"` // by scheme
	// DestinationCounters has the leaf's counters of messages, too.
	DestinationCounters Counters `json:"destination_counters"`
}

func conweave(st *dataplane.Stats, state *dataplane.ConWeaveState) ConWeave {
	sum := st.Sum()
	a := ConWeave{ConWeaveState: state, SourceCounters: []Counters{}}
	for _, s := range sum.Schemes {
		if own, ok := s.Own.(*balance.ConWeaveStats); ok {
			a.SourceCounters = append(a.SourceCounters, NewCounters(s.Scheme, own))
		}
	}
	var destination []any
	for _, r := range sum.Receivers {
		if side, ok := r.Stats.(*reorder.Stats); ok {
			destination = append(destination, side)
		}
	}
	a.DestinationCounters = leafCounters(&sum.Leaf, destination...)
	return a
}
