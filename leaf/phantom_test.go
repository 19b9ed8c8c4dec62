package leaf

import (
	"math"
	"testing"
	"time"

	"github.com/loomfabric/loom/internal/mono"
)

// HULL §3.1: the phantom queue grows where the link is used for more than its share, though
// nothing waits there, and drains at 95 % of its rate.
func TestPhantomQueueDrainsAtItsShare(t *testing.T) {
	const rate, limit = 10e9, 1 << 30
	for _, c := range []struct{ load, want float64 }{{0.5, 0}, {0.94, 0}, {1, 0.05}, {1.2, 0.25}} {
		var q PhantomQueue
		now, last := mono.Time(0), uint64(0)
		q.Add(now, 0, rate, limit)
		for range 1000 {
			now += mono.Time(100 * time.Microsecond)
			last = q.Add(now, uint64(c.load*rate/8*100e-6), rate, limit)
		}
		if want := c.want * rate / 8 * 0.1; math.Abs(float64(last)-want) > 0.001*rate/8*0.1 {
			t.Errorf("after 100 ms at a load of %v %d bytes wait, want %.0f", c.load, last, want)
		}
		if n := q.Add(now+mono.Time(time.Second), 0, rate, limit); n != 0 {
			t.Errorf("%d bytes wait a second later", n)
		}
	}
	var q PhantomQueue
	q.Add(0, 0, rate, 5000)
	if n := q.Add(1, 1<<20, rate, 5000); n != 5000 {
		t.Errorf("%d bytes wait where there is room for 5000", n)
	}
}

// Chance says how often Hit is true.
func TestMarkerChance(t *testing.T) {
	m := Marker{Kmin: 1000, Kmax: 3000, Pmax: 0.4}
	for queued, want := range map[uint64]float64{0: 0, 1000: 0, 2000: 0.2, 3000: 0.4, 3001: 1, 1 << 40: 1} {
		if got := m.Chance(queued); math.Abs(got-want) > 1e-9 {
			t.Errorf("at %d bytes %v, want %v", queued, got, want)
		}
	}
	if off := (&Marker{}).Chance(1 << 40); off != 0 {
		t.Errorf("without thresholds %v", off)
	}
}
