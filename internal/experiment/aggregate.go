package experiment

import (
	"fmt"
	"math"
	"slices"

	"github.com/loomfabric/loom/internal/measure"
	"github.com/loomfabric/loom/internal/spread"
)

// Cell picks the runs of one scheme at one point of the matrix.
type Cell struct {
	Scheme string
	Load   float64 // 0: the file's workloads have what load they have
	Axis   string  // a point of the axis; "": there is none
}

// Place is the cell's point in words; "" if there is only one.
func (c Cell) Place() string {
	load := ""
	if c.Load != 0 {
		load = fmt.Sprintf("%g %%", c.Load)
	}
	if c.Axis == "" || load == "" {
		return c.Axis + load
	}
	return c.Axis + ", " + load
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
		if run := &r.Size.Runs[i]; rec != nil && run.Cell == c {
			if v, ok := r.value(rec, metric); ok {
				out[slices.Index(r.Size.Seeds, run.Seed)] = v
			}
		}
	}
	return out
}

// value is a run's number. A counter that this run did not count anything under is
// zero if another run did: else it is a name that does not exist.
func (r *Results) value(rec *Record, metric string) (float64, bool) {
	v, ok, counter := rec.number(metric)
	return v, ok || counter && slices.ContainsFunc(r.Records, func(other *Record) bool {
		if other == nil {
			return false
		}
		_, ok, _ := other.number(metric)
		return ok
	})
}

// Of gives a cell's records, one a seed.
func (r *Results) Of(c Cell) (out []*Record) {
	for i, rec := range r.Records {
		if rec != nil && r.Size.Runs[i].Cell == c {
			out = append(out, rec)
		}
	}
	return out
}

// Items are the names that the * of a metric stands for in any run of a point, in
// the order in which runs have them, and each one's metric.
func (r *Results) Items(metric string, at Cell) (names, metrics []string) {
	for _, at.Scheme = range r.Size.Schemes {
		for _, rec := range r.Of(at) {
			n, m := rec.items(metric)
			for k := range n {
				if !slices.Contains(names, n[k]) {
					names, metrics = append(names, n[k]), append(metrics, m[k])
				}
			}
		}
	}
	return names, metrics
}

// CDF is the distribution of a cell over all seeds, each with equal weight.
func (r *Results) CDF(metric string, c Cell) []measure.Point {
	var curves [][]measure.Point
	var xs []float64
	for _, rec := range r.Of(c) {
		d := rec.distribution(metric)
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
