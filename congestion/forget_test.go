package congestion

import (
	"testing"
	"time"

	"github.com/loomfabric/loom/internal/mono"
)

func TestForgetDropsOneLeafOnly(t *testing.T) {
	p := Datacenter()
	to, from, cursor := NewToLeaf(2, &p), NewFromLeaf(2, &p), NewFeedbackCursor(2)
	now := mono.Time(time.Second)
	for leaf := range uint16(2) {
		to.Update(leaf, 3, 5, now)
		from.Record(leaf, 3, 5, now)
	}
	to.Forget(0)
	from.Forget(0)
	to.Forget(9) // there is no such leaf
	from.Forget(9)
	if _, _, known := to.Entry(0, 3, now); known || to.Metric(0, 3, now) != 0 {
		t.Error("to-leaf: still known")
	}
	if _, _, known := from.Entry(0, 3, now); known {
		t.Error("from-leaf: still known")
	}
	if _, _, ok := from.Next(cursor, 0, now); ok {
		t.Error("still fed back")
	}
	if to.Metric(1, 3, now) != 5 {
		t.Error("to-leaf: the other leaf was forgotten")
	}
	if _, m, ok := from.Next(cursor, 1, now); !ok || m != 5 {
		t.Error("from-leaf: the other leaf was forgotten")
	}
	from.Record(0, 4, 2, now)
	if tag, m, ok := from.Next(cursor, 0, now); !ok || tag != 4 || m != 2 {
		t.Errorf("after a new record: tag %d, metric %d, %v", tag, m, ok)
	}
}
