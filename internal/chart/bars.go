package chart

import (
	"image/color"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// groupWidth is the part of a group's room that its bars take.
const groupWidth = 0.8

// bars adds the bars of each series. Group i is at x = i.
func (c *Chart) bars(p *plot.Plot, styles []int) error {
	w := groupWidth / float64(len(c.Series))
	drawn := false
	for i := range c.Series {
		b := bars{width: w * 0.92, color: palette[styles[i]], log: c.LogY}
		offset := (float64(i) - float64(len(c.Series)-1)/2) * w
		for g, pt := range c.Series[i].Points {
			pt.X = float64(g) + offset
			b.points = append(b.points, pt)
		}
		if b.points = c.usable(b.points); len(b.points) == 0 {
			continue
		}
		drawn = true
		p.Add(&b)
		if s := spread(b.points); s.any() {
			e, err := plotter.NewYErrorBars(s)
			if err != nil {
				return err
			}
			e.LineStyle.Width = vg.Points(0.9)
			p.Add(e)
		}
	}
	if !drawn {
		return errEmpty
	}
	p.X.Width, p.X.Tick.LineStyle.Width = 0, 0
	p.X.Padding = vg.Points(4)
	p.X.Min, p.X.Max = -0.5, float64(len(c.Groups))-0.5 // whole bars
	return nil
}

// barLabels returns the labels below the bars: the groups' names. A single group
// without a name shows its bars' names instead of a legend.
func (c *Chart) barLabels() (labels []plot.Tick) {
	if c.oneGroup() {
		w := groupWidth / float64(len(c.Series))
		for i := range c.Series {
			labels = append(labels, plot.Tick{Value: (float64(i) - float64(len(c.Series)-1)/2) * w, Label: c.Series[i].Label})
		}
		return labels
	}
	for i, name := range c.Groups {
		labels = append(labels, plot.Tick{Value: float64(i), Label: name})
	}
	return labels
}

// oneGroup reports whether each series has one bar.
func (c *Chart) oneGroup() bool { return len(c.Groups) == 1 && c.Groups[0] == "" }

// bars draws the bars of one series.
type bars struct {
	points []Point
	width  float64 // in groups
	color  color.Color
	log    bool
}

// Plot implements [plot.Plotter].
func (b *bars) Plot(c draw.Canvas, p *plot.Plot) {
	toX, toY := p.Transforms(&c)
	for _, pt := range b.points {
		base := 0.0
		if b.log {
			base = p.Y.Min
		}
		l, r, y0, y1 := toX(pt.X-b.width/2), toX(pt.X+b.width/2), toY(base), toY(pt.Y)
		c.FillPolygon(b.color, c.ClipPolygonXY([]vg.Point{{X: l, Y: y0}, {X: l, Y: y1}, {X: r, Y: y1}, {X: r, Y: y0}}))
	}
}

// DataRange implements [plot.DataRanger].
func (b *bars) DataRange() (xmin, xmax, ymin, ymax float64) {
	xmin, xmax, ymin, ymax = math.Inf(1), math.Inf(-1), math.Inf(1), math.Inf(-1)
	for _, pt := range b.points {
		xmin, xmax = min(xmin, pt.X), max(xmax, pt.X)
		ymin, ymax = min(ymin, pt.Low), max(ymax, pt.High)
	}
	return xmin, xmax, ymin, ymax
}
