package experiment

import (
	"fmt"
	"math"

	"github.com/loomfabric/loom/internal/spread"
)

// Expectation is a claim of a paper about results: about a scheme's value or, with
// Versus, about its ratio to another scheme's. What is judged is the spread over
// seeds, in which ratios are taken seed by seed.
type Expectation struct {
	Metric string `yaml:"metric"`
	Scheme string `yaml:"scheme"`
	Versus string `yaml:"versus"`
	At     At     `yaml:"at"` // what is left out: at all points
	// Than divides by the same value, or the same ratio, at another point: what it
	// leaves out is as at the point itself. It wants a Ratio.
	Than *At `yaml:"than"`
	// Ratio or Value is the claim's direction: what has to hold at all. It may be left
	// out where Paper says everything.
	Ratio *Bounds `yaml:"ratio"`
	Value *Bounds `yaml:"value"`
	// Paper is the paper's margin: the same quantity within the bounds that the paper
	// gives as a number. nil: it gives none.
	Paper *Margin `yaml:"paper"`
	// Says is what it means; default: made up from the rest.
	Says string `yaml:"says"`
	// Differs says why ours is known to be otherwise. The verdict stands; a check of
	// results does not insist.
	Differs string `yaml:"differs"`
	// Sizes restricts it to these.
	Sizes []string `yaml:"sizes"`
}

// Verdict is what became of an expectation.
type Verdict uint8

// The verdicts, from the worst to the best.
const (
	// Untold means that there are not enough runs to tell.
	Untold Verdict = iota
	// NotReproduced means that the spread does not lie within the direction's bounds.
	NotReproduced
	// DirectionOnly means that the spread lies within the direction's bounds, but not
	// within the paper's margin, or that the paper gives none.
	DirectionOnly
	// MarginReached means that the spread lies within the paper's margin.
	MarginReached
)

// String returns the verdict in words.
func (v Verdict) String() string {
	return [...]string{"cannot be told", "not reproduced", "direction only", "the paper's margin is reached"}[v]
}

// Outcome is what became of an expectation at one point.
type Outcome struct {
	Expectation *Expectation
	Cell        Cell
	Spread      spread.Spread // N = 0: no run has it
	Verdict     Verdict
	// ByMean says that the size is not published, and that its mean alone was held
	// against the bounds: a few seeds have no interval that says much.
	ByMean bool
	// Contradicted says that all of the spread lies outside of the direction's bounds;
	// otherwise what is not reproduced crosses them.
	Contradicted bool
}

// Fails reports whether a check of results has to fail for it.
func (o *Outcome) Fails() bool { return o.Verdict <= NotReproduced && o.Expectation.Differs == "" }

// Outcomes judges the experiment's expectations at the size's points.
func (r *Results) Outcomes() (out []Outcome) {
	e := r.Size.Experiment
	for i := range e.Expect {
		x := &e.Expect[i]
		if !x.appliesTo(r.Size) {
			continue
		}
		for _, cell := range r.Size.Cells() {
			if !x.At.Matches(cell) {
				continue
			}
			cell.Scheme = x.Scheme
			if x.Than != nil && x.Than.of(cell) == cell {
				continue
			}
			o := Outcome{Expectation: x, Cell: cell, Spread: spread.Of(r.judged(x, cell)), ByMean: !r.Size.Published}
			o.judge()
			out = append(out, o)
		}
	}
	return out
}

// judged returns what an expectation is about, by seed.
func (r *Results) judged(x *Expectation, c Cell) (values []float64) {
	own := r.asked(x, c)
	var base []float64
	if x.Than != nil {
		base = r.asked(x, x.Than.of(c))
	}
	for i, v := range own {
		if base != nil {
			v /= base[i]
		}
		if !math.IsNaN(v) && !math.IsInf(v, 0) {
			values = append(values, v)
		}
	}
	return values
}

// asked returns an expectation's value, or its ratio to that of another scheme, at
// one point by seed; NaN or infinite where there is none.
func (r *Results) asked(x *Expectation, c Cell) []float64 {
	own := r.bySeed(x.Metric, c)
	if x.Versus != "" {
		c.Scheme = x.Versus
		for i, v := range r.bySeed(x.Metric, c) {
			own[i] /= v
		}
	}
	return own
}

// judge finds the verdict. Of a published size it is the 95 % interval that has to
// lie within bounds: one that crosses them says nothing. Of others it is the mean.
func (o *Outcome) judge() {
	x, s := o.Expectation, o.Spread
	half := s.CI95
	if o.ByMean {
		half = 0
	} else if s.N < PublishedSeeds {
		return
	}
	if s.N == 0 {
		return
	}
	low, high := s.Mean-half, s.Mean+half
	within := func(b *Bounds) bool { return b != nil && b.Hold(low) && b.Hold(high) }
	direction := x.direction()
	switch {
	case within(direction) && within(x.Paper.Of(o.Cell)):
		o.Verdict = MarginReached
	case within(direction):
		o.Verdict = DirectionOnly
	default:
		o.Verdict = NotReproduced
		o.Contradicted = high < direction.low || low > direction.high
	}
}

// direction returns the bounds that have to hold at all.
func (x *Expectation) direction() *Bounds {
	switch {
	case x.Ratio != nil:
		return x.Ratio
	case x.Value != nil:
		return x.Value
	}
	return x.Paper.all
}

// relative reports whether it is about a ratio.
func (x *Expectation) relative() bool { return x.Versus != "" || x.Than != nil }

// Unit is that of what is judged; "" if it is a ratio.
func (x *Expectation) Unit() string {
	if x.relative() {
		return ""
	}
	return Unit(x.Metric)
}

// Claim says in words what is expected.
func (o *Outcome) Claim() string {
	x := o.Expectation
	s := x.Says
	if s == "" {
		s = fmt.Sprintf("%s of %s", x.Metric, x.Scheme)
		if x.Versus != "" {
			s += " over that of " + x.Versus
		}
		if x.Than != nil {
			s += " over that at " + x.Than.of(o.Cell).Place()
		}
		s += " " + x.direction().String()
	}
	if at := o.Cell.Place(); o.Cell.Load != 0 {
		s += " (" + at + " load)"
	} else if at != "" {
		s += " (" + at + ")"
	}
	return s
}
