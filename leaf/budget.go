package leaf

import (
	"time"

	"github.com/loomfabric/loom/internal/mono"
)

// Budget bounds how many answers packets of one peer can cause, in a worker. The zero
// Budget bounds nothing.
type Budget struct {
	Interval time.Duration // between two answers, in the long run
	Burst    int           // answers without a pause
}

// budgets are a token bucket for each peer (GCRA): until is when the peer's answers so
// far would end, had they been made at the budget's pace.
type budgets struct {
	interval, depth mono.Time
	until           []mono.Time // by peer
}

func newBudgets(b Budget, peers int) budgets {
	if b.Interval <= 0 {
		return budgets{}
	}
	return budgets{mono.Time(b.Interval), mono.Time(b.Interval) * mono.Time(max(b.Burst-1, 0)), make([]mono.Time, peers)}
}

// take reports whether a peer may cause one more answer at now.
func (b *budgets) take(peer uint16, now mono.Time) bool {
	if int(peer) >= len(b.until) {
		return true
	}
	debt := b.until[peer] - now
	if debt < 0 || debt > b.depth+b.interval { // more than there can be: the clock was set back
		debt = 0
	}
	if debt > b.depth {
		return false
	}
	b.until[peer] = now + debt + b.interval
	return true
}
