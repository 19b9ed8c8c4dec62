package reorder

import (
	"iter"
	"time"

	"github.com/loomfabric/loom/internal/mono"
)

// HeldFlow is a flow of which packets wait for one before them.
type HeldFlow struct {
	Hash uint32
	Leaf uint16        // that sends
	Due  uint16        // number of the packet that they wait for
	Held int           // packets that wait
	Idle time.Duration // since a packet came
}

// FlowSets returns the number of sets of the table of flows.
func (r *Resequencer) FlowSets() int { return r.flows.Sets() }

// HeldFlows yields the flows that hold something, of the sets from one to before another.
func (r *Resequencer) HeldFlows(now mono.Time, from, to int) iter.Seq[HeldFlow] {
	return func(yield func(HeldFlow) bool) {
		for e := range r.flows.All(now, from, to) {
			if e.V.held > 0 && !yield(HeldFlow{e.Hash(), e.Leaf(), e.V.due, int(e.V.held), now.Sub(e.Last)}) {
				return
			}
		}
	}
}
