package balance

import "github.com/loomfabric/loom/congestion"

// Stats counts what a policy did.
type Stats struct {
	Decisions uint64 // times that a path was chosen: once a packet, or once a flowlet
	// Flowlets is zero for schemes that keep none.
	Flowlets congestion.FlowletStats
	// Own is a pointer to a copy of the scheme's own counters, a struct whose fields
	// are uint64s, ints and reorder.Histograms; nil: it has none.
	Own any
}
