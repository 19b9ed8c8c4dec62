package balance

import (
	"iter"
	"time"

	"github.com/loomfabric/loom/internal/mono"
)

// SprayPolicy is ordered spraying's source side, for its owner to look at.
type SprayPolicy interface {
	Policy
	// FlowSets returns the number of sets of the table of flows.
	FlowSets() int
	// SprayedFlows yields the flows under way, of the sets from one to before another:
	// parts of the table, for those who must not look for long at a time.
	SprayedFlows(now mono.Time, from, to int) iter.Seq[SprayedFlow]
}

// SprayedFlow is a flow whose packets are numbered.
type SprayedFlow struct {
	Hash   uint32
	Leaf   uint16
	Number uint16        // of its next packet
	Uplink uint8         // of its last packet
	Idle   time.Duration // since that left
}

// FlowSets returns the number of sets.
func (s *reed) FlowSets() int { return s.flows.Sets() }

// SprayedFlows yields the flows of some sets that go on.
func (s *reed) SprayedFlows(now mono.Time, from, to int) iter.Seq[SprayedFlow] {
	return func(yield func(SprayedFlow) bool) {
		for e := range s.flows.All(now, from, to) {
			if s.underWay(now, e.Leaf(), e) && !yield(SprayedFlow{e.Hash(), e.Leaf(), e.V.number, e.V.uplink, now.Sub(e.Last)}) {
				return
			}
		}
	}
}
