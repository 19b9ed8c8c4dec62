package congestion

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/loomfabric/loom/internal/mono"
)

// A new gap counts for flowlets that are under way, and for those after them.
func TestSetGap(t *testing.T) {
	for _, d := range []Detector{Timestamp, AgeBit} {
		seed := rand.Uint64()
		t.Logf("%v, seed %d", d, seed)
		rng := rand.New(rand.NewPCG(seed, 1))
		f := NewFlowlets(64, time.Millisecond, d)
		now := mono.Time(rng.Int64N(1e15))
		for range 2000 {
			if rng.IntN(3) == 0 {
				f.SetGap(now, time.Duration(1+rng.Int64N(int64(5*time.Millisecond))))
			}
			hash := rng.Uint32()
			f.Set(hash, 3, now)
			// One that has just begun goes on under any gap.
			gap := time.Duration(1 + rng.Int64N(int64(5*time.Millisecond)))
			f.SetGap(now, gap)
			if u, active := f.Lookup(hash, now.Add(gap)); u != 3 || !active {
				t.Fatalf("after a pause of T_fl = %v the flowlet has ended (uplink %d)", gap, u)
			}
			if _, active := f.Lookup(hash, now.Add(2*gap+1)); active {
				t.Fatalf("after a pause of %v the flowlet goes on, T_fl is %v", 2*gap+1, gap)
			}
			now += mono.Time(rng.Int64N(int64(10 * time.Millisecond)))
		}
	}
}

// With timestamps, one that has paused for longer than the new gap has ended.
func TestSetGapEndsPauses(t *testing.T) {
	f := NewFlowlets(64, time.Second, Timestamp)
	f.Set(7, 3, 1000)
	now := mono.Time(1000).Add(10 * time.Millisecond)
	if _, active := f.Lookup(7, now); !active {
		t.Fatal("the flowlet has ended by the old gap")
	}
	f.SetGap(now, time.Millisecond)
	if _, active := f.Lookup(7, now); active {
		t.Error("the flowlet goes on by the new gap")
	}
}
