package measure

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/loomfabric/loom/sim/engine"
)

const us = engine.Microsecond

func summary(t *testing.T, f *FCT, class string) FCTSummary {
	t.Helper()
	for _, s := range f.Summary() {
		if s.Class == class {
			return s
		}
	}
	t.Fatalf("there is no class %q", class)
	return FCTSummary{}
}

// TestFCT does four flows by hand.
func TestFCT(t *testing.T) {
	f := NewFCT(FCTConfig{Classes: CONGAClasses()})
	f.Add(1000, 5*us, 15*us, 10*us)                 // took 10, slowdown 1
	f.Add(99_999, 0, 60*us, 20*us)                  // 60, 3
	f.Add(100_000, 0, 300*us, 100*us)               // 300, 3
	f.Add(10_000_001, 100*us, 20_100*us, 10_000*us) // 20000, 2
	f.Unfinished(20_000_000, 0, 50*us, 20_000*us)
	if err := f.Err(); err != nil {
		t.Error(err)
	}
	all := summary(t, f, "all")
	if all.Flows != 4 || all.Unfinished != 1 || all.Bytes != 1000+99_999+100_000+10_000_001 || !all.Exact {
		t.Errorf("all: %+v", all)
	}
	for name, c := range map[string][2]float64{
		"mean": {float64(all.FCTMean), 20370.0 / 4}, "p50": {float64(all.FCT50), 60}, "p99": {float64(all.FCT99), 20000},
		"normalised": {float64(all.Normalised), 20370.0 / 10130}, "slowdown": {float64(all.SlowMean), 9.0 / 4},
		"p50 of slowdowns": {float64(all.Slow50), 2}, "p99.9 of slowdowns": {float64(all.Slow999), 3},
	} {
		if !near(c[0], c[1], 1e-9) {
			t.Errorf("%s is %g, want %g", name, c[0], c[1])
		}
	}
	small, medium, large := summary(t, f, "small"), summary(t, f, "medium"), summary(t, f, "large")
	if small.Flows != 2 || medium.Flows != 1 || large.Flows != 1 || large.Unfinished != 1 || small.Unfinished != 0 {
		t.Errorf("classes: %+v, %+v, %+v", small, medium, large)
	}
	if !near(float64(small.Normalised), 70.0/30, 1e-9) || medium.Bytes != 100_000 {
		t.Errorf("small %+v, medium %+v", small, medium)
	}
	if fct, slow := f.CDF("small", 10); len(fct) != 2 || len(slow) != 2 || !near(fct[1].Value, 60e-6, 1e-9) || slow[1].Value != 3 {
		t.Errorf("distributions %v and %v", fct, slow)
	}
	if fct, _ := f.CDF("tiny", 10); fct != nil {
		t.Error("a class that is not there has a distribution")
	}
}

// TestClassEdges: CONGA §5.2.1 calls flows "< 100KB" small and "> 10MB" large.
func TestClassEdges(t *testing.T) {
	for bytes, want := range map[uint64]string{0: "small", 99_999: "small", 100_000: "medium", 10_000_000: "medium", 10_000_001: "large", 1 << 60: "large"} {
		var got []string
		for _, c := range CONGAClasses() {
			if (&fctClass{Class: c}).holds(bytes) {
				got = append(got, c.Name)
			}
		}
		if len(got) != 1 || got[0] != want {
			t.Errorf("%d bytes are %v, want %s", bytes, got, want)
		}
	}
	b := BDPClasses(50_000)
	if first := (fctClass{Class: b[0]}); !first.holds(50_000) || first.holds(50_001) {
		t.Errorf("classes by BDP: %+v", b)
	}
	// Sizes from 0 to 1000 alike, in fifths; and sizes that are mostly 7.
	c := QuantileClasses(5, func(p float64) float64 { return 1000 * p })
	if len(c) != 5 || c[0] != (Class{"up_to_200", 0, 201}) || c[4] != (Class{"from_801", 801, 0}) {
		t.Errorf("classes %+v", c)
	}
	c = QuantileClasses(4, func(p float64) float64 { return 7 })
	if len(c) != 2 || c[0] != (Class{"up_to_7", 0, 8}) || c[1] != (Class{"from_8", 8, 0}) {
		t.Errorf("classes %+v", c)
	}
}

// TestUnfinishedAges: an age counts as a lower bound, and never as a flow that
// beat the idle network.
func TestUnfinishedAges(t *testing.T) {
	f := NewFCT(FCTConfig{CountAge: true})
	f.Unfinished(1000, 0, 40*us, 10*us)
	f.Unfinished(1000, 38*us, 40*us, 10*us)
	f.Unfinished(1000, 38*us, 40*us, 0) // no idle time: only counted
	s := summary(t, f, "all")
	if s.Flows != 2 || s.Unfinished != 3 || s.Bytes != 0 || !near(float64(s.FCTMean), 25, 1e-9) || s.SlowMean != 2.5 || f.Err() != nil {
		t.Errorf("%+v, %v", s, f.Err())
	}
}

// TestSlowdownGuard: less than 1 is an error beyond rounding.
func TestSlowdownGuard(t *testing.T) {
	for _, c := range []struct {
		took, idle engine.Time
		want       float64
		wrong      bool
	}{
		{20 * us, 10 * us, 2, false},
		{10 * us, 10 * us, 1, false},
		{10*us - engine.Nanosecond, 10 * us, 1, false},
		{10*us - engine.Nanosecond - 1, 10 * us, 1, true},
		{engine.Second - us, engine.Second, 1, false},
		{engine.Second - 2*us, engine.Second, 1, true},
		{us, 0, 1, true},
		{5 * us, 10 * us, 0.5, true},
	} {
		got, err := Slowdown(c.took, c.idle)
		if (err != nil) != c.wrong || math.Abs(got-c.want) > 1e-3 {
			t.Errorf("%v instead of %v: %g, %v", c.took, c.idle, got, err)
		}
	}
	f := NewFCT(FCTConfig{})
	f.Add(77, 0, 5*us, 10*us)
	f.Add(78, 0, 6*us, 10*us)
	err := f.Err()
	if err == nil || !strings.Contains(err.Error(), "2 flows were faster") || !strings.Contains(err.Error(), "77 bytes: it took 5µs, but 10µs") {
		t.Errorf("error %v", err)
	}
	if s := summary(t, f, "all"); s.SlowMean != 1 || s.Flows != 2 {
		t.Errorf("%+v", s)
	}
}

// TestMergeFCT: two runs together are as one with all flows.
func TestMergeFCT(t *testing.T) {
	r := seeded(t)
	conf := FCTConfig{Classes: CONGAClasses(), Exact: 1000}
	a, b, all := NewFCT(conf), NewFCT(conf), NewFCT(conf)
	for i := range 600 {
		half := a
		if i%3 == 0 {
			half = b
		}
		bytes := uint64(math.Exp(r.Float64() * 20))
		idle := us + engine.Time(bytes)
		end := engine.Time(float64(idle) * (1 + r.Float64()*5))
		half.Add(bytes, 0, end, idle)
		all.Add(bytes, 0, end, idle)
		half.Unfinished(bytes/2, 0, end, idle)
		all.Unfinished(bytes/2, 0, end, idle)
	}
	if err := a.Merge(b); err != nil {
		t.Fatal(err)
	}
	for i, got := range a.Summary() {
		want := all.Summary()[i]
		g, w := Row(got), Row(want)
		for k, name := range Columns(got) {
			if strings.HasSuffix(name, "mean") || name == "fct_mean_us" || name == "fct_mean_to_idle" {
				continue // sums in another order
			}
			if g[k] != w[k] {
				t.Errorf("%s of class %s: %s, want %s", name, got.Class, g[k], w[k])
			}
		}
		if !near(float64(got.FCTMean), float64(want.FCTMean), 1e-9) || !near(float64(got.Normalised), float64(want.Normalised), 1e-9) {
			t.Errorf("class %s: means %g and %g", got.Class, got.FCTMean, want.FCTMean)
		}
	}
	if err := a.Merge(NewFCT(FCTConfig{})); err == nil {
		t.Error("records of different classes were merged")
	}
	if err := a.Merge(NewFCT(FCTConfig{Classes: []Class{{"a", 0, 1}, {"b", 1, 2}, {"c", 2, 3}}})); err == nil || !strings.Contains(err.Error(), `"small" and "a"`) {
		t.Errorf("records of different classes were merged: %v", err)
	}
	c := NewFCT(conf)
	c.Add(1, 0, us, 9*us)
	if err := a.Merge(c); err != nil || a.Err() == nil {
		t.Errorf("a wrong base was lost in merging: %v", err)
	}
}

// TestForms: names and their order are what readers of files rely on.
func TestForms(t *testing.T) {
	f := NewFCT(FCTConfig{})
	f.Add(1000, 0, 15*us, 10*us)
	var csv bytes.Buffer
	if err := WriteCSV(&csv, f.Summary()); err != nil {
		t.Fatal(err)
	}
	const want = "class,from_bytes,to_bytes,flows,unfinished,bytes,fct_mean_us,fct_p50_us,fct_p95_us,fct_p99_us,fct_p999_us,fct_max_us," +
		"fct_mean_to_idle,slowdown_mean,slowdown_p50,slowdown_p95,slowdown_p99,slowdown_p999,slowdown_max,exact\n" +
		"all,0,0,1,0,1000,15,15,15,15,15,15,1.5,1.5,1.5,1.5,1.5,1.5,1.5,true\n"
	if csv.String() != want {
		t.Errorf("CSV:\n%swant:\n%s", csv.String(), want)
	}
	out, err := json.Marshal(NewFCT(FCTConfig{}).Summary()[0])
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(string(out), `{"class":"all","from_bytes":0,"to_bytes":0,"flows":0,"unfinished":0,"bytes":0,"fct_mean_us":null,`) {
		t.Errorf("JSON %s", out)
	}
	var back FCTSummary
	if err := json.Unmarshal(out, &back); err != nil || back.FCTMean.Known() || back.Class != "all" {
		t.Errorf("read back as %+v: %v", back, err)
	}
	type inner struct {
		A Number `json:"a"`
		B int    `json:"b,omitempty"`
	}
	type outer struct {
		Name string `json:"name"`
		inner
		In     inner   `json:"in"`
		X      float64 // without a tag
		hidden int
		Skip   bool `json:"-"`
	}
	v := outer{Name: `say "a,b"`, inner: inner{1.25, 2}, In: inner{Number(math.NaN()), -3}, X: math.Inf(1), hidden: 1, Skip: true}
	csv.Reset()
	if err := WriteCSV(&csv, []outer{v}); err != nil {
		t.Fatal(err)
	}
	if got, want := csv.String(), "name,a,b,in.a,in.b,X\n\"say \"\"a,b\"\"\",1.25,2,,-3,\n"; got != want {
		t.Errorf("CSV:\n%swant:\n%s", got, want)
	}
	var n Number
	if err := json.Unmarshal([]byte(`"x"`), &n); err == nil {
		t.Error("a text was read as a figure")
	}
	if err := json.Unmarshal([]byte("[0.1,null,2e+30]"), &[]*Number{&n, &n, &n}); err != nil {
		t.Error(err)
	}
}
