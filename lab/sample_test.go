package lab

import (
	"math"
	"testing"
	"time"

	"github.com/loomfabric/loom/config/fabric"
)

// sampled builds the samples of a leaf with two uplinks, every 50 ms, from the
// share of the second one of 2 MB/s.
func sampled(share func(time.Duration) float64, length time.Duration) UplinkSeries {
	const step = 50 * time.Millisecond
	u := UplinkSeries{Leaf: "L0", Links: []string{"a", "b"}}
	a, b := uint64(0), uint64(0)
	for at := time.Duration(0); at <= length; at += step {
		u.add(sample{at, []uint64{a, b}})
		s := share(at)
		a, b = a+uint64(1e5*(1-s)), b+uint64(1e5*s)
	}
	return u
}

func TestReaction(t *testing.T) {
	const fault, end = 2 * time.Second, 6 * time.Second
	for _, tt := range []struct {
		name     string
		share    func(time.Duration) float64
		followed time.Duration
	}{
		{"at once", func(at time.Duration) float64 {
			if at < fault {
				return 0.5
			}
			return 0.25
		}, 0},
		{"after 500 ms", func(at time.Duration) float64 {
			if at < fault+500*time.Millisecond {
				return 0.5
			}
			return 0.25
		}, 500 * time.Millisecond},
		// Down by 0.25 in one second: 0.3 is within a fifth of 0.25, and the mean of
		// 200 ms gets there when its middle does.
		{"ramp", func(at time.Duration) float64 {
			return 0.5 - 0.25*min(max((at-fault).Seconds(), 0), 1)
		}, 700 * time.Millisecond},
	} {
		u := sampled(tt.share, end)
		r, ok := u.reaction([]int{1}, fault, end)
		if !ok || math.Abs(r.BeforePercent-50) > 1 || math.Abs(r.AfterPercent-25) > 1 || r.FollowedS == nil {
			t.Errorf("%s: %+v, %v", tt.name, r, ok)
		} else if math.Abs(*r.FollowedS-tt.followed.Seconds()) > 0.0501 {
			t.Errorf("%s: followed after %g s, want %v", tt.name, *r.FollowedS, tt.followed)
		}
	}
	// All for 0.7 of the last 2 s and nothing else comes to 35 %, which is not near
	// what any 4 samples together have.
	swings := sampled(func(at time.Duration) float64 {
		switch {
		case at < fault:
			return 0.5
		case at >= 4*time.Second && at < 4700*time.Millisecond:
			return 1
		}
		return 0
	}, end)
	l := &Lab{Topo: &fabric.Topology{Links: []fabric.Link{{Name: "L0-S0.0"}, {Name: "L0-S1.0", Spine: 1, LeafUplinkID: 1}, {Name: "L1-S1.0", Leaf: 1, Spine: 1}}}}
	got := l.reactions([]FaultReport{{Action: "fail", Link: "L1-S1.0", At: fault}}, []UplinkSeries{swings}, end)
	if len(got) != 1 || got[0].Name != "fail L1-S1.0: L0" || math.Abs(got[0].AfterPercent-35) > 1 || got[0].FollowedS != nil {
		t.Errorf("a leaf whose split never settles: %+v", got)
	}
	idle := UplinkSeries{Links: []string{"a", "b"}}
	if _, ok := idle.reaction([]int{1}, fault, end); ok {
		t.Error("a leaf that sends nothing reacts")
	}
}

// TestSeries: rates and imbalance come from bytes and times, count links that are
// up only, and leave out what lies outside the load or is next to nothing.
func TestSeries(t *testing.T) {
	f, err := fabric.Parse("f.yaml", []byte("name: s\nleaves: 1\nspines: 3\nhosts: {per_leaf: 2}\nvnis: [{vni: 1}]\n"))
	if err != nil {
		t.Fatal(err)
	}
	ms := time.Millisecond
	s := &sampler{lab: New(f), series: []UplinkSeries{{Leaf: "L0", Links: []string{"a", "b", "c"}}}}
	for _, x := range []sample{
		{-50 * ms, []uint64{0, 0, 0}}, {50 * ms, []uint64{0, 0, 9e6}}, {150 * ms, []uint64{1e6, 3e6, 9e6}},
		{250 * ms, []uint64{2e6, 4e6, 9e6}}, {350 * ms, []uint64{2e6, 4e6 + 100, 9e6}}, {1000 * ms, []uint64{9e6, 4e6, 9e6}},
	} {
		s.series[0].add(x)
	}
	up := func(time.Duration) []bool { return []bool{true, true, false} }
	got := s.series
	if len(got[0].At) != 5 || got[0].Bits[1][1] != 240e6 {
		t.Fatalf("%+v", got)
	}
	m := s.imbalance(up, 0, 400*ms)
	if len(m) != 2 || m[0].Name != "all" || m[1].Name != "L0" || m[1].N != 2 || m[1].Mean != 0.5 || m[1].P50 != 0 || m[1].P90 != 1 || m[0].Mean != 0.5 {
		t.Errorf("imbalance %+v", m)
	}
	if b := got[0].bytes(50*ms, 250*ms); b[0]+b[1] != 6e6 {
		t.Errorf("%g bytes", b)
	}
	none := s.lab.startSampler(t.Context(), nil, 0, false)
	if none.stop() != nil || none.series != nil || none.imbalance(up, 0, 0) != nil {
		t.Error("a run without samples has some")
	}
}
