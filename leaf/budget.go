package leaf

import (
	"time"

	"github.com/loomfabric/loom/internal/gcra"
	"github.com/loomfabric/loom/internal/mono"
)

// Budget bounds how many answers packets of one peer can cause, in a worker. The zero
// Budget bounds nothing.
type Budget struct {
	Interval time.Duration // between two answers, in the long run
	Burst    int           // answers without a pause
}

// budgets are what each peer may still cause.
type budgets []gcra.Bucket

func newBudgets(b Budget, peers int) budgets {
	if b.Interval <= 0 {
		return nil
	}
	all := make(budgets, peers)
	for i := range all {
		all[i] = gcra.New(1000*uint64(b.Interval), uint64(max(b.Burst-1, 0)))
	}
	return all
}

// take reports whether a peer may cause one more answer at now.
func (b budgets) take(peer uint16, now mono.Time) bool {
	return int(peer) >= len(b) || b[peer].Take(now)
}
