package experiment

import (
	"fmt"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"github.com/loomfabric/loom/internal/yamlfile"
)

// What a plot may have on its x axis.
const (
	XLoad   = "load"
	XAxis   = "axis"
	XScheme = "scheme"
	XItems  = "items"
	XCDF    = "cdf"
)

// outputs reads plots, table and expectations and holds them against what is run.
// Schemes, loads and points that only flags leave out are not missed.
func (r *reader) outputs(mine map[string]ast.Node) {
	e := r.exp
	if e.Reference == "" {
		e.Reference = e.Sizes[0].Schemes[0]
	} else if !r.flagged() {
		r.scheme(mine["reference"], "reference", e.Reference, nil)
	}
	each(r, mine["plots"], "plots", func(n ast.Node, path string, p Plot) {
		if p.Name == "" {
			p.Name = fmt.Sprintf("plot%d", len(e.Plots)+1)
		}
		r.plot(n, path, &p)
		if slices.ContainsFunc(e.Plots, func(o Plot) bool { return o.Name == p.Name }) {
			r.fail(n, path, "name %q is used twice; give each plot its own", p.Name)
		}
		e.Plots = append(e.Plots, p)
	})
	each(r, mine["table"], "table", func(n ast.Node, path string, c Column) {
		r.metric(n, path, c.Metric, false)
		e.Table = append(e.Table, c)
	})
	each(r, mine["expect"], "expect", func(n ast.Node, path string, x Expectation) {
		r.expectation(n, path, &x)
		e.Expect = append(e.Expect, x)
	})
}

// each decodes the items of a list that may be left out. Of a column its metric is
// enough.
func each[T any](r *reader, list ast.Node, path string, add func(n ast.Node, path string, v T)) {
	if list == nil {
		return
	}
	for i, n := range r.list(list, path) {
		var v T
		over := n
		if _, isScalar := n.(ast.ScalarNode); isScalar && path == "table" {
			over = override(n, scalar("metric"))
		}
		for _, p := range yamlfile.Pairs(over) { // merging leaves out what is null
			if key := yamlfile.Text(p.Key); !slices.Contains(yamlfile.Names(&v), strings.Split(key, ".")[0]) {
				problem, fix := yamlfile.Unknown(key, nil, yamlfile.Names(&v))
				r.fail(p.Key, "", "%s; %s", problem, fix)
			}
		}
		if r.decode(over, &v) {
			add(n, fmt.Sprintf("%s[%d]", path, i), v)
		}
	}
}

// flagged tells whether the matrix is not the file's.
func (r *reader) flagged() bool {
	return len(r.opt.Schemes) > 0 || len(r.opt.Loads) > 0 || r.opt.Seeds > 0
}

func (r *reader) metric(n ast.Node, path, metric string, isDistribution bool) {
	if metric == "" {
		r.fail(n, path, "it has no metric; write for instance fct.all.norm")
	} else if err := CheckMetric(metric, isDistribution); err != nil {
		r.fail(n, path, "%v", err)
	}
}

// scheme checks that a size has a scheme; sizes nil: all.
func (r *reader) scheme(n ast.Node, path, name string, sizes []string) {
	for _, s := range r.exp.Sizes {
		if (len(sizes) == 0 || slices.Contains(sizes, s.Name)) && !slices.Contains(s.Schemes, name) {
			r.fail(n, path, "size %s has no scheme %q; it has %s", s.Name, name, strings.Join(s.Schemes, ", "))
			return
		}
	}
}

func (r *reader) plot(n ast.Node, path string, p *Plot) {
	if !nameRE.MatchString(p.Name) {
		r.fail(n, path+".name", "%q cannot be part of a file's name; use a-z, 0-9 and -", p.Name)
	}
	if p.X == "" {
		p.X = r.defaultX()
	}
	switch p.X {
	case XLoad, XAxis, XScheme, XItems, XCDF:
	default:
		r.fail(n, path+".x", "x %q does not exist; use load, axis, scheme, items or cdf", p.X)
		return
	}
	r.metric(n, path+".y", p.Y, p.X == XCDF)
	if p.X == XItems && !strings.Contains(p.Y, "."+star) {
		r.fail(n, path+".y", "%q names one thing; x: items wants a * for the name, as in fct.*.norm", p.Y)
	}
	if p.X != XItems && strings.Contains(p.Y, "."+star+".") {
		r.fail(n, path+".y", "%q stands for several; write x: items", p.Y)
	}
	if p.X == XCDF && (p.Relative != "" || p.Bars) {
		r.fail(n, path, "relative or bars under x: cdf; remove them")
	}
	if r.flagged() {
		return
	}
	for _, s := range r.exp.Sizes {
		switch {
		case p.X == XLoad && len(s.Loads) == 0:
			r.fail(n, path+".x", "size %s has no loads; plot something else", s.Name)
		case p.X == XAxis && s.Axis == nil:
			r.fail(n, path+".x", "size %s has no axis; plot something else", s.Name)
		}
		if msg := p.At.missing(s); msg != "" {
			r.fail(n, path+".at", "%s", msg)
		}
	}
	for _, name := range append(slices.Clone(p.Schemes), p.Relative) {
		if name != "" {
			r.scheme(n, path, name, nil)
		}
	}
}

// defaultX is load or axis, if a size has several, or else a bar a scheme.
func (r *reader) defaultX() string {
	switch {
	case slices.ContainsFunc(r.exp.Sizes, func(s *Size) bool { return len(s.Loads) > 1 }):
		return XLoad
	case slices.ContainsFunc(r.exp.Sizes, func(s *Size) bool { return s.Axis != nil }):
		return XAxis
	}
	return XScheme
}

func (r *reader) expectation(n ast.Node, path string, x *Expectation) {
	r.metric(n, path+".metric", x.Metric, false)
	if strings.Contains(x.Metric, "."+star+".") {
		r.fail(n, path+".metric", "%q stands for several; write one", x.Metric)
	}
	switch {
	case x.Ratio == nil && x.Value == nil && (x.Paper == nil || x.Paper.all == nil):
		r.fail(n, path, `it has no bounds; write value: "< 0.3", or versus and ratio: "< 0.8", or the paper's own margin in paper`)
	case x.relative() && x.Value != nil:
		r.fail(n, path, `versus or than with a value; they want a ratio, as in ratio: "< 0.8"`)
	case !x.relative() && x.Ratio != nil:
		r.fail(n, path, `a ratio without versus or than; write a value, as in value: "< 0.3", or what it is a ratio to`)
	case x.Paper != nil && !x.Paper.within(x.direction()):
		r.fail(n, path+".paper", "the paper's margin reaches beyond the direction %q; widen the direction", x.direction())
	}
	for _, name := range x.Sizes {
		if _, err := r.exp.Size(name); err != nil || name == "" {
			r.fail(n, path+".sizes", "there is no size %q; name one of sizes", name)
			return
		}
	}
	if r.flagged() {
		return
	}
	r.margin(n, path+".paper", x)
	r.scheme(n, path+".scheme", x.Scheme, x.Sizes)
	if x.Versus != "" {
		r.scheme(n, path+".versus", x.Versus, x.Sizes)
	}
	for _, s := range r.exp.Sizes {
		if msg := x.At.missing(s); msg != "" && x.appliesTo(s) {
			r.fail(n, path+".at", "%s; write sizes: [...] to leave it out", msg)
		}
		if x.Than != nil && x.appliesTo(s) {
			if msg := x.Than.missing(s); msg != "" {
				r.fail(n, path+".than", "%s; write sizes: [...] to leave it out", msg)
			}
		}
	}
}

// margin checks that the points of a margin are some of the experiment's.
func (r *reader) margin(n ast.Node, path string, x *Expectation) {
	if x.Paper == nil {
		return
	}
	for name := range x.Paper.at {
		if !slices.ContainsFunc(r.exp.Sizes, func(s *Size) bool {
			return slices.ContainsFunc(s.Cells(), func(c Cell) bool { return c.Axis == name || fmt.Sprintf("%g", c.Load) == name })
		}) {
			r.fail(n, path, "no size has a load or a point of the axis %q; name one that there is", name)
		}
	}
}

// appliesTo tells whether an expectation is one of this size's.
func (x *Expectation) appliesTo(s *Size) bool {
	return len(x.Sizes) == 0 || slices.Contains(x.Sizes, s.Name)
}
