// Package chart draws what the project measures: lines with error bars, curves and
// grouped bars, as SVG or PNG.
package chart

import (
	"errors"
	"image/color"
	"io"
	"math"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Chart is one figure.
type Chart struct {
	Title          string
	XLabel, YLabel string
	LogX, LogY     bool
	// Groups makes it a bar chart with a group for each name. In group i each series
	// has a bar for its point i.
	Groups []string
	// ZeroY makes the y axis begin at zero. It has no effect on logarithmic axes and
	// bars.
	ZeroY bool
	// TopY is the end of the y axis; 0 takes it from the points.
	TopY   float64
	Series []Series
	// Marks are vertical lines across the plot, each with a text at its top.
	Marks []Mark
	// Flat makes the chart half as high and half as wide again, for courses of time.
	Flat bool
}

// Mark is an instant, or another value of the x axis, that stands out.
type Mark struct {
	X    float64
	Text string
}

// Series is a line, or a bar of each group.
type Series struct {
	Label string
	// Style chooses colour, mark and dashes: series of one style look alike in all
	// charts.
	Style  int
	Points []Point
	// Curve draws the series without marks, as for distributions.
	Curve bool
}

// Point is a value with its spread. Bars ignore X. A point with a Y of NaN is left
// out.
type Point struct {
	X, Y      float64
	Low, High float64 // both Y: no spread
}

// Size of charts; those with many groups are wider.
const (
	width    = 15 * vg.Centimeter
	height   = 9 * vg.Centimeter
	maxWidth = 40 * vg.Centimeter
	dpi      = 144
)

// groupWidth is the part of a group's room that its bars take.
const groupWidth = 0.8

// palette is grey and the colours of Okabe and Ito, which colour-blind people can
// tell apart. Yellow is left out, since it is invisible on white.
var palette = []color.RGBA{
	{0x77, 0x77, 0x77, 0xff}, // grey
	{0x00, 0x72, 0xb2, 0xff}, // blue
	{0xe6, 0x9f, 0x00, 0xff}, // orange
	{0x00, 0x9e, 0x73, 0xff}, // green
	{0xd5, 0x5e, 0x00, 0xff}, // vermillion
	{0x56, 0xb4, 0xe9, 0xff}, // sky
	{0xcc, 0x79, 0xa7, 0xff}, // purple
	{0x8c, 0x51, 0x0a, 0xff}, // brown
}

var gridColor = color.RGBA{0xdd, 0xdd, 0xdd, 0xff}

// glyphs go with the colours, so that a series shows by either.
var glyphs = []draw.GlyphDrawer{
	draw.CircleGlyph{}, draw.SquareGlyph{}, draw.PyramidGlyph{}, draw.RingGlyph{}, draw.BoxGlyph{}, draw.CrossGlyph{}, draw.TriangleGlyph{}, draw.PlusGlyph{},
}

var dashes = [][]vg.Length{nil, {6, 2}, {2, 2}, {8, 2, 2, 2}, {4, 4}, {1, 2}, {10, 3}, {3, 1}}

// SVG writes the chart as SVG.
func (c *Chart) SVG(out io.Writer) error {
	return c.write(out, func(w, h vg.Length) vg.CanvasWriterTo { return vgsvg.New(w, h) })
}

// PNG writes the chart as PNG, 144 dots an inch.
func (c *Chart) PNG(out io.Writer) error {
	return c.write(out, func(w, h vg.Length) vg.CanvasWriterTo {
		return vgimg.PngCanvas{Canvas: vgimg.NewWith(vgimg.UseWH(w, h), vgimg.UseDPI(dpi))}
	})
}

func (c *Chart) write(out io.Writer, canvas func(w, h vg.Length) vg.CanvasWriterTo) error {
	p, w, h, err := c.layout()
	if err != nil {
		return err
	}
	to := canvas(w, h)
	p.Draw(area(p, draw.New(to)))
	_, err = to.WriteTo(out)
	return err
}

// area returns the canvas without its margin and without the legend, which is drawn
// to the right of the plot, where it hides nothing.
func area(p *plot.Plot, canvas draw.Canvas) draw.Canvas {
	return draw.Crop(canvas, 4, -8-p.Legend.XOffs, 4, -4)
}

// width returns the canvas' width: bars need room, and so do their names.
func (c *Chart) width() vg.Length {
	if c.Flat {
		return width * 1.5
	}
	bar := 0.32 * vg.Centimeter
	if c.oneGroup() {
		bar = 0.5 * vg.Centimeter
	}
	return min(max(width, vg.Length(len(c.Groups)*len(c.Series))*bar+2*vg.Centimeter), maxWidth)
}

// Wide reports whether the chart needs more than the usual width.
func (c *Chart) Wide() bool { return c.width() > width*1.3 }

// oneGroup reports whether each series has one bar. Their names then stand below
// the bars, instead of a legend.
func (c *Chart) oneGroup() bool { return len(c.Groups) == 1 && c.Groups[0] == "" }

// offset returns where series i has its bars in a group, and their width.
func (c *Chart) offset(i int) (at, width float64) {
	width = groupWidth / float64(len(c.Series))
	return (float64(i) - float64(len(c.Series)-1)/2) * width, width * 0.92
}

func sans(size vg.Length) font.Font {
	f := plot.DefaultFont
	f.Variant, f.Size = "Sans", size
	return f
}

// layout makes the plot, and returns the size of its canvas.
func (c *Chart) layout() (p *plot.Plot, w, h vg.Length, err error) {
	p = plot.New()
	p.BackgroundColor = nil // the page's
	p.Title.Text, p.Title.TextStyle.Font, p.Title.Padding = c.Title, sans(12), 6
	p.Legend.TextStyle.Font, p.Legend.Padding, p.Legend.Top = sans(9.5), 3, true
	for _, a := range []*plot.Axis{&p.X, &p.Y} {
		a.Label.TextStyle.Font = sans(10)
		a.Tick.Label.Font = sans(9)
		a.LineStyle.Width, a.Tick.LineStyle.Width = vg.Points(0.7), vg.Points(0.7)
		a.Label.Padding = vg.Points(3)
	}
	p.X.Label.Text, p.Y.Label.Text = c.XLabel, c.YLabel
	grid := plotter.NewGrid()
	grid.Vertical.Color, grid.Horizontal.Color = gridColor, gridColor
	p.Add(grid)
	if err := c.add(p); err != nil {
		return nil, 0, 0, err
	}
	if c.oneGroup() || len(c.Series) == 1 && c.Series[0].Label == "" {
		p.Legend = plot.NewLegend()
	} else {
		p.Legend.XOffs = p.Legend.Rectangle(draw.Canvas{}).Size().X + 8
	}
	if len(c.Marks) > 0 {
		p.Add(marks(c.Marks))
	}
	c.yAxis(p)
	w, h = c.width(), height
	if c.Flat {
		h *= 0.6
	}
	if len(c.Groups) > 0 {
		grid.Vertical.Width = 0
		h += c.barAxis(p, w)
	} else {
		c.xAxis(p)
	}
	return p, w, h, nil
}

// errEmpty is the error for a chart without points.
var errEmpty = errors.New("there is nothing to draw: no run has a value")

// points returns the points of series i that the axes can show. Those of bars are
// at their bars.
func (c *Chart) points(i int) (out spread) {
	bad := func(v float64, log bool) bool { return math.IsNaN(v) || math.IsInf(v, 0) || log && v <= 0 }
	for group, p := range c.Series[i].Points {
		if len(c.Groups) > 0 {
			at, _ := c.offset(i)
			p.X = float64(group) + at
		}
		if bad(p.Y, c.LogY) || bad(p.X, c.LogX) {
			continue
		}
		if bad(p.Low, c.LogY) {
			p.Low = p.Y
		}
		if bad(p.High, false) {
			p.High = p.Y
		}
		out = append(out, p)
	}
	return out
}

// add puts the series into the plot and its legend.
func (c *Chart) add(p *plot.Plot) error {
	least := math.Inf(1)
	for i := range c.Series {
		for _, pt := range c.points(i) {
			least = min(least, pt.Low)
		}
	}
	if math.IsInf(least, 1) {
		return errEmpty
	}
	base := 0.0 // of bars
	if c.LogY {
		base = least / 1.2
	}
	for i, s := range c.Series {
		points := c.points(i)
		if len(points) == 0 {
			p.Legend.Add(s.Label)
			continue
		}
		thumbs, err := c.shape(p, i, points, base)
		if err != nil {
			return err
		}
		p.Legend.Add(s.Label, thumbs...)
		if !points.any() {
			continue
		}
		e, err := plotter.NewYErrorBars(points)
		if err != nil {
			return err
		}
		if len(c.Groups) == 0 {
			e.Color = palette[s.Style%len(palette)]
		}
		p.Add(e)
	}
	return nil
}

// shape adds the bars, the curve, or the line and marks of series i.
func (c *Chart) shape(p *plot.Plot, i int, points spread, base float64) ([]plot.Thumbnailer, error) {
	s := &c.Series[i]
	style := s.Style % len(palette)
	if len(c.Groups) > 0 {
		var rings []plotter.XYer
		_, w := c.offset(i)
		for _, pt := range points {
			l, r := pt.X-w/2, pt.X+w/2
			rings = append(rings, plotter.XYs{{X: l, Y: base}, {X: l, Y: pt.Y}, {X: r, Y: pt.Y}, {X: r, Y: base}})
		}
		bars, err := plotter.NewPolygon(rings...)
		if err != nil {
			return nil, err
		}
		bars.Color, bars.LineStyle.Width = palette[style], 0
		p.Add(bars)
		return []plot.Thumbnailer{bars}, nil
	}
	line, marks, err := plotter.NewLinePoints(points)
	if err != nil {
		return nil, err
	}
	line.Color, line.Width = palette[style], vg.Points(1.4)
	if s.Curve {
		line.Dashes, line.Width = dashes[style], vg.Points(1.7)
		if c.Flat { // courses of time go up and down too often for dashes
			line.Dashes, line.Width = nil, vg.Points(1.2)
		}
		p.Add(line)
		return []plot.Thumbnailer{line}, nil
	}
	marks.Color, marks.Shape, marks.Radius = palette[style], glyphs[style], vg.Points(3)
	p.Add(line, marks)
	return []plot.Thumbnailer{line, marks}, nil
}

// spread adapts points to gonum's plotters.
type spread []Point

func (s spread) Len() int                    { return len(s) }
func (s spread) XY(i int) (x, y float64)     { return s[i].X, s[i].Y }
func (s spread) YError(i int) (l, h float64) { return s[i].Y - s[i].Low, s[i].High - s[i].Y }
func (s spread) any() bool {
	return slices.ContainsFunc(s, func(p Point) bool { return p.Low != p.High })
}
