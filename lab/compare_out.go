package lab

import (
	"encoding/csv"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/loomfabric/loom/internal/chart"
	"github.com/loomfabric/loom/internal/stats"
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

// SVG plots one number: over load, or a bar a scheme if there is one load only,
// with the mean and the spread from least to greatest. Of "L0 imbalance" (any
// leaf) it plots the distribution over all intervals of all seeds, as CONGA's
// figure 12 does.
func (c *Comparison) SVG(out io.Writer, name string) error {
	p := &chart.Chart{YLabel: name, ZeroY: true}
	leaf, isCDF := strings.CutSuffix(name, " imbalance")
	switch {
	case isCDF:
		if err := c.plotCDF(p, leaf); err != nil {
			return fmt.Errorf("plot %s: %w", name, err)
		}
	case !slices.Contains(c.Names(), name):
		return fmt.Errorf("no run has a number %q: there are %s", name, strings.Join(c.Names(), ", "))
	default:
		c.plotLoads(p, name)
	}
	if err := p.SVG(out); err != nil {
		return fmt.Errorf("plot %s: %w", name, err)
	}
	return nil
}

// plotLoads adds a line a scheme, or bars if there is one load only.
func (c *Comparison) plotLoads(p *chart.Chart, name string) {
	p.XLabel = "load %"
	if len(c.loads()) == 1 {
		p.XLabel, p.Groups = "", []string{""}
	}
	for _, scheme := range c.Options.Schemes {
		s := chart.Series{Name: chart.Name{Label: scheme}}
		for _, load := range c.loads() {
			if v := c.Cell(name, scheme, load); v.N > 0 {
				s.Points = append(s.Points, chart.Point{X: load, Y: v.Mean, Low: v.Min, High: v.Max})
			}
		}
		p.Series = append(p.Series, s)
	}
}

func (c *Comparison) plotCDF(p *chart.Chart, leaf string) error {
	p.XLabel, p.YLabel, p.TopY = leaf+": (max−min)/mean of uplinks", "share of intervals", 1
	for _, scheme := range c.Options.Schemes {
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
		s := chart.Series{Name: chart.Name{Label: scheme}, Curve: true}
		for k := range 101 {
			y := float64(k) / 100
			s.Points = append(s.Points, chart.Point{X: stats.Quantile(values, y), Y: y, Low: y, High: y})
		}
		p.Series = append(p.Series, s)
	}
	return nil
}
