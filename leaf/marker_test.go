package leaf

import (
	"math"
	"math/rand/v2"
	"testing"
)

// Zhu et al. §3.1, Figure 5: nothing is marked up to Kmin, everything above Kmax, and
// between them a part that grows to Pmax.
func TestMarker(t *testing.T) {
	const n = 50_000
	for _, tt := range []struct {
		kmin, kmax uint64
		pmax       float64
		queued     uint64
		want       float64
	}{
		{0, 0, 1, 1 << 40, 0}, // off
		{100, 400, 0.2, 0, 0},
		{100, 400, 0.2, 99, 0},
		{100, 400, 0.2, 100, 0},
		{100, 400, 0.2, 250, 0.1},
		{100, 400, 0.2, 400, 0.2},
		{100, 400, 0.2, 401, 1},
		{100, 400, 0.2, math.MaxUint64, 1},
		{100, 400, 1, 175, 0.25},
		{100, 400, 1, 400, 1},
		{100, 400, 0, 400, 0},
		{100, 400, 0, 401, 1},
		{0, 300, 0.5, 150, 0.25},
		{0, 300, 0.5, 0, 0},
		// A step, as DCTCP has it: above the threshold, and not at it.
		{200, 200, 0.01, 200, 0},
		{200, 200, 0.01, 201, 1},
	} {
		m := Marker{Kmin: tt.kmin, Kmax: tt.kmax, Pmax: tt.pmax, RNG: rand.New(rand.NewPCG(1, 2))}
		hits := 0
		for range n {
			if m.Hit(tt.queued) {
				hits++
			}
		}
		if got := float64(hits) / n; math.Abs(got-tt.want) > 0.01 || (tt.want == 0 || tt.want == 1) && got != tt.want {
			t.Errorf("%d in a queue of %d to %d at %v: %v of all marked, want %v", tt.queued, tt.kmin, tt.kmax, tt.pmax, got, tt.want)
		}
		if m.On() != (tt.kmax > 0) {
			t.Errorf("%+v is on: %v", m, m.On())
		}
	}
	// Outside of the ramp chance is not asked, so none is needed.
	if step := (Marker{Kmin: 9, Kmax: 9}); step.Hit(9) || !step.Hit(10) || (&Marker{}).Hit(1) {
		t.Error("a step, or nothing, went wrong")
	}
}
