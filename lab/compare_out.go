package lab

import (
	"encoding/csv"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// CSV writes every run, failed ones too, one line each.
func (c *Comparison) CSV(out io.Writer) error {
	w := csv.NewWriter(out)
	names := c.Names()
	if err := w.Write(append([]string{"scheme", "load", "seed", "error"}, names...)); err != nil {
		return err
	}
	for i := range c.Runs {
		r := &c.Runs[i]
		line := []string{r.Scheme, strconv.FormatFloat(r.Load, 'g', -1, 64), strconv.FormatUint(r.Seed, 10), ""}
		if r.Err != nil {
			line[3] = r.Err.Error()
		}
		for _, name := range names {
			text := ""
			if v := r.value(name); !math.IsNaN(v) {
				text = strconv.FormatFloat(v, 'g', 6, 64)
			}
			line = append(line, text)
		}
		if err := w.Write(line); err != nil {
			return err
		}
	}
	w.Flush()
	return w.Error()
}

// Size of plots.
const (
	plotWidth  = 15 * vg.Centimeter
	plotHeight = 9 * vg.Centimeter
)

// SVG plots one number: over load, or a bar a scheme if there is one load only,
// with the mean and the spread from least to greatest. Of "L0 imbalance" (any
// leaf) it plots the distribution over all intervals of all seeds, as CONGA's
// figure 12 does.
func (c *Comparison) SVG(out io.Writer, name string) error {
	p := plot.New()
	p.Y.Label.Text = name
	p.Add(plotter.NewGrid())
	p.Legend.Top = true
	var err error
	leaf, isCDF := strings.CutSuffix(name, " imbalance")
	switch {
	case isCDF:
		err = c.plotCDF(p, leaf)
	case !slices.Contains(c.Names(), name):
		return fmt.Errorf("no run has a number %q: there are %s", name, strings.Join(c.Names(), ", "))
	case len(c.loads()) > 1:
		err = c.plotLoads(p, name)
	default:
		err = c.plotBars(p, name)
	}
	if err != nil {
		return fmt.Errorf("plot %s: %w", name, err)
	}
	canvas := vgsvg.New(plotWidth, plotHeight)
	p.Draw(draw.New(canvas))
	_, err = canvas.WriteTo(out)
	return err
}

// spreads are points with error bars.
type spreads struct {
	plotter.XYs
	plotter.YErrors
}

func (s *spreads) add(x float64, v Spread) {
	s.XYs = append(s.XYs, plotter.XY{X: x, Y: v.Mean})
	s.YErrors = append(s.YErrors, struct{ Low, High float64 }{v.Mean - v.Min, v.Max - v.Mean})
}

func (c *Comparison) plotLoads(p *plot.Plot, name string) error {
	p.X.Label.Text = "load %"
	p.Y.Min = 0
	for i, scheme := range c.Options.Schemes {
		var s spreads
		for _, load := range c.loads() {
			if v := c.Cell(name, scheme, load); v.N > 0 {
				s.add(load, v)
			}
		}
		if len(s.XYs) == 0 {
			continue
		}
		if err := addLine(p, scheme, i, &s); err != nil {
			return err
		}
	}
	p.Legend.Left = true
	return nil
}

func addLine(p *plot.Plot, label string, i int, s *spreads) error {
	line, points, err := plotter.NewLinePoints(s)
	if err != nil {
		return err
	}
	bars, err := plotter.NewYErrorBars(s)
	if err != nil {
		return err
	}
	line.Color, points.Color, bars.Color = plotutil.Color(i), plotutil.Color(i), plotutil.Color(i)
	points.Shape = plotutil.Shape(i)
	p.Add(line, points, bars)
	p.Legend.Add(label, line, points)
	return nil
}

func (c *Comparison) plotBars(p *plot.Plot, name string) error {
	p.Y.Min = 0
	var s spreads
	var labels []string
	for _, scheme := range c.Options.Schemes {
		v := c.Cell(name, scheme, c.loads()[0])
		if v.N == 0 {
			continue
		}
		x := len(labels)
		labels = append(labels, scheme)
		s.add(float64(x), v)
		bar, err := plotter.NewBarChart(plotter.Values{v.Mean}, vg.Points(35))
		if err != nil {
			return err
		}
		bar.Color, bar.XMin = plotutil.Color(x), float64(x)
		p.Add(bar)
	}
	bars, err := plotter.NewYErrorBars(&s)
	if err != nil {
		return err
	}
	bars.LineStyle.Width = vg.Points(1.5)
	p.Add(bars)
	p.NominalX(labels...)
	p.X.Min, p.X.Max = -0.5, float64(len(labels))-0.5 // whole bars
	p.Y.Max *= 1.05
	return nil
}

func (c *Comparison) plotCDF(p *plot.Plot, leaf string) error {
	p.X.Label.Text, p.Y.Label.Text = leaf+": (max−min)/mean of uplinks", "share of intervals"
	p.X.Min, p.Y.Min, p.Y.Max = 0, 0, 1
	for i, scheme := range c.Options.Schemes {
		var values []float64
		for _, r := range c.Runs {
			if r.Scheme != scheme || r.Err != nil {
				continue
			}
			for _, u := range r.Report.Uplinks {
				if u.Leaf == leaf {
					values = append(values, u.values...)
				}
			}
		}
		if len(values) == 0 {
			return fmt.Errorf("no samples of %s under %s: sample the uplinks (--sample)", leaf, scheme)
		}
		slices.Sort(values)
		xy := make(plotter.XYs, 101)
		for k := range xy {
			xy[k] = plotter.XY{X: percentile(values, float64(k)), Y: float64(k) / 100}
		}
		line, err := plotter.NewLine(xy)
		if err != nil {
			return err
		}
		line.Color, line.Width = plotutil.Color(i), vg.Points(1.5)
		p.Add(line)
		p.Legend.Add(scheme, line)
	}
	p.Legend.Top = false
	return nil
}
