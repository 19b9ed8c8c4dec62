package measure

import "testing"

// TestAddsDoNotAllocate covers what a run calls for flows and samples.
func TestAddsDoNotAllocate(t *testing.T) {
	im, values, fct := NewImbalance(3, 8), NewValues(100), NewFCT(congaClasses())
	sent, up := make([]uint64, 3), []bool{true, true, true}
	n := 0
	for name, f := range map[string]func(){
		"values":    func() { values.Add(float64(n)) },
		"fct":       func() { fct.Add(5000, 10*us+float64(n), us) },
		"imbalance": func() { sent[n%3] += 1e5; im.Sample(sent, up) },
	} {
		f()
		if allocs := testing.AllocsPerRun(500, func() { n++; f() }); allocs != 0 {
			t.Errorf("%s: %g allocations", name, allocs)
		}
	}
	if values.Exact() || im.values.Exact() {
		t.Errorf("the run was too short: %d values, %d intervals", values.Count(), im.values.Count())
	}
}
