package experiment

import (
	"slices"
	"strings"
	"testing"

	"github.com/loomfabric/loom/internal/measure"
)

// judgedResults has two loads and a size of five published seeds, in which the FCT of
// ecmp is 10 and that of conga is given by load and seed; what is 0 is missing.
func judgedResults(t *testing.T, size, expect string, conga map[float64][]float64) *Results {
	t.Helper()
	text := strings.Replace(small, "seeds: 2\n", "", 1) + "sizes: {quick: {seeds: 2}, paper: {published: true}}\nexpect:\n  - " + expect + "\n"
	e, err := Parse("f.yaml", []byte(text), Options{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := e.Size(size)
	if err != nil {
		t.Fatal(err)
	}
	r := &Results{Size: s}
	for i := range s.Runs {
		run, v := &s.Runs[i], 10.0
		if run.Scheme == "conga" {
			v = conga[run.Load][slices.Index(s.Seeds, run.Seed)]
		}
		if v == 0 {
			r.Records = append(r.Records, nil)
			continue
		}
		r.Records = append(r.Records, &Record{ID: run.ID, Result: &measure.Result{FCT: []measure.ClassFCT{{Class: "all", Norm: v}}}})
	}
	return r
}

// TestVerdicts: of what is published the whole 95 % interval has to lie within
// bounds. Five values a, b, c, d, e around m with a standard deviation of s have
// ±1.24 s (Student's t of four degrees of freedom, 2.776/√5).
func TestVerdicts(t *testing.T) {
	steady := []float64{7.9, 8, 8.1, 8, 8} // 8 ±0.088
	noisy := []float64{4, 12, 6, 10, 8}    // 8 ±3.93
	worse := []float64{12, 12.1, 11.9, 12, 12}
	for _, tt := range []struct {
		name, expect string
		at30, at60   []float64
		want         string
	}{
		{"the margin is reached", `{metric: fct.all.norm, scheme: conga, versus: ecmp, at: {load: 30}, ratio: "< 1", paper: "<= 0.85"}`, steady, steady, "MarginReached"},
		{"the mean reaches the margin, its interval does not", `{metric: fct.all.norm, scheme: conga, versus: ecmp, at: {load: 30}, ratio: "< 1", paper: "<= 0.8"}`, steady, steady, "DirectionOnly"},
		{"a margin that is missed", `{metric: fct.all.norm, scheme: conga, versus: ecmp, at: {load: 30}, ratio: "< 1", paper: "<= 0.5"}`, steady, steady, "DirectionOnly"},
		{"the paper has no number", `{metric: fct.all.norm, scheme: conga, versus: ecmp, at: {load: 30}, ratio: "< 1"}`, steady, steady, "DirectionOnly"},
		{"the interval crosses 1", `{metric: fct.all.norm, scheme: conga, versus: ecmp, at: {load: 30}, ratio: "< 1", paper: "<= 0.85"}`, noisy, noisy, "NotReproduced"},
		{"the contrary", `{metric: fct.all.norm, scheme: conga, versus: ecmp, at: {load: 30}, ratio: "< 1"}`, worse, worse, "NotReproduced contradicted"},
		{"alike", `{metric: fct.all.norm, scheme: conga, versus: ecmp, at: {load: 30}, paper: "0.7 to 0.9"}`, steady, steady, "MarginReached"},
		{"a value", `{metric: fct.all.norm, scheme: conga, at: {load: 30}, value: "> 5", paper: "> 7.5"}`, steady, steady, "MarginReached"},
		{"a trend", `{metric: fct.all.norm, scheme: conga, versus: ecmp, at: {load: 60}, than: {load: 30}, ratio: "> 1.2", paper: "1.4 to 1.6"}`, steady, worse, "MarginReached"},
		{"the contrary trend", `{metric: fct.all.norm, scheme: conga, than: {load: 60}, ratio: "> 1.2"}`, steady, worse, "NotReproduced contradicted"},
		{"a margin of this load", `{metric: fct.all.norm, scheme: conga, versus: ecmp, at: {load: 30}, ratio: "< 1", paper: {30: "<= 0.85", 60: "<= 0.1"}}`, steady, steady, "MarginReached"},
		{"a margin of another load", `{metric: fct.all.norm, scheme: conga, versus: ecmp, at: {load: 30}, ratio: "< 1", paper: {60: "<= 0.9"}}`, steady, steady, "DirectionOnly"},
		{"four seeds", `{metric: fct.all.norm, scheme: conga, versus: ecmp, at: {load: 30}, ratio: "< 1"}`, []float64{8, 8, 0, 8, 8}, steady, "Untold"},
	} {
		got := judgedResults(t, "paper", tt.expect, map[float64][]float64{30: tt.at30, 60: tt.at60}).Outcomes()
		if len(got) != 1 {
			t.Errorf("%s: %d outcomes", tt.name, len(got))
			continue
		}
		o := got[0]
		text := map[Verdict]string{Untold: "Untold", NotReproduced: "NotReproduced", DirectionOnly: "DirectionOnly", MarginReached: "MarginReached"}[o.Verdict]
		if o.Contradicted {
			text += " contradicted"
		}
		if text != tt.want || o.ByMean {
			t.Errorf("%s: %s of %+v, want %s", tt.name, text, o.Spread, tt.want)
		}
		if o.Fails() != (strings.HasPrefix(tt.want, "NotR") || tt.want == "Untold") {
			t.Errorf("%s: a check fails: %v", tt.name, o.Fails())
		}
	}
}

// TestVerdictsByMean: two seeds of development are held against bounds by their
// mean, and say so.
func TestVerdictsByMean(t *testing.T) {
	noisy := []float64{4, 12}
	for expect, want := range map[string]Verdict{
		`{metric: fct.all.norm, scheme: conga, versus: ecmp, at: {load: 30}, ratio: "< 1", paper: "< 0.9"}`:                  MarginReached,
		`{metric: fct.all.norm, scheme: conga, versus: ecmp, at: {load: 30}, ratio: "< 0.7"}`:                                NotReproduced,
		`{metric: fct.all.norm, scheme: conga, versus: ecmp, at: {load: 30}, ratio: "< 0.7", differs: "Ours has no cache."}`: NotReproduced,
		`{metric: drops.unheard, scheme: ecmp, at: {load: 30}, value: ">= 0"}`:                                               Untold, // what no run has is not zero
	} {
		o := judgedResults(t, "quick", expect, map[float64][]float64{30: noisy, 60: noisy}).Outcomes()[0]
		if o.Verdict != want || !o.ByMean {
			t.Errorf("%s: %v of %+v, want %v", expect, o.Verdict, o.Spread, want)
		}
		if fails := want <= NotReproduced && !strings.Contains(expect, "differs"); o.Fails() != fails {
			t.Errorf("%s: a check fails: %v, want %v", expect, o.Fails(), fails)
		}
	}
}

func TestClaims(t *testing.T) {
	some := []float64{1, 2, 3, 4, 5}
	for expect, want := range map[string][]string{
		`{metric: fct.all.norm, at: {load: 30}, scheme: conga, versus: ecmp, ratio: "0.58 to 0.59"}`: {"fct.all.norm of conga over that of ecmp 0.58 to 0.59 (30 % load)"},
		`{metric: fct.all.norm, scheme: ecmp, value: "> 3", says: ECMP is slow}`:                     {"ECMP is slow (30 % load)", "ECMP is slow (60 % load)"},
		`{metric: fct.all.norm, scheme: conga, than: {load: 30}, ratio: "> 1"}`:                      {"fct.all.norm of conga over that at 30 % > 1 (60 % load)"},
	} {
		var got []string
		for _, o := range judgedResults(t, "paper", expect, map[float64][]float64{30: some, 60: some}).Outcomes() {
			got = append(got, o.Claim())
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
