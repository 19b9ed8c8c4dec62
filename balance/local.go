package balance

import "github.com/loomfabric/loom/congestion"

// newLocal returns the local congestion-aware scheme of CONGA §2.4: flowlets go
// to the uplink whose own link is least congested, whatever happens behind it.
// It is CONGA without feedback, and exists to show what feedback is for.
func newLocal(o *Options) Policy {
	return &conga{flowlets: newFlowlets(o, o.Congestion.FlowletGap), decision: congestion.Decision{}, rng: newRNG(o)}
}

var _ = register(Scheme{
	Name: "local", Summary: "the least loaded uplink for each flowlet",
	New: newLocal, Gap: flowletGap, Keys: flowletKeys,
})
