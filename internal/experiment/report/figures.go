package report

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/loomfabric/loom/internal/chart"
	"github.com/loomfabric/loom/internal/experiment"
	"github.com/loomfabric/loom/internal/measure"
	"github.com/loomfabric/loom/internal/spread"
)

// Figure is a plot of an experiment, or one of its panels.
type Figure struct {
	Name  string // fit for a file
	chart *chart.Chart
}

// SVG writes the figure as SVG.
func (f *Figure) SVG(w io.Writer) error { return f.write(f.chart.SVG(w)) }

// PNG writes the figure as PNG, 144 dots an inch.
func (f *Figure) PNG(w io.Writer) error { return f.write(f.chart.PNG(w)) }

func (f *Figure) write(err error) error {
	if err != nil {
		return fmt.Errorf("figure %s: %w", f.Name, err)
	}
	return nil
}

// panel is what of the matrix a figure is fixed at; what is its x axis is left zero.
type panel struct {
	load float64
	axis string
}

// Figures draws the experiment's plots from what is stored. A plot that fixes
// neither load nor axis, and has not got it as x, is a figure for each of them. What no run has a
// value for is left out.
func Figures(r *experiment.Results) []Figure {
	var out []Figure
	for i := range r.Size.Experiment.Plots {
		p := &r.Size.Experiment.Plots[i]
		panels := panelsOf(r.Size, p)
		for _, at := range panels {
			f := Figure{Name: p.Name, chart: draw(r, p, at)}
			if len(panels) > 1 {
				f.Name += "-" + fileName(point(r.Size, at.load, at.axis))
				f.chart.Title = strings.TrimPrefix(f.chart.Title+": "+point(r.Size, at.load, at.axis), ": ")
			}
			if slices.ContainsFunc(f.chart.Series, func(s chart.Series) bool { return hasValue(s.Points) }) {
				out = append(out, f)
			}
		}
	}
	return out
}

func hasValue(points []chart.Point) bool {
	return slices.ContainsFunc(points, func(p chart.Point) bool { return !math.IsNaN(p.Y) })
}

// fileName makes a label fit for files.
func fileName(s string) string {
	fields := strings.FieldsFunc(strings.ToLower(s), func(c rune) bool { return (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '.' })
	return strings.Join(fields, "-")
}

// panelsOf are the points at which a plot is drawn.
func panelsOf(s *experiment.Size, p *experiment.Plot) (out []panel) {
	loads, points := s.LoadPoints(), s.Points()
	if p.At.Load != nil {
		loads = []float64{*p.At.Load}
	}
	if p.At.Axis != nil {
		points = []string{*p.At.Axis}
	}
	switch p.X {
	case experiment.XLoad:
		loads = []float64{0}
	case experiment.XAxis:
		points = []string{""}
	}
	for _, a := range points {
		for _, l := range loads {
			out = append(out, panel{l, a})
		}
	}
	return out
}

// draw makes the chart of one panel.
func draw(r *experiment.Results, p *experiment.Plot, at panel) *chart.Chart {
	d := &drawing{r: r, p: p, at: at, c: &chart.Chart{
		Title: p.Title, XLabel: p.XLabel, YLabel: p.YLabel, LogX: p.LogX, LogY: p.LogY, ZeroY: true,
	}}
	for _, name := range r.Size.Schemes {
		d.c.Family = append(d.c.Family, d.name(name))
	}
	if p.X == experiment.XCDF {
		d.cdf()
		return d.c
	}
	d.points()
	d.scale()
	return d.c
}

type drawing struct {
	r  *experiment.Results
	p  *experiment.Plot
	at panel
	c  *chart.Chart
}

// schemes are those that are drawn.
func (d *drawing) schemes() []string {
	if len(d.p.Schemes) > 0 {
		return d.p.Schemes
	}
	return d.r.Size.Schemes
}

func (d *drawing) name(scheme string) chart.Name {
	n := chart.Name{Label: scheme}
	for i := range d.r.Size.Runs {
		if run := &d.r.Size.Runs[i]; run.Scheme == scheme {
			n.Scheme = run.Spec.Scheme
			break
		}
	}
	return n
}

// place is one position on the x axis.
type place struct {
	x      float64
	metric string
	cell   experiment.Cell
}

// places are the positions on the x axis, and their names if it has names.
func (d *drawing) places() (places []place, names []string) {
	size, add := d.r.Size, func(x float64, metric string, load float64, axis, name string) {
		places = append(places, place{x, metric, experiment.Cell{Load: load, Axis: axis}})
		names = append(names, name)
	}
	label, named := "", true
	switch d.p.X {
	case experiment.XLoad:
		for _, l := range size.LoadPoints() {
			add(l, d.p.Y, l, d.at.axis, fmt.Sprintf("%g", l))
		}
		label, named = "load (%)", d.p.Bars
	case experiment.XAxis:
		for i, a := range size.Points() {
			x := 0.0
			if size.Axis != nil && size.Axis.Values != nil {
				x = size.Axis.Values[i]
			}
			add(x, d.p.Y, d.at.load, a, a)
		}
		if size.Axis != nil {
			label, named = size.Axis.Label, d.p.Bars || size.Axis.Values == nil
		}
	case experiment.XItems:
		items, metrics := d.r.Items(d.p.Y, d.at.load, d.at.axis)
		for i := range items {
			add(0, metrics[i], d.at.load, d.at.axis, items[i])
		}
	default:
		add(0, d.p.Y, d.at.load, d.at.axis, "")
	}
	if d.c.XLabel == "" {
		d.c.XLabel = label
	}
	if !named {
		names = nil
	}
	return places, names
}

// points fills in the series of lines and bars.
func (d *drawing) points() {
	places, names := d.places()
	if len(places) == 1 && names == nil { // bars tell schemes apart better than marks above each other
		names = []string{""}
		d.c.XLabel = fmt.Sprintf("%s: %g", d.c.XLabel, places[0].x)
	}
	d.c.Groups = names
	for _, scheme := range d.schemes() {
		s := chart.Series{Name: d.name(scheme)}
		for _, at := range places {
			at.cell.Scheme = scheme
			var v spread.Spread
			if d.p.Relative != "" {
				v = d.r.Relative(at.metric, at.cell, d.p.Relative)
			} else {
				v = d.r.Spread(at.metric, at.cell)
			}
			pt := chart.Point{X: at.x, Y: v.Mean, Low: v.Min, High: v.Max}
			if v.N == 0 {
				pt.Y, pt.Low, pt.High = math.NaN(), math.NaN(), math.NaN()
			}
			s.Points = append(s.Points, pt)
		}
		d.c.Series = append(d.c.Series, s)
	}
}

// scale brings the y axis into a unit that reads well, and names it.
func (d *drawing) scale() {
	if d.c.YLabel == "" {
		d.c.YLabel = label(d.p.Y)
		if d.p.Relative != "" {
			d.c.YLabel += " ÷ " + d.p.Relative + "'s"
		}
	}
	if d.p.Relative != "" {
		return
	}
	greatest := 0.0
	for _, s := range d.c.Series {
		for _, p := range s.Points {
			greatest = max(greatest, nonNaN(p.Y))
		}
	}
	sc := scaleFor(d.p.Y, greatest)
	d.c.YLabel = withUnit(d.c.YLabel, sc.unit)
	for _, s := range d.c.Series {
		for i := range s.Points {
			p := &s.Points[i]
			p.Y, p.Low, p.High = p.Y*sc.factor, p.Low*sc.factor, p.High*sc.factor
		}
	}
}

func nonNaN(v float64) float64 {
	if math.IsNaN(v) {
		return 0
	}
	return v
}

// cdf draws distributions.
func (d *drawing) cdf() {
	curves := map[string][]measure.Point{}
	greatest := 0.0
	for _, scheme := range d.schemes() {
		curve := d.r.CDF(d.p.Y, experiment.Cell{Scheme: scheme, Load: d.at.load, Axis: d.at.axis})
		for _, p := range curve {
			greatest = max(greatest, p.X)
		}
		curves[scheme] = curve
	}
	sc := scaleFor(d.p.Y+".max", greatest)
	for _, scheme := range d.schemes() {
		s := chart.Series{Name: d.name(scheme), Curve: true}
		for _, p := range curves[scheme] {
			s.Points = append(s.Points, chart.Point{X: p.X * sc.factor, Y: p.Y, Low: p.Y, High: p.Y})
		}
		d.c.Series = append(d.c.Series, s)
	}
	if d.c.XLabel == "" {
		d.c.XLabel = strings.TrimSuffix(label(d.p.Y+".x"), " x")
		d.c.XLabel = strings.Replace(d.c.XLabel, ", x", "", 1)
	}
	d.c.XLabel = withUnit(d.c.XLabel, sc.unit)
	if d.c.YLabel == "" {
		d.c.YLabel = "CDF"
	}
	d.c.TopY = 1
}
