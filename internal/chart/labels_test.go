package chart

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/recorder"
)

// textBox is the corners of a text that was drawn, all around.
type textBox struct {
	text    string
	corners [4]vg.Point
	turned  bool
}

// texts draws a chart and returns where its texts are, and the canvas' size.
func texts(t *testing.T, c *Chart) (all []textBox, w, h vg.Length) {
	t.Helper()
	p, w, h, err := c.layout()
	if err != nil {
		t.Fatal(err)
	}
	var rec recorder.Canvas
	p.Draw(area(p, draw.NewCanvas(&rec, w, h)))
	now, saved := 0.0, []float64(nil)
	for _, a := range rec.Actions {
		switch a := a.(type) {
		case *recorder.Push:
			saved = append(saved, now)
		case *recorder.Pop:
			now, saved = saved[len(saved)-1], saved[:len(saved)-1]
		case *recorder.Rotate:
			now += a.Angle
		case *recorder.Translate, *recorder.Scale:
			t.Fatalf("%v is not expected", a.Call())
		case *recorder.FillString:
			face := font.DefaultCache.Lookup(a.Font, a.Size)
			// No letter is higher than 3/4 of the font's size; its ascent is.
			l, r, b, top := a.Point.X, a.Point.X+face.Width(a.String), a.Point.Y-face.Extents().Descent, a.Point.Y+a.Size*3/4
			box := textBox{text: a.String, turned: now != 0}
			for i, p := range []vg.Point{{X: l, Y: b}, {X: r, Y: b}, {X: r, Y: top}, {X: l, Y: top}} {
				sin, cos := math.Sincos(now)
				box.corners[i] = vg.Point{X: p.X*vg.Length(cos) - p.Y*vg.Length(sin), Y: p.X*vg.Length(sin) + p.Y*vg.Length(cos)}
			}
			all = append(all, box)
		}
	}
	return all, w, h
}

// touch tells whether two boxes do: no side of either has them on its two sides.
func (b *textBox) touch(o *textBox) bool {
	for _, x := range []*textBox{b, o} {
		for i := range 4 {
			from, to := x.corners[i], x.corners[(i+1)%4]
			side := func(of *textBox) (least, most float64) {
				least, most = math.Inf(1), math.Inf(-1)
				for _, p := range of.corners {
					v := float64((p.X-from.X)*(from.Y-to.Y) + (p.Y-from.Y)*(to.X-from.X))
					least, most = min(least, v), max(most, v)
				}
				return least, most
			}
			b0, b1 := side(b)
			o0, o1 := side(o)
			if b1 <= o0 || o1 <= b0 {
				return false
			}
		}
	}
	return true
}

func barChart(bars int, groups ...string) *Chart {
	c := &Chart{Title: "Title", XLabel: "load: 50", YLabel: "p99 slowdown", Groups: groups}
	for range bars {
		s := Series{Label: fmt.Sprint("s", len(c.Series)), Style: len(c.Series)}
		for g := range groups {
			y := float64(g + len(c.Series) + 1)
			s.Points = append(s.Points, Point{Y: y, Low: y, High: y})
		}
		c.Series = append(c.Series, s)
	}
	return c
}

func schemeChart(names ...string) *Chart {
	c := barChart(len(names), "")
	for i, n := range names {
		c.Series[i].Label = n
	}
	return c
}

// However long names are: they are written whole, no text touches another, and none
// leaves the chart, which keeps its room for the bars.
func TestLabelsFit(t *testing.T) {
	long := strings.Repeat("longest name ", 4) + "of all"
	var ports []string
	for i := range 40 {
		ports = append(ports, fmt.Sprintf("spine-11->leaf-12.%d", i))
	}
	for name, tt := range map[string]struct {
		c      *Chart
		turned bool
	}{
		"short":        {schemeChart("ecmp", "conga", "drill"), false},
		"schemes":      {schemeChart("ecmp", "letflow", "drill", "conga", "conga-flow", "conweave", "conweave-informed", "spray", "local", "static"), true},
		"options":      {schemeChart("conga 100us", "conga 500us", "conga-flow", "conweave 4 selectors", "conweave auto", "letflow 500us"), true},
		"one word":     {schemeChart("conga_100us_a", "conga_500us_a", "conga_flow_a", "conweave_four_a", "conweave_auto", "letflow_500us_a"), true},
		"first long":   {schemeChart(long, "ecmp", "conga", "drill", "letflow", "spray"), true},
		"last long":    {schemeChart("ecmp", "conga", "drill", "letflow", "spray", long), true},
		"groups":       {barChart(3, "web search, 50 % load", "small (0–100 KB)", "data mining with a failed link", "all flows of the run"), true},
		"many groups":  {barChart(2, ports...), true},
		"crowd":        {barChart(6, ports...), true},
		"many schemes": {schemeChart(ports...), true},
	} {
		t.Run(name, func(t *testing.T) {
			all, w, h := texts(t, tt.c)
			for i := range all {
				a := &all[i]
				for _, p := range a.corners {
					if p.X < 0 || p.X > w || p.Y < 0 || p.Y > h {
						t.Errorf("%q leaves the chart of %.0f × %.0f: %.0f", a.text, w, h, a.corners)
						break
					}
				}
				for k := range i {
					if a.touch(&all[k]) {
						t.Errorf("%q touches %q", a.text, all[k].text)
					}
				}
			}
			turned, lines := 0, 0
			labels := tt.c.barLabels()
			for _, l := range labels {
				for left := strings.TrimSpace(l.Label); left != ""; lines++ {
					longest := textBox{}
					for _, b := range all {
						if strings.HasPrefix(left, b.text) && len(b.text) > len(longest.text) {
							longest = b
						}
					}
					if longest.text == "" {
						t.Fatalf("of %q there is no %q", l.Label, left)
					}
					if longest.turned {
						turned++
					}
					left = strings.TrimSpace(left[len(longest.text):])
				}
			}
			if (turned == len(labels)) != tt.turned || lines != len(labels) {
				t.Errorf("%d labels in %d lines, %d of them turned", len(labels), lines, turned)
			}
			p, _, _, _ := tt.c.layout()
			if room := p.DataCanvas(draw.Canvas{Rectangle: vg.Rectangle{Max: vg.Point{X: w, Y: h}}}).Size().Y; room < 0.75*height {
				t.Errorf("%.0f points of %.0f are left for the bars", room, h)
			}
		})
	}
}

// Where there are more groups than lines have room, some have labels.
func TestLabelsThin(t *testing.T) {
	var groups []string
	for i := range 300 {
		groups = append(groups, fmt.Sprint("leaf-", i))
	}
	all, _, _ := texts(t, barChart(1, groups...))
	labels := 0
	for i := range all {
		if strings.HasPrefix(all[i].text, "leaf-") {
			labels++
		}
		for k := range i {
			if all[i].touch(&all[k]) {
				t.Errorf("%q touches %q", all[i].text, all[k].text)
			}
		}
	}
	if labels < 60 || labels >= 300 {
		t.Errorf("%d of 300 labels are written", labels)
	}
}
