package peers

import (
	"strings"
	"testing"
)

// round has all devices of a job measured in a placement.
func (r *results) round(n int, placement, job string, cpu map[string]float64, fast float64) {
	for _, size := range frameSizes {
		for device, ns := range cpu {
			m := measured{pps: 1e9 / ns, cpu: ns}
			if device == loomFast {
				m.fast, m.why = fast, "workers were given: odd"
			}
			r.add(cell{placement, job, size, device}, n, m)
		}
	}
}

// lines returns those lines of the report that have all the words.
func lines(report string, words ...string) (found []string) {
	for line := range strings.Lines(report) {
		all := true
		for _, w := range words {
			all = all && strings.Contains(line, w)
		}
		if all {
			found = append(found, strings.Join(strings.Fields(line), " "))
		}
	}
	return found
}

func TestReport(t *testing.T) {
	r := newResults()
	// Ratios are those within rounds: the machine is half as fast in the second one.
	r.round(0, oneCore, decapsulation, map[string]float64{loomFast: 100, openVSwitch: 540, theKernel: 560, loomWorkers: 900}, 1)
	r.round(1, oneCore, decapsulation, map[string]float64{loomFast: 200, openVSwitch: 1100, theKernel: 1080, loomWorkers: 1900}, 0.995)
	r.round(2, oneCore, decapsulation, map[string]float64{loomFast: 100, openVSwitch: 560, theKernel: 530, loomWorkers: 800}, 1)
	// One round that was not fast spoils all.
	r.round(0, oneCore, spine, map[string]float64{loomFast: 100, theKernel: 1000}, 1)
	r.round(1, oneCore, spine, map[string]float64{loomFast: 100, theKernel: 1000}, 0.5)
	r.round(0, oneCore, encapsulation, map[string]float64{loomFast: 170, theFloor: 100}, 1)
	r.round(0, otherCore, decapsulation, map[string]float64{loomFast: 300, theKernel: 600}, 1)
	var out strings.Builder
	r.report(&out)
	for _, c := range []struct {
		words []string
		want  string
	}{
		{[]string{"decapsulation", " 64", "of Open vSwitch ÷", "≥"}, "decapsulation 64 CPU time of Open vSwitch ÷ the fast path 5.50 (5.40–5.60) ≥ 5.5 reached"},
		{[]string{"decapsulation", "1500", "of kernel ÷", "≥"}, "decapsulation 1500 CPU time of kernel ÷ the fast path 5.40 (5.30–5.60) ≥ 5.5 NOT REACHED"},
		{[]string{"decapsulation", " 64", "of kernel ÷", "2.00"}, "decapsulation 64 CPU time of kernel ÷ the fast path 2.00 (2.00–2.00)"},
		{[]string{"spine", " 64", "of kernel ÷"}, "spine 64 CPU time of kernel ÷ the fast path not fast ≥ 3.5 NOT MEASURED"},
		{[]string{"spine", " 64", "Loom fast path"}, "spine 64 Loom fast path not fast: XDP forwarded 50.0 %: workers were given: odd"},
		{[]string{"encapsulation", " 64", "÷ push"}, "encapsulation 64 CPU time of the fast path ÷ push + redirect 1.70 (1.70–1.70) ≤ 1.6 NOT REACHED"},
		{[]string{"encapsulation", " 64", "rate", "÷ kernel"}, "encapsulation 64 rate of the fast path ÷ kernel not measured ≥ 4 NOT MEASURED"},
	} {
		if got := lines(out.String(), c.words...); len(got) != 1 || got[0] != c.want {
			t.Errorf("%q:\n%q, want one line:\n%q", c.words, got, c.want)
		}
	}
	if t.Failed() {
		t.Log(out.String())
	}
}

// TestFastShare counts only what was forwarded since.
func TestFastShare(t *testing.T) {
	before := fastCount{frames: 100, slow: map[string]uint64{"odd": 50, "off": 7}}
	after := fastCount{frames: 1090, slow: map[string]uint64{"odd": 51, "off": 16}}
	if share, why := after.since(before, 1000); share != 0.99 || why != "workers were given: off" {
		t.Errorf("%v by XDP, else %q", share, why)
	}
	after.why = "it has a shaper"
	if _, why := after.since(before, 1000); why != after.why {
		t.Errorf("else %q, want %q", why, after.why)
	}
}
