package balance

import "github.com/loomfabric/loom/congestion"

// Stats counts what a policy did.
type Stats struct {
	_ struct{} `stat:"scheme"`

	Decisions uint64 `stat:"decisions" help:"Times that the scheme chose a path: for each frame, or for each flowlet."`
	// Flowlets is zero for schemes that keep none.
	Flowlets congestion.FlowletStats `stat:"flowlets"`
	// Own is a pointer to a copy of the scheme's own counters, a struct with the tags
	// of package stat; nil: it has none.
	Own any
}
