package chart

import (
	"bytes"
	"encoding/xml"
	"errors"
	"image/png"
	"io"
	"math"
	"strings"
	"testing"
)

func series(label string, values ...float64) Series {
	s := Series{Label: label}
	for i, v := range values {
		s.Points = append(s.Points, Point{X: float64(10 * (i + 1)), Y: v, Low: v * 0.9, High: v * 1.2})
	}
	return s
}

func charts() map[string]*Chart {
	curve := func(label string, step float64) Series {
		s := Series{Label: label, Curve: true}
		for i := range 50 {
			s.Points = append(s.Points, Point{X: step * float64(i), Y: float64(i) / 49, Low: float64(i) / 49, High: float64(i) / 49})
		}
		return s
	}
	return map[string]*Chart{
		"lines": {Title: "FCT", XLabel: "load (%)", YLabel: "mean FCT (×idle)", ZeroY: true, Series: []Series{
			series("ecmp", 2, 3, 5, 9), series("conga", 2, 2.2, 3, 4), series("conga 100us", 2, 2.1, 2.9, 4.1), series("letflow", 2, 3, 4, math.NaN())}},
		"log": {XLabel: "fan-in", YLabel: "ms", LogX: true, LogY: true, Series: []Series{series("drill", 1, 100, 0, 5000)}},
		"cdf": {XLabel: "queue (KB)", YLabel: "CDF", TopY: 1, Series: []Series{curve("ecmp", 3), curve("conga", 1)}},
		"bars": {YLabel: "×", Groups: []string{"all", "small & tiny", "10KB–100KB", "large"}, Series: []Series{
			series("ecmp", 1, 1, 1, 1), series("conga", 0.5, 0.6, 0.9, math.NaN())}},
		"one":    {YLabel: "x", Groups: []string{""}, Series: []Series{series("ecmp", 1), series("drill", 2), series("a rather long name", 3)}},
		"single": {XLabel: "load", YLabel: "y", Series: []Series{series("ecmp", 3)}},
		"many":   {YLabel: "y", LogY: true, Groups: strings.Fields(strings.Repeat("S1->L1.0 ", 40)), Series: []Series{series("ecmp", make([]float64, 40)...), series("conga", 3, 4)}},
	}
}

func TestSVG(t *testing.T) {
	for name, c := range charts() {
		var b bytes.Buffer
		if err := c.SVG(&b); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		text := ""
		d := xml.NewDecoder(&b)
		for {
			tok, err := d.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s: not XML: %v", name, err)
			}
			if chars, ok := tok.(xml.CharData); ok {
				text += string(chars) + "\n"
			}
		}
		for _, want := range []string{c.Title, c.XLabel, c.YLabel, c.Series[0].Label} {
			if !strings.Contains(text, want) {
				t.Errorf("%s: %q is not written", name, want)
			}
		}
		if strings.Contains(text, "NaN") || strings.Contains(text, "Inf") {
			t.Errorf("%s: has no numbers: %s", name, text)
		}
	}
}

func TestPNG(t *testing.T) {
	for name, c := range charts() {
		var b bytes.Buffer
		if err := c.PNG(&b); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		img, err := png.Decode(&b)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		_, w, h, err := c.layout()
		if err != nil {
			t.Fatal(err)
		}
		size, wantX, wantY := img.Bounds().Size(), int(w/72*dpi), int(h/72*dpi)
		if size.X < wantX-1 || size.X > wantX+1 || size.Y < wantY-1 || size.Y > wantY+1 {
			t.Errorf("%s: %v, want %d × %d", name, size, wantX, wantY)
		}
		colours := map[any]bool{}
		for x := range size.X {
			for y := range size.Y {
				colours[img.At(x, y)] = true
			}
		}
		if !colours[palette[0]] && name != "many" { // its first series has nothing above zero
			t.Errorf("%s: the first series' colour is not there", name)
		}
	}
}

func TestNothing(t *testing.T) {
	for _, c := range []*Chart{{}, {Series: []Series{{Label: "ecmp"}}}, {Groups: []string{"a"}, Series: []Series{series("ecmp", math.NaN())}}} {
		if err := c.SVG(io.Discard); !errors.Is(err, errEmpty) {
			t.Errorf("%v", err)
		}
	}
}

// Series of any style can be drawn.
func TestStyles(t *testing.T) {
	c := &Chart{}
	for i := range 20 {
		c.Series = append(c.Series, series("s", 1, 2))
		c.Series[i].Style = i
	}
	for _, c.Groups = range [][]string{nil, {"a", "b"}} {
		if err := c.SVG(io.Discard); err != nil {
			t.Error(err)
		}
	}
}

func TestTicks(t *testing.T) {
	for _, tt := range []struct {
		low, high float64
		want      string
	}{
		{0, 10, "0 2 4 6 8 10"}, {0, 1.05, "0 0.2 0.4 0.6 0.8 1"}, {0, 7e-3, "0 0.001 0.002 0.003 0.004 0.005 0.006 0.007"}, {-3, 4, "-3 -2 -1 0 1 2 3 4"}, {97, 103, "97 98 99 100 101 102 103"},
	} {
		var got []string
		for _, tick := range (linearTicks{}).Ticks(tt.low, tt.high) {
			got = append(got, tick.Label)
		}
		if strings.Join(got, " ") != tt.want {
			t.Errorf("%g to %g: %v, want %s", tt.low, tt.high, got, tt.want)
		}
	}
	var got []string
	for _, tick := range (logTicks{}).Ticks(0.9, 210) {
		if tick.Label != "" {
			got = append(got, tick.Label)
		}
	}
	if strings.Join(got, " ") != "1 10 100" {
		t.Errorf("logarithmic: %v", got)
	}
}

// Marks are lines with their texts, where the axis reaches.
func TestMarks(t *testing.T) {
	c := Chart{Flat: true, Series: []Series{{Label: "x", Curve: true, Points: []Point{{X: 0, Y: 1}, {X: 10, Y: 2}}}}}
	var plain, marked strings.Builder
	if err := c.SVG(&plain); err != nil {
		t.Fatal(err)
	}
	c.Marks = []Mark{{4, "fail L0-S0.0"}, {40, "beyond"}}
	if err := c.SVG(&marked); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(plain.String(), "fail") || !strings.Contains(marked.String(), "fail L0-S0.0</text>") || strings.Contains(marked.String(), "beyond") {
		t.Errorf("%s", marked.String())
	}
	if c.Empty() || !(&Chart{Series: []Series{{Points: []Point{{Y: math.NaN()}}}}}).Empty() {
		t.Error("what is empty is not, or the other way round")
	}
}
