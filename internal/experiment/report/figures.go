package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/loomfabric/loom/internal/chart"
	"github.com/loomfabric/loom/internal/experiment"
)

// Figure is a plot of an experiment, or one of its panels.
type Figure struct {
	*chart.Chart
	Name string // fit for a file
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
			f := Figure{Name: p.Name, Chart: draw(r, p, at)}
			if len(panels) > 1 {
				f.Name += "-" + experiment.Slug(at.Place())
				f.Title = strings.TrimPrefix(f.Title+": "+at.Place(), ": ")
			}
			known := func(p chart.Point) bool { return !math.IsNaN(p.Y) }
			if slices.ContainsFunc(f.Series, func(s chart.Series) bool { return slices.ContainsFunc(s.Points, known) }) {
				out = append(out, f)
			}
		}
	}
	return out
}

// panelsOf are the points at which a plot is drawn. What is on its x axis is zero.
func panelsOf(s *experiment.Size, p *experiment.Plot) (out []experiment.Cell) {
	for _, at := range s.Cells() {
		if !p.At.Matches(at) {
			continue
		}
		switch p.X {
		case experiment.XLoad:
			at.Load = 0
		case experiment.XAxis:
			at.Axis = ""
		}
		if !slices.Contains(out, at) {
			out = append(out, at)
		}
	}
	return out
}

// draw makes the chart of one panel.
func draw(r *experiment.Results, p *experiment.Plot, at experiment.Cell) *chart.Chart {
	d := &drawing{r: r, p: p, at: at, c: &chart.Chart{
		Title: p.Title, XLabel: p.XLabel, YLabel: p.YLabel, LogX: p.LogX, LogY: p.LogY, ZeroY: true,
	}}
	schemes := p.Schemes
	if len(schemes) == 0 {
		schemes = r.Size.Schemes
	}
	for _, name := range schemes {
		d.c.Series = append(d.c.Series, chart.Series{Label: name, Style: max(slices.Index(r.Size.Schemes, name), 0)})
	}
	if p.X == experiment.XCDF {
		d.cdf()
	} else {
		d.points()
		d.scale()
	}
	return d.c
}

type drawing struct {
	r  *experiment.Results
	p  *experiment.Plot
	at experiment.Cell
	c  *chart.Chart
}

// place is one position on the x axis.
type place struct {
	x      float64
	name   string
	metric string
	cell   experiment.Cell
}

// places are the positions on the x axis. named tells whether it has their names.
func (d *drawing) places() (places []place, label string, named bool) {
	size := d.r.Size
	switch d.p.X {
	case experiment.XLoad:
		for _, l := range size.Loads {
			places = append(places, place{l, fmt.Sprintf("%g", l), d.p.Y, experiment.Cell{Load: l, Axis: d.at.Axis}})
		}
		return places, "load (%)", d.p.Bars
	case experiment.XAxis:
		for i, name := range size.Points() {
			x := 0.0
			if size.Axis.Values != nil {
				x = size.Axis.Values[i]
			}
			places = append(places, place{x, name, d.p.Y, experiment.Cell{Load: d.at.Load, Axis: name}})
		}
		if size.Axis == nil {
			return nil, "", true
		}
		return places, size.Axis.Label, d.p.Bars || size.Axis.Values == nil
	case experiment.XItems:
		items, metrics := d.r.Items(d.p.Y, d.at)
		for i := range items {
			places = append(places, place{0, items[i], metrics[i], d.at})
		}
		return places, "", true
	}
	return []place{{0, "", d.p.Y, d.at}}, "", true
}

// points fills in the series of lines and bars.
func (d *drawing) points() {
	places, label, named := d.places()
	d.c.XLabel = cmp.Or(d.c.XLabel, label)
	if len(places) == 1 && !named { // bars tell schemes apart better than marks above each other
		d.c.XLabel = fmt.Sprintf("%s: %g", d.c.XLabel, places[0].x)
		places[0].name, named = "", true
	}
	for _, at := range places {
		if named {
			d.c.Groups = append(d.c.Groups, at.name)
		}
		for i := range d.c.Series {
			s := &d.c.Series[i]
			at.cell.Scheme = s.Label
			v := d.r.Spread(at.metric, at.cell)
			if d.p.Relative != "" {
				v = d.r.Relative(at.metric, at.cell, d.p.Relative)
			}
			pt := chart.Point{X: at.x, Y: v.Mean, Low: v.Min, High: v.Max}
			if v.N == 0 {
				pt.Y = math.NaN()
			}
			s.Points = append(s.Points, pt)
		}
	}
}

// scale brings the y axis into a unit that reads well, and names it.
func (d *drawing) scale() {
	if d.c.YLabel == "" {
		d.c.YLabel = experiment.Label(d.p.Y)
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
			if p.Y > greatest { // NaN is not
				greatest = p.Y
			}
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

// cdf draws distributions.
func (d *drawing) cdf() {
	greatest := 0.0
	for i := range d.c.Series {
		s := &d.c.Series[i]
		s.Curve = true
		d.at.Scheme = s.Label
		for _, p := range d.r.CDF(d.p.Y, d.at) {
			greatest = max(greatest, p.X)
			s.Points = append(s.Points, chart.Point{X: p.X, Y: p.Y, Low: p.Y, High: p.Y})
		}
	}
	sc := scaleFor(d.p.Y, greatest)
	for _, s := range d.c.Series {
		for i := range s.Points {
			s.Points[i].X *= sc.factor
		}
	}
	d.c.XLabel = withUnit(cmp.Or(d.c.XLabel, experiment.Label(d.p.Y)), sc.unit)
	d.c.YLabel, d.c.TopY = cmp.Or(d.c.YLabel, "CDF"), 1
}
