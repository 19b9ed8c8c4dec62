package overlay

import (
	"slices"
	"testing"
	"time"

	"github.com/loomfabric/loom/internal/mono"
)

// TestFDBHoldsWhatMovesTooOften: a host whose frames come back from the fabric stays
// behind its port, and is named once a hold; one that moves now and then is not held.
func TestFDBHoldsWhatMovesTooOften(t *testing.T) {
	f := NewFDB(64, time.Minute, 4, 4)
	here, there, now := DestLocal(1, 7), DestRemote(3), mono.Time(time.Hour)
	f.Learn(2, MAC{2}, here, now)
	moved := 0
	for range 1000 { // for ten seconds
		for _, d := range []Dest{there, here} {
			if f.Learn(2, MAC{2}, d, now) == LearnedMoved {
				moved++
			}
		}
		check(t, "where it is", f.Lookup(2, MAC{2}, now), here)
		now = now.Add(10 * time.Millisecond)
	}
	if moved > 2*(maxMoves+1) {
		t.Errorf("moved %d times in ten seconds", moved)
	}
	check(t, "holds", f.Held(), 2)
	want := FDBMove{2, MAC{2}, here, there}
	check(t, "named", slices.Equal(slices.Collect(f.HeldSince(0)), []FDBMove{want, want}), true)
	check(t, "named since", len(slices.Collect(f.HeldSince(1))), 1)
	check(t, "loop", want.Loop(), true)
	now = now.Add(time.Minute)
	f.Learn(1, MAC{4}, here, now)
	for i := range 100 { // five times a second
		now = now.Add(210 * time.Millisecond)
		check(t, "a slow move", f.Learn(1, MAC{4}, DestRemote(uint16(i)), now), LearnedMoved)
	}
	check(t, "holds", f.Held(), 2)
}

// TestFDBHoldsOneAmongMany: addresses that move a little do not hide one that moves a lot.
func TestFDBHoldsOneAmongMany(t *testing.T) {
	r := seeded(t)
	f := NewFDB(1<<15, time.Minute, 1, 1)
	for i := range 1 << 14 {
		f.Learn(0, MACFromUint64(0x02<<40|uint64(i)), DestRemote(1), 0)
	}
	f.Learn(0, MAC{6}, DestRemote(1), 0)
	for i := range 40000 {
		f.Learn(0, MACFromUint64(0x02<<40|r.Uint64N(1<<14)), DestRemote(uint16(2+i)), 0)
		if i%100 == 0 {
			f.Learn(0, MAC{6}, DestRemote(uint16(2+i)), 0)
		}
	}
	check(t, "outcome", f.Learn(0, MAC{6}, DestRemote(9), 0), LearnedHeld)
}
