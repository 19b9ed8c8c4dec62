package congestion

import (
	"testing"
	"time"

	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/overlay"
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

// A tag that goes to another uplink takes nothing along, and feedback for a tag that no
// uplink has is refused.
func TestForgetTag(t *testing.T) {
	p := Datacenter()
	to, from := NewToLeaf(2, &p), NewFromLeaf(2, &p)
	now := mono.Time(time.Second)
	for leaf := range uint16(2) {
		for tag := range uint8(3) {
			to.Update(leaf, tag, 5, now)
		}
	}
	to.ForgetTag(1)
	for leaf := range uint16(2) {
		for tag := range uint8(3) {
			if m := to.Metric(leaf, tag, now); (m != 0) != (tag != 1) {
				t.Errorf("leaf %d, tag %d: metric %d", leaf, tag, m)
			}
		}
	}
	x := NewExchange(to, from, overlay.NewCapability(2), 3)
	x.SetTags(1<<0 | 1<<5)
	for tag := range uint8(MaxTags) {
		x.Arrive(0, now, &overlay.Fabric{Capable: true, FBValid: true, FBTag: tag, FBMetric: 2})
	}
	if s := x.Stats(); s.FeedbackReceived != 2 || s.FeedbackBadTag != MaxTags-2 || to.Metric(0, 5, now) != 2 {
		t.Errorf("%+v", s)
	}
}
