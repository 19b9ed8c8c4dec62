package congestion

import (
	"math"
	"strings"
	"testing"
	"time"
)

func TestProfilesAreValid(t *testing.T) {
	for name, p := range map[string]Params{"datacenter": Datacenter(), "lab": Lab()} {
		if err := p.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if p.Q > WireQ {
			t.Errorf("%s: Q = %d does not fit the header", name, p.Q)
		}
		// §3.6: τ = 100 µs to 500 µs, T_fl = 300 µs to 1 ms worked well; between
		// τ and T_fl that is a factor of 2 to 6, which a profile must keep.
		if r := float64(p.FlowletGap) / float64(p.Tau); r < 2 || r > 6 {
			t.Errorf("%s: T_fl is %.1f τ", name, r)
		}
	}
}

// What Lab promises of itself: a level of its metric is two full frames or
// more at 100 Mb/s.
func TestLabLevelsAreWorthFrames(t *testing.T) {
	p := Lab()
	d := p.DRE()
	const rate = 100_000_000
	d.Add(0, 1514)
	if got := d.Metric(0, rate); got != 0 {
		t.Errorf("metric %d after one frame", got)
	}
	d.Add(0, 1514+150)
	if got := d.Metric(0, rate); got != 1 {
		t.Errorf("metric %d after two frames", got)
	}
}

func TestValidate(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*Params)
		want   string // part of the error; "": none
	}{
		{"defaults", func(*Params) {}, ""},
		{"Q 8", func(p *Params) { p.Q = 8 }, ""},
		{"Q 0", func(p *Params) { p.Q = 0 }, "metrics of 0 bits"},
		{"Q 9", func(p *Params) { p.Q = 9 }, "metrics of 9 bits"},
		{"no tau", func(p *Params) { p.Tau = 0 }, "tau is 0s"},
		{"long tau", func(p *Params) { p.Tau = time.Hour }, "tau is 1h"},
		{"alpha 0", func(p *Params) { p.Alpha = 0 }, "alpha is 0"},
		{"alpha 1", func(p *Params) { p.Alpha = 1 }, "alpha is 1"},
		{"alpha not a number", func(p *Params) { p.Alpha = math.NaN() }, "alpha is NaN"},
		{"period below a nanosecond", func(p *Params) { p.Tau, p.Alpha = 5, 0.1 }, "below a nanosecond"},
		{"no flowlet gap", func(p *Params) { p.FlowletGap = 0 }, "flowlet_gap is 0s"},
		{"negative flowlet gap", func(p *Params) { p.FlowletGap = -1 }, "flowlet_gap is -1ns"},
		{"flow gap below flowlet gap", func(p *Params) { p.FlowGap = p.FlowletGap - 1 }, "flow_gap"},
		{"no ageing", func(p *Params) { p.Ageing = 0 }, "ageing is 0s"},
		{"detector", func(p *Params) { p.Detector = 2 }, "detector 2"},
		{"path metric", func(p *Params) { p.Decision.Metric = 2 }, "path metric 2"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := Datacenter()
			tt.change(&p)
			err := p.Validate()
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want one with %q", err, tt.want)
			}
		})
	}
}

func TestNames(t *testing.T) {
	got := []string{Timestamp.String(), AgeBit.String(), Detector(9).String(), MaxMetric.String(), SumMetric.String(), PathMetric(9).String()}
	want := "timestamp agebit detector 9 max sum path metric 9"
	if strings.Join(got, " ") != want {
		t.Errorf("names %q, want %q", got, want)
	}
}
