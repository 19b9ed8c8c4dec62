package measure

import (
	"slices"
	"strings"
	"testing"
)

var allUp = []bool{true, true, true, true}

// TestImbalance: CONGA §5.2.3: "the maximum throughput (among the 4 uplinks)
// minus the minimum divided by the average: (MAX − MIN)/AVG".
func TestImbalance(t *testing.T) {
	const kb = 10_000
	b := NewImbalance(4, 100)
	for _, sent := range [][]uint64{
		{5 * kb, 5 * kb, 5 * kb, 5 * kb},     // the beginning
		{15 * kb, 15 * kb, 15 * kb, 15 * kb}, // even: 0
		{15 * kb, 15 * kb, 15 * kb, 15 * kb}, // nothing
		{25 * kb, 45 * kb, 15 * kb, 25 * kb}, // 10, 30, 0, 10: 30/12.5
		{25 * kb, 45 * kb, 15 * kb, 65 * kb}, // one has all: 4
	} {
		b.Sample(sent, allUp)
	}
	var got []float64
	for _, p := range b.values.CDF(3) {
		got = append(got, p.X)
	}
	if !slices.Equal(got, []float64{0, 2.4, 4}) || b.values.Count() != 3 {
		t.Errorf("imbalance %v of %d intervals", got, b.values.Count())
	}
	o := NewImbalance(4, 100)
	o.Sample([]uint64{0, 0, 0, 0}, allUp)
	o.Sample([]uint64{0, 0, 0, 0}, allUp)
	o.Sample([]uint64{kb, kb, kb, 3 * kb}, allUp)
	d := Distributions([]string{"L0", "idle", "L1"}, []*Imbalance{b, NewImbalance(4, 100), o})
	if len(d) != 3 || d[0].Name != "all" || d[0].N != 4 || !near(d[0].Mean, (0+2.4+4+4.0/3)/4, 1e-9) || d[0].Max != 4 || d[2].Name != "L1" || d[2].N != 1 {
		t.Errorf("%+v", d)
	}
	if Distributions(nil, nil) != nil || Distributions([]string{"idle"}, []*Imbalance{NewImbalance(4, 100)}) != nil {
		t.Error("no leaves have a distribution")
	}
	for name, sent := range map[string][]uint64{"fell from 450000": {25 * kb, 44 * kb, 15 * kb, 65 * kb}, "3 counters for 4": {25 * kb, 45 * kb, 15 * kb}} {
		func() {
			defer func() {
				if r, _ := recover().(string); !strings.Contains(r, name) {
					t.Errorf("panic %q, want %q", r, name)
				}
			}()
			b.Sample(sent, allUp)
		}()
	}
}

// TestImbalanceCountsWhatCanBeBalanced: an uplink that is down is not one that
// the scheme neglects, and a lone packet has to go somewhere.
func TestImbalanceCountsWhatCanBeBalanced(t *testing.T) {
	failed := []bool{true, true, true, false}
	b := NewImbalance(4, 100)
	sent := []uint64{0, 0, 0, 0}
	interval := func(up []bool, bytes ...uint64) {
		for i, n := range bytes {
			sent[i] += n
		}
		b.Sample(sent, up)
	}
	interval(allUp)
	interval(allUp, 15_000, 15_000, 15_000, 14_999) // one byte short of ten frames an uplink
	interval(allUp, 0, 1500)
	if n := b.values.Count(); n != 0 {
		t.Errorf("%d intervals with next to no traffic count", n)
	}
	interval(allUp, 60_000)                           // four
	interval(failed, 20_000, 20_000, 20_000, 20_000)  // went down in between
	interval(failed, 20_000, 20_000, 20_000)          // even
	interval(allUp, 20_000, 20_000, 20_000, 1000)     // came back in between
	interval(allUp, 20_000, 20_000, 20_000, 20_000)   // even
	interval(failed, 14_000, 14_000, 14_000, 100_000) // what the lost one sent does not count
	if v := b.values; v.Count() != 5 || v.Max() != 4 || !near(v.Mean(), 4.0/5, 1e-9) {
		t.Errorf("%d intervals, mean %g, largest %g", v.Count(), v.Mean(), v.Max())
	}
}
