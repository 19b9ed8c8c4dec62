package chart

import (
	"cmp"
	"math"
	"slices"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// head draws title and legend, and returns the canvas that is left. The legend
// stands above the plot, where it hides nothing.
func (c *Chart) head(canvas draw.Canvas) draw.Canvas {
	if c.Title != "" {
		style := sans(12)
		style.XAlign, style.YAlign = draw.XCenter, draw.YTop
		canvas.FillText(style, vg.Point{X: canvas.Center().X, Y: canvas.Max.Y}, c.Title)
		canvas = draw.Crop(canvas, 0, 0, 0, -style.Height(c.Title)-6)
	}
	if c.oneGroup() || len(c.Series) == 1 && c.Series[0].Label == "" {
		return canvas
	}
	style := sans(9.5)
	style.YAlign = draw.YCenter
	const mark, gap, between, row = 20, 4, 14, 14
	styles := c.styles()
	var rows [][]int
	var widths []vg.Length
	for i, s := range c.Series {
		w := mark + gap + style.Width(s.Label) + between
		if last := len(rows) - 1; last >= 0 && widths[last]+w <= canvas.Size().X {
			rows[last], widths[last] = append(rows[last], i), widths[last]+w
		} else {
			rows, widths = append(rows, []int{i}), append(widths, w)
		}
	}
	y := canvas.Max.Y - row/2
	for k, members := range rows {
		x := canvas.Center().X - (widths[k]-between)/2
		for _, i := range members {
			c.mark(canvas, vg.Point{X: x, Y: y}, mark, &c.Series[i], styles[i])
			canvas.FillText(style, vg.Point{X: x + mark + gap, Y: y}, c.Series[i].Label)
			x += mark + gap + style.Width(c.Series[i].Label) + between
		}
		y -= row
	}
	return draw.Crop(canvas, 0, 0, 0, -vg.Length(len(rows))*row-5)
}

// mark draws a series' entry in the legend, from at to the right.
func (c *Chart) mark(canvas draw.Canvas, at vg.Point, length vg.Length, s *Series, style int) {
	if len(c.Groups) > 0 {
		l, r, b, t := at.X+length-11, at.X+length, at.Y-5, at.Y+5
		canvas.FillPolygon(palette[style], []vg.Point{{X: l, Y: b}, {X: l, Y: t}, {X: r, Y: t}, {X: r, Y: b}})
		return
	}
	line := draw.LineStyle{Color: palette[style], Width: vg.Points(1.6)}
	if s.Curve {
		line.Dashes = dashes[style]
	}
	canvas.StrokeLine2(line, at.X, at.Y, at.X+length, at.Y)
	if !s.Curve {
		canvas.DrawGlyph(draw.GlyphStyle{Color: palette[style], Radius: vg.Points(3), Shape: glyphs[style]}, vg.Point{X: at.X + length/2, Y: at.Y})
	}
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

// xTicks returns ticks at the points if these are few, since there are no runs
// between them. Labels that would touch are left out.
func (c *Chart) xTicks(low, high float64) plot.Ticker {
	seen := map[float64]bool{}
	var ticks plot.ConstantTicks
	for _, s := range c.Series {
		if s.Curve {
			ticks = nil
			seen[math.Inf(1)] = true
			break
		}
		for _, p := range c.usable(s.Points) {
			if !seen[p.X] {
				seen[p.X] = true
				ticks = append(ticks, plot.Tick{Value: p.X, Label: short(p.X)})
			}
		}
	}
	if len(ticks) == 0 || len(ticks) > 16 {
		if c.LogX {
			return logTicks{}
		}
		return linearTicks{}
	}
	position := func(v float64) float64 {
		if c.LogX {
			return math.Log(v/low) / math.Log(high/low)
		}
		return (v - low) / (high - low)
	}
	slices.SortFunc(ticks, func(a, b plot.Tick) int { return cmp.Compare(a.Value, b.Value) })
	last := math.Inf(-1)
	for i := range ticks {
		if at := position(ticks[i].Value); at-last >= 0.05 {
			last = at
		} else {
			ticks[i].Label = ""
		}
	}
	return ticks
}

// short writes a tick's value without the noise of floating point.
func short(v float64) string { return strconv.FormatFloat(v, 'g', 6, 64) }
