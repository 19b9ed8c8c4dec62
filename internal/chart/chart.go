// Package chart draws what the project measures: lines with error bars, curves and
// grouped bars, as SVG or PNG. A scheme has the same colour in all of them.
package chart

import (
	"errors"
	"image/color"
	"io"
	"math"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
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
	// Family names the series of all charts on a page, so that a series has one
	// colour in all of them. It is empty for a chart that stands alone.
	Family []Name
}

// Name decides a series' colour. A label or else a scheme with a colour of its own
// gives it; other series get free colours.
type Name struct{ Label, Scheme string }

// Series is a line, or a bar of each group.
type Series struct {
	Name
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

// The colours of Okabe and Ito, which colour-blind people can tell apart. Yellow is
// left out, since it is invisible on white.
var (
	grey       = color.RGBA{0x77, 0x77, 0x77, 0xff}
	blue       = color.RGBA{0x00, 0x72, 0xb2, 0xff}
	orange     = color.RGBA{0xe6, 0x9f, 0x00, 0xff}
	vermillion = color.RGBA{0xd5, 0x5e, 0x00, 0xff}
	green      = color.RGBA{0x00, 0x9e, 0x73, 0xff}
	sky        = color.RGBA{0x56, 0xb4, 0xe9, 0xff}
	purple     = color.RGBA{0xcc, 0x79, 0xa7, 0xff}
	brown      = color.RGBA{0x8c, 0x51, 0x0a, 0xff}
	gridColor  = color.RGBA{0xdd, 0xdd, 0xdd, 0xff}
)

var palette = []color.RGBA{grey, blue, orange, green, vermillion, sky, purple, brown}

// known holds the colours of schemes. Schemes that hardly ever meet in a chart may
// share one.
var known = map[string]color.RGBA{
	"ecmp": grey, "conga": blue, "conga-flow": sky, "letflow": orange, "drill": purple, "conweave": vermillion,
	"local": green, "spray": brown, "static": brown, "presto": brown, "hula": green, "caar": green,
}

// glyphs go with the colours, so that a series shows by either.
var glyphs = []draw.GlyphDrawer{
	draw.CircleGlyph{}, draw.SquareGlyph{}, draw.PyramidGlyph{}, draw.RingGlyph{}, draw.BoxGlyph{}, draw.CrossGlyph{}, draw.TriangleGlyph{}, draw.PlusGlyph{},
}

var dashes = [][]vg.Length{nil, {6, 2}, {2, 2}, {8, 2, 2, 2}, {4, 4}, {1, 2}, {10, 3}, {3, 1}}

// styles gives each series a position in the palettes.
func (c *Chart) styles() []int {
	names := slices.Clone(c.Family)
	for _, s := range c.Series {
		if !slices.Contains(names, s.Name) {
			names = append(names, s.Name)
		}
	}
	all := make([]int, len(names))
	used := map[int]bool{}
	take := func(key func(Name) string) {
		for i, n := range names {
			if col, ok := known[key(n)]; ok && all[i] == 0 {
				if at := slices.Index(palette, col); !used[at] {
					all[i], used[at] = at+1, true
				}
			}
		}
	}
	take(func(n Name) string { return n.Label })
	take(func(n Name) string { return n.Scheme })
	next := 0
	for i := range all {
		if all[i] > 0 {
			continue
		}
		for used[next%len(palette)] && len(used) < len(palette) {
			next++
		}
		all[i] = next%len(palette) + 1
		used[next%len(palette)] = true
		next++
	}
	out := make([]int, len(c.Series))
	for i, s := range c.Series {
		out[i] = all[slices.Index(names, s.Name)] - 1
	}
	return out
}

// SVG writes the chart as SVG.
func (c *Chart) SVG(out io.Writer) error {
	p, w, h, err := c.layout()
	if err != nil {
		return err
	}
	canvas := vgsvg.New(w, h)
	c.draw(p, draw.New(canvas))
	_, err = canvas.WriteTo(out)
	return err
}

// PNG writes the chart as PNG, 144 dots an inch.
func (c *Chart) PNG(out io.Writer) error {
	p, w, h, err := c.layout()
	if err != nil {
		return err
	}
	canvas := vgimg.PngCanvas{Canvas: vgimg.NewWith(vgimg.UseWH(w, h), vgimg.UseDPI(dpi))}
	c.draw(p, draw.New(canvas))
	_, err = canvas.WriteTo(out)
	return err
}

// width returns the canvas' width: bars need room, and so do their names.
func (c *Chart) width() vg.Length {
	bar := 0.32 * vg.Centimeter
	if c.oneGroup() {
		bar = 0.5 * vg.Centimeter
	}
	return min(max(width, vg.Length(len(c.Groups)*len(c.Series))*bar+2*vg.Centimeter), maxWidth)
}

// Wide reports whether the chart needs more than the usual width.
func (c *Chart) Wide() bool { return c.width() > width*1.3 }

func sans(size vg.Length) text.Style {
	f := plot.DefaultFont
	f.Variant, f.Size = "Sans", size
	return text.Style{Color: color.Black, Font: f, Handler: plot.DefaultTextHandler}
}

// layout makes the plot, and returns the size of its canvas.
func (c *Chart) layout() (p *plot.Plot, w, h vg.Length, err error) {
	if p, err = c.plot(); err != nil {
		return nil, 0, 0, err
	}
	w, h = c.width(), height
	if len(c.Groups) > 0 {
		h += fitLabels(p, c.barLabels(), w)
	}
	return p, w, h, nil
}

// frame returns the canvas without its margin.
func frame(canvas draw.Canvas) draw.Canvas { return draw.Crop(canvas, 4, -8, 4, -4) }

// draw lays title, legend and plot out from the top.
func (c *Chart) draw(p *plot.Plot, canvas draw.Canvas) { p.Draw(c.head(frame(canvas))) }

// plot makes the part below title and legend.
func (c *Chart) plot() (*plot.Plot, error) {
	p := plot.New()
	p.BackgroundColor = nil // the page's
	for _, a := range []*plot.Axis{&p.X, &p.Y} {
		a.Label.TextStyle.Font = sans(10).Font
		a.Tick.Label.Font = sans(9).Font
		a.LineStyle.Width, a.Tick.LineStyle.Width = vg.Points(0.7), vg.Points(0.7)
		a.Label.Padding = vg.Points(3)
	}
	p.X.Label.Text, p.Y.Label.Text = c.XLabel, c.YLabel
	grid := plotter.NewGrid()
	grid.Vertical.Color, grid.Horizontal.Color = gridColor, gridColor
	if len(c.Groups) > 0 {
		grid.Vertical.Width = 0
	}
	p.Add(grid)
	var err error
	if styles := c.styles(); len(c.Groups) > 0 {
		err = c.bars(p, styles)
	} else {
		err = c.lines(p, styles)
	}
	if err != nil {
		return nil, err
	}
	c.axes(p)
	return p, nil
}

// errEmpty is the error for a chart without points.
var errEmpty = errors.New("there is nothing to draw: no run has a value")

// usable returns the points that the axes can show.
func (c *Chart) usable(points []Point) (out []Point) {
	bad := func(v float64, log bool) bool { return math.IsNaN(v) || math.IsInf(v, 0) || log && v <= 0 }
	for _, p := range points {
		if bad(p.Y, c.LogY) || bad(p.X, c.LogX) && len(c.Groups) == 0 {
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

// axes sets ranges and ticks from the points.
func (c *Chart) axes(p *plot.Plot) {
	span := func(low, high *float64) {
		if *low == *high { // a single point
			*low, *high = *low-math.Abs(*low)/2-0.5, *high+math.Abs(*high)/2+0.5
		}
	}
	if c.LogY {
		p.Y.Min, p.Y.Max = p.Y.Min/1.2, p.Y.Max*1.2
		p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, logTicks{}
	} else {
		if c.ZeroY || len(c.Groups) > 0 {
			p.Y.Min = min(p.Y.Min, 0)
		}
		span(&p.Y.Min, &p.Y.Max)
		p.Y.Max += (p.Y.Max - p.Y.Min) / 20
		if c.TopY != 0 {
			p.Y.Max = c.TopY
		}
		p.Y.Tick.Marker = linearTicks{}
	}
	if len(c.Groups) > 0 {
		return
	}
	if c.LogX {
		p.X.Min, p.X.Max = p.X.Min/1.1, p.X.Max*1.1
		p.X.Scale = plot.LogScale{}
	} else {
		span(&p.X.Min, &p.X.Max)
	}
	p.X.Tick.Marker = c.xTicks(p.X.Min, p.X.Max)
}

// lines adds a line with marks and error bars, or a curve, for each series.
func (c *Chart) lines(p *plot.Plot, styles []int) error {
	drawn := false
	for i := range c.Series {
		s := spread(c.usable(c.Series[i].Points))
		if len(s) == 0 {
			continue
		}
		drawn = true
		line, points, err := plotter.NewLinePoints(s)
		if err != nil {
			return err
		}
		st := styles[i]
		line.Color, line.Width = palette[st], vg.Points(1.4)
		if c.Series[i].Curve {
			line.Dashes = dashes[st]
			line.Width = vg.Points(1.7)
			p.Add(line)
			continue
		}
		points.Color, points.Shape, points.Radius = palette[st], glyphs[st], vg.Points(3)
		p.Add(line, points)
		if s.any() {
			bars, err := plotter.NewYErrorBars(s)
			if err != nil {
				return err
			}
			bars.Color = palette[st]
			p.Add(bars)
		}
	}
	if !drawn {
		return errEmpty
	}
	return nil
}

// spread adapts points to gonum's plotters.
type spread []Point

func (s spread) Len() int                    { return len(s) }
func (s spread) XY(i int) (x, y float64)     { return s[i].X, s[i].Y }
func (s spread) YError(i int) (l, h float64) { return s[i].Y - s[i].Low, s[i].High - s[i].Y }
func (s spread) any() bool {
	return slices.ContainsFunc(s, func(p Point) bool { return p.Low != p.High })
}
