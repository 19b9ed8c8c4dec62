package chart

import (
	"math"
	"slices"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// widen makes room around a single point.
func widen(a *plot.Axis) {
	if a.Min == a.Max {
		room := math.Abs(a.Min)/2 + 0.5
		a.Min, a.Max = a.Min-room, a.Max+room
	}
}

// yAxis sets range and ticks from the points.
func (c *Chart) yAxis(p *plot.Plot) {
	if c.LogY {
		p.Y.Min, p.Y.Max = p.Y.Min/1.2, p.Y.Max*1.2
		p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, logTicks{}
		return
	}
	if c.ZeroY {
		p.Y.Min = min(p.Y.Min, 0)
	}
	widen(&p.Y)
	p.Y.Max += (p.Y.Max - p.Y.Min) / 20
	if c.TopY != 0 {
		p.Y.Max = c.TopY
	}
	p.Y.Tick.Marker = linearTicks{}
}

// xAxis sets range and ticks from the points: ticks at the points if these are few,
// since there are no runs between them. Labels that would touch are left out.
func (c *Chart) xAxis(p *plot.Plot) {
	p.X.Tick.Marker = linearTicks{}
	if c.LogX {
		p.X.Min, p.X.Max = p.X.Min/1.1, p.X.Max*1.1
		p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, logTicks{}
	} else {
		widen(&p.X)
	}
	var at []float64
	for i, s := range c.Series {
		if s.Curve {
			return
		}
		for _, pt := range c.points(i) {
			at = append(at, pt.X)
		}
	}
	slices.Sort(at)
	if at = slices.Compact(at); len(at) > 16 {
		return
	}
	ticks := make(plot.ConstantTicks, len(at))
	last := math.Inf(-1)
	for i, x := range at {
		ticks[i].Value = x
		if place := p.X.Norm(x); place-last >= 0.05 {
			last, ticks[i].Label = place, short(x)
		}
	}
	p.X.Tick.Marker = ticks
}

// linearTicks puts ticks at 1, 2 or 5 times a power of ten.
type linearTicks struct{}

// Ticks implements [plot.Ticker].
func (linearTicks) Ticks(low, high float64) (ticks []plot.Tick) {
	step := math.Pow(10, math.Floor(math.Log10(high-low)))
	for _, k := range []float64{0.1, 0.2, 0.5, 1, 2} {
		if (high-low)/(step*k) <= 7 {
			step *= k
			break
		}
	}
	for i := math.Ceil(low/step - 1e-9); i*step <= high*(1+1e-12); i++ {
		v := i*step + 0 // no -0
		ticks = append(ticks, plot.Tick{Value: v, Label: short(v)})
		if len(ticks) > 20 {
			break
		}
	}
	return ticks
}

// logTicks puts ticks at the multiples of powers of ten. The more ticks there are, the
// fewer have labels.
type logTicks struct{}

// Ticks implements [plot.Ticker].
func (logTicks) Ticks(low, high float64) (ticks []plot.Tick) {
	first, last := math.Floor(math.Log10(low)), math.Ceil(math.Log10(high))
	for e := first; e <= last; e++ {
		for k := 1.0; k < 10; k++ {
			v := k * math.Pow(10, e)
			if v < low*(1-1e-9) || v > high*(1+1e-9) {
				continue
			}
			label := ""
			if k == 1 || (k == 2 || k == 5) && last-first <= 3 || (k == 3 || k == 7) && high/low < 10 {
				label = short(v)
			}
			ticks = append(ticks, plot.Tick{Value: v, Label: label})
		}
	}
	return ticks
}

// short writes a tick's value without the noise of floating point.
func short(v float64) string { return strconv.FormatFloat(v, 'g', 6, 64) }

// barAxis labels groups or, if there is one without a name, the bars. It returns the
// height that the chart needs in addition.
func (c *Chart) barAxis(p *plot.Plot, width vg.Length) (more vg.Length) {
	p.X.Width, p.X.Tick.LineStyle.Width = 0, 0
	p.X.Padding = vg.Points(4)
	p.X.Min, p.X.Max = -0.5, float64(len(c.Groups))-0.5 // whole bars
	p.X.Tick.Marker = c.barLabels()
	line := p.X.Tick.Label.Height("X")
	fitLabels(p, width)
	return max(labelsHeight(p)-line, 0)
}

func (c *Chart) barLabels() (labels plot.ConstantTicks) {
	if c.oneGroup() {
		for i, s := range c.Series {
			at, _ := c.offset(i)
			labels = append(labels, plot.Tick{Value: at, Label: s.Label})
		}
		return labels
	}
	for i, name := range c.Groups {
		labels = append(labels, plot.Tick{Value: float64(i), Label: name})
	}
	return labels
}

// fitLabels turns the labels of the x axis so that they neither touch each other nor
// leave the chart. If they touch even upright, some are left out.
func fitLabels(p *plot.Plot, width vg.Length) {
	style := &p.X.Tick.Label
	for _, way := range []struct {
		turn float64
		x    draw.XAlignment
		y    draw.YAlignment
	}{{0, draw.XCenter, draw.YTop}, {math.Pi / 5, draw.XRight, draw.YTop}, {math.Pi / 2, draw.XRight, draw.YCenter}} {
		style.Rotation, style.XAlign, style.YAlign = way.turn, way.x, way.y
		if labelsFit(p, width) {
			return
		}
	}
	for labels := p.X.Tick.Marker.(plot.ConstantTicks); len(labels) > 1 && !labelsFit(p, width); {
		for i := range (len(labels) + 1) / 2 {
			labels[i] = labels[2*i]
		}
		labels = labels[:(len(labels)+1)/2]
		p.X.Tick.Marker = labels
	}
}

// labelsFit reports whether the labels are clear of each other and inside the chart.
func labelsFit(p *plot.Plot, width vg.Length) bool {
	const gap, lead = 4, 1.1 // points between labels side by side; distance of turned ones, in heights
	data := p.DataCanvas(area(p, draw.Canvas{Rectangle: vg.Rectangle{Max: vg.Point{X: width, Y: 10 * height}}}))
	style := &p.X.Tick.Label
	var lastAt, lastEnd vg.Length
	for i, l := range p.X.Tick.Marker.Ticks(p.X.Min, p.X.Max) {
		at, box := data.X(p.X.Norm(l.Value)), style.Rectangle(l.Label)
		clear := (at-lastAt)*vg.Length(math.Sin(style.Rotation)) >= style.Height("X")*lead
		if style.Rotation == 0 {
			clear = at+box.Min.X >= lastEnd+gap
		}
		if at+box.Min.X < 0 || at+box.Max.X > width || i > 0 && !clear {
			return false
		}
		lastAt, lastEnd = at, at+box.Max.X
	}
	return true
}

// labelsHeight returns the height of the highest label.
func labelsHeight(p *plot.Plot) (most vg.Length) {
	for _, l := range p.X.Tick.Marker.Ticks(p.X.Min, p.X.Max) {
		most = max(most, p.X.Tick.Label.Rectangle(l.Label).Size().Y)
	}
	return most
}
