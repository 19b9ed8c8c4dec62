package leaf

import (
	"testing"
	"time"

	"github.com/loomfabric/loom/overlay"
	"github.com/loomfabric/loom/reorder"
)

// ask returns a packet of a leaf that asks for an answer.
func ask(leaf uint16, flow uint32) reorder.Arrival {
	return reorder.Arrival{Hash: flow, Len: 100, Leaf: leaf, Fabric: overlay.Fabric{
		Capable: true, Shim: true, Scheme: reorder.SchemeID, Opcode: overlay.OpRTTRequest, Epoch: 1,
	}}
}

// TestAnswersHaveABudget: a peer gets its burst of answers, then one an interval, and
// takes none from another peer. Its packets are delivered all the same.
func TestAnswersHaveABudget(t *testing.T) {
	s := newSiteOf(t, Config{Answers: Budget{Interval: time.Millisecond, Burst: 4}}, "conweave")
	s.prove(1, 2)
	answered := func(leaf uint16, packets int) int {
		t.Helper()
		n := 0
		for i := range packets {
			o := s.arrive(i, nil, ask(leaf, uint32(i)*7919))
			n += len(o.Messages)
			s.wantDelivered(o, i)
		}
		return n
	}
	if n := answered(1, 10); n != 4 {
		t.Errorf("%d answers to a burst, want 4", n)
	}
	if n := answered(2, 3); n != 3 {
		t.Errorf("%d answers to another peer, want 3", n)
	}
	s.now += 3 * ms
	s.prove(1, 2)
	if n := answered(1, 10); n != 3 {
		t.Errorf("%d answers after 3 intervals, want 3", n)
	}
	if n := s.Stats().Unsent.OverBudget; n != 6+7 {
		t.Errorf("%d answers counted as over the budget, want 13", n)
	}
	s.now -= 500 * ms // the clock was set back
	s.prove(1, 2)
	if n := answered(1, 10); n != 4 {
		t.Errorf("%d answers after the clock was set back, want 4", n)
	}
}

// Without a budget everything is answered.
func TestNoBudget(t *testing.T) {
	s := newSite(t, "conweave")
	s.prove(1)
	for i := range 1000 {
		if o := s.arrive(i, nil, ask(1, uint32(i))); len(o.Messages) != 1 {
			t.Fatalf("packet %d: %d answers", i, len(o.Messages))
		}
	}
}

// TestForgedMarks: no source marks a packet as the request of an epoch and as the last
// packet of the path that the epoch leaves.
func TestForgedMarks(t *testing.T) {
	s := newSite(t, "conweave")
	for _, tt := range []struct {
		name   string
		change func(*overlay.Fabric)
		want   Kind
	}{
		{"a request", func(*overlay.Fabric) {}, Marked},
		{"a TAIL", func(f *overlay.Fabric) { f.Opcode, f.Tail = overlay.OpData, true }, Marked},
		{"both", func(f *overlay.Fabric) { f.Tail = true }, Forged},
		{"both without a shim", func(f *overlay.Fabric) { f.Tail, f.Shim = true, false }, Plain},
	} {
		f := ask(1, 0).Fabric
		tt.change(&f)
		if got := s.Accept(s.now, 1, &f); got != tt.want {
			t.Errorf("%s: kind %d, want %d", tt.name, got, tt.want)
		}
	}
}
