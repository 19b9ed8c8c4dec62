package experiment

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/loomfabric/loom/internal/measure"
	"github.com/loomfabric/loom/internal/spread"
)

// Cell picks the runs of one scheme at one point.
type Cell struct {
	Scheme string
	Load   float64
	Axis   string
}

// Spread sums up a metric of a cell over the seeds that have it.
func (r *Results) Spread(metric string, c Cell) spread.Spread {
	var values []float64
	for _, v := range r.bySeed(metric, c) {
		if !math.IsNaN(v) {
			values = append(values, v)
		}
	}
	return spread.Of(values)
}

// Relative sums up a metric's ratio to that of another scheme at the same point:
// seed by seed, as both schemes had the same flows, over seeds that both have. A
// seed whose reference is zero has no ratio.
func (r *Results) Relative(metric string, c Cell, reference string) spread.Spread {
	own := r.bySeed(metric, c)
	c.Scheme = reference
	var values []float64
	for i, ref := range r.bySeed(metric, c) {
		if v := own[i] / ref; !math.IsNaN(v) && !math.IsInf(v, 0) {
			values = append(values, v)
		}
	}
	return spread.Of(values)
}

// bySeed are a cell's values in the order of the size's seeds; NaN where there is none.
func (r *Results) bySeed(metric string, c Cell) []float64 {
	out := make([]float64, len(r.Size.Seeds))
	for i := range out {
		out[i] = math.NaN()
	}
	for i, rec := range r.Records {
		run := &r.Size.Runs[i]
		if rec == nil || run.Scheme != c.Scheme || run.Load != c.Load || run.Axis != c.Axis {
			continue
		}
		if v, ok := r.value(rec.Result, metric); ok {
			out[slices.Index(r.Size.Seeds, run.Seed)] = v
		}
	}
	return out
}

// value is a run's number. A counter that this run did not count anything under is
// zero if another run did: else it is a name that does not exist.
func (r *Results) value(res *measure.Result, metric string) (float64, bool) {
	v, ok, zero := lookup(res, metric)
	if ok || !zero {
		return v, ok
	}
	for _, rec := range r.Records {
		if rec == nil {
			continue
		}
		if _, known, _ := lookup(rec.Result, metric); known {
			return 0, true
		}
	}
	return 0, false
}

// Results gives a cell's results, one a seed.
func (r *Results) Results(c Cell) (out []*measure.Result) {
	for i, rec := range r.Records {
		run := &r.Size.Runs[i]
		if rec != nil && run.Scheme == c.Scheme && run.Load == c.Load && run.Axis == c.Axis {
			out = append(out, rec.Result)
		}
	}
	return out
}

// Items are the names that the * of a metric stands for in any run of a point, in
// the order in which runs have them, and each one's metric.
func (r *Results) Items(metric string, load float64, axis string) (names, metrics []string) {
	for i, rec := range r.Records {
		if run := &r.Size.Runs[i]; rec == nil || run.Load != load || run.Axis != axis {
			continue
		}
		n, m := items(rec.Result, metric)
		for k := range n {
			if !slices.Contains(names, n[k]) {
				names, metrics = append(names, n[k]), append(metrics, m[k])
			}
		}
	}
	return names, metrics
}

// CDF is the distribution of a cell over all seeds, each with equal weight.
func (r *Results) CDF(metric string, c Cell) []measure.Point {
	var curves [][]measure.Point
	var xs []float64
	for _, res := range r.Results(c) {
		d := Distribution(res, metric)
		if d == nil || len(d.CDF) == 0 {
			continue
		}
		curves = append(curves, d.CDF)
		for _, p := range d.CDF {
			xs = append(xs, p.X)
		}
	}
	slices.Sort(xs)
	out := []measure.Point{}
	for _, x := range slices.Compact(xs) {
		var y float64
		for _, c := range curves {
			y += at(c, x)
		}
		out = append(out, measure.Point{X: x, Y: y / float64(len(curves))})
	}
	return out
}

// at reads a curve between its points. Before the first it is 0, after the last
// what the last one is.
func at(curve []measure.Point, x float64) float64 {
	i, _ := slices.BinarySearchFunc(curve, x, func(p measure.Point, x float64) int {
		if p.X <= x {
			return -1
		}
		return 1
	}) // the first point beyond x
	switch {
	case i == 0:
		return 0
	case i == len(curve):
		return curve[i-1].Y
	}
	a, b := curve[i-1], curve[i]
	return a.Y + (b.Y-a.Y)*(x-a.X)/(b.X-a.X)
}

// Outcome is what became of an expectation at one point.
type Outcome struct {
	Expectation *Expectation
	Cell        Cell
	Spread      spread.Spread // N = 0: it cannot be told, for no run has it
	Holds       bool
}

// Outcomes checks the experiment's expectations at the size's points.
func (r *Results) Outcomes() (out []Outcome) {
	e := r.Size.Experiment
	for i := range e.Expect {
		x := &e.Expect[i]
		if !x.appliesTo(r.Size) {
			continue
		}
		for _, axis := range r.Size.Points() {
			for _, load := range r.Size.LoadPoints() {
				if !x.At.matches(load, axis) {
					continue
				}
				o := Outcome{Expectation: x, Cell: Cell{x.Scheme, load, axis}}
				bounds := x.Value
				if x.Versus != "" {
					o.Spread, bounds = r.Relative(x.Metric, o.Cell, x.Versus), x.Ratio
				} else {
					o.Spread = r.Spread(x.Metric, o.Cell)
				}
				o.Holds = o.Spread.N > 0 && bounds.Hold(o.Spread.Mean)
				out = append(out, o)
			}
		}
	}
	return out
}

// Claim says in words what is expected.
func (o *Outcome) Claim() string {
	x := o.Expectation
	var s string
	switch {
	case x.Says != "":
		s = x.Says
	case x.Versus != "":
		s = fmt.Sprintf("%s of %s over that of %s %s", x.Metric, x.Scheme, x.Versus, x.Ratio)
	default:
		s = fmt.Sprintf("%s of %s %s", x.Metric, x.Scheme, x.Value)
	}
	return s + o.Cell.where()
}

// where is a cell's point in words.
func (c Cell) where() string {
	parts := []string{}
	if c.Axis != "" {
		parts = append(parts, c.Axis)
	}
	if c.Load != 0 {
		parts = append(parts, fmt.Sprintf("%g %% load", c.Load))
	}
	if len(parts) == 0 {
		return ""
	}
	return " (" + strings.Join(parts, ", ") + ")"
}
