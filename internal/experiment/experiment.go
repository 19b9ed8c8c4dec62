// Package experiment reads experiment files, expands them into the runs of a
// matrix (schemes × loads × axis × seeds), has a [Runner] make those that a
// directory of results lacks, and sums up what they found. It does not know how a
// run is made: a command gives it the simulator or the lab.
package experiment

import (
	"fmt"
	"slices"
	"strings"

	"github.com/loomfabric/loom/sim"
)

// Experiment is an experiment file: a figure of a paper, as a rule.
type Experiment struct {
	File  string // as it was named
	Text  []byte
	Name  string // of the results' directory: a-z, 0-9, -
	Title string
	Paper string // "CONGA Figure 9"
	Claim string // what the paper says, with its number
	Note  string // where we differ, and why

	// Reference is the scheme that tables compare others with; default the first.
	Reference string
	Plots     []Plot
	Table     []Column
	Expect    []Expectation
	Sizes     []*Size // in the file's order
	// Command makes the results, if the experiment has no file of its own.
	Command string
}

// PublishedSeeds is the least number of seeds of a published size, and
// FirstPublished the first of them. Other sizes use seeds below that: nobody tunes
// anything on what is published.
const (
	PublishedSeeds = 5
	FirstPublished = 101
)

// Size is an experiment at one of its sizes, expanded.
type Size struct {
	Experiment *Experiment
	Name       string // "quick", "paper"
	Note       string // added to the experiment's
	// Published says that its results are for the page of results: at least
	// [PublishedSeeds] seeds, from [FirstPublished] on, which development never uses.
	Published bool
	Schemes   []string
	Loads     []float64 // percent; none: the file's workloads have what load they have
	Axis      *Axis     // nil: none
	Seeds     []uint64
	Runs      []Run // seeds outermost, so that the first runs show something of everything
}

// Axis is what varies besides schemes and loads.
type Axis struct {
	Label  string // of the x axis
	Points []string
	// Values are the points as numbers, if all of them are numbers.
	Values []float64
}

// Run is one of a matrix.
type Run struct {
	ID   string // stable; the name of the result's file
	Cell        // Scheme is a label of the experiment's; Spec.Scheme is the policy
	Seed uint64
	// Spec is for this run alone: nothing in it is shared. Names of files in it are
	// joined with the experiment file's directory.
	Spec *sim.Spec
}

// Plot is a figure to draw.
type Plot struct {
	Name  string `yaml:"name"` // part of the file's name; default: its position
	Title string `yaml:"title"`
	// X is "load" (the default if there are several), "axis", "scheme" (a bar each),
	// "items" (Y has a * for a name: classes, ports) or "cdf" (Y is a distribution).
	X string `yaml:"x"`
	// Y is a metric's path: fct.all.norm, queues.S1->L1.0.p99.
	Y string `yaml:"y"`
	// Relative divides by this scheme's value with the same seed.
	Relative string   `yaml:"relative"`
	At       At       `yaml:"at"`
	Schemes  []string `yaml:"schemes"` // default: all
	XLabel   string   `yaml:"x_label"` // units are added
	YLabel   string   `yaml:"y_label"`
	LogX     bool     `yaml:"log_x"`
	LogY     bool     `yaml:"log_y"`
	Bars     bool     `yaml:"bars"` // bars instead of a line
}

// At picks points of a matrix.
type At struct {
	Load *float64 `yaml:"load"`
	Axis *string  `yaml:"axis"`
}

// Column is a metric of the table.
type Column struct {
	Metric string `yaml:"metric"`
	Label  string `yaml:"label"` // default: the path in words
	// Plain leaves out the ratio to the reference.
	Plain bool `yaml:"plain"`
}

// Size finds a size by name; "" is the first.
func (e *Experiment) Size(name string) (*Size, error) {
	names := []string{}
	for _, s := range e.Sizes {
		if s.Name == name || name == "" {
			return s, nil
		}
		names = append(names, s.Name)
	}
	return nil, fmt.Errorf("%s: there is no size %q, only %v", e.File, name, names)
}

// Named finds those sizes that are named, in the file's order; no names: the first.
func (e *Experiment) Named(names []string) (out []*Size, err error) {
	if len(names) == 0 {
		return e.Sizes[:1], nil
	}
	known := []string{}
	for _, s := range e.Sizes {
		known = append(known, s.Name)
		if slices.Contains(names, s.Name) {
			out = append(out, s)
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s: there is no size %s, only %v", e.File, strings.Join(names, " or "), known)
	}
	return out, nil
}

// ID names a size's results by a runner in files and links.
func (s *Size) ID(on string) string {
	id := s.Experiment.Name + "-" + s.Name
	if on != OnSim {
		id += "-" + on
	}
	return id
}

// Points are what the axis has; none without an axis.
func (s *Size) Points() []string {
	if s.Axis == nil {
		return nil
	}
	return s.Axis.Points
}

// Cells are the points of the matrix, axis outermost, without a scheme.
func (s *Size) Cells() (out []Cell) {
	points, loads := s.Points(), s.Loads
	if len(points) == 0 {
		points = []string{""}
	}
	if len(loads) == 0 {
		loads = []float64{0}
	}
	for _, axis := range points {
		for _, load := range loads {
			out = append(out, Cell{Axis: axis, Load: load})
		}
	}
	return out
}

// Matches tells whether a cell is among those that a picks.
func (a *At) Matches(c Cell) bool {
	return (a.Load == nil || *a.Load == c.Load) && (a.Axis == nil || *a.Axis == c.Axis)
}

// of returns a cell with what a picks in the place of its own.
func (a *At) of(c Cell) Cell {
	if a.Load != nil {
		c.Load = *a.Load
	}
	if a.Axis != nil {
		c.Axis = *a.Axis
	}
	return c
}

// missing says what a picks and the size lacks; "" if nothing.
func (a *At) missing(s *Size) string {
	switch {
	case a.Load != nil && !slices.Contains(s.Loads, *a.Load):
		return fmt.Sprintf("size %s has no load %g, only %v", s.Name, *a.Load, s.Loads)
	case a.Axis != nil && !slices.Contains(s.Points(), *a.Axis):
		return fmt.Sprintf("size %s has no point %q of the axis, only %q", s.Name, *a.Axis, s.Points())
	}
	return ""
}
