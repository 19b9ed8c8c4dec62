package balance

import "github.com/loomfabric/loom/congestion"

// newLocal returns the local congestion-aware scheme of CONGA §2.4: flowlets go
// to the uplink whose own link is least congested, whatever happens behind it.
// It is CONGA without feedback, and exists to show what feedback is for.
func newLocal(o *Options) Policy {
	return &conga{flowlets: newFlowlets(o), name: "local", decision: congestion.Decision{}, rng: newRNG(o)}
}
