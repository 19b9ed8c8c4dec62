package experiment

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"github.com/loomfabric/loom/internal/yamlfile"
)

// Bounds are what a value must keep to: "< 0.8", "<= 1", "> 2", ">= 2" or
// "0.9 to 1.1", whose ends belong to it.
type Bounds struct {
	text      string
	low, high float64 // both are allowed
}

// ParseBounds reads bounds.
func ParseBounds(text string) (Bounds, error) {
	b := Bounds{strings.TrimSpace(text), math.Inf(-1), math.Inf(1)}
	low, high, between := strings.Cut(b.text, " to ")
	var err, err2 error
	if between {
		b.low, err = finite(low)
		b.high, err2 = finite(high)
	} else if number, ok := strings.CutPrefix(b.text, "<="); ok {
		b.high, err = finite(number)
	} else if number, ok := strings.CutPrefix(b.text, "<"); ok {
		b.high, err = finite(number)
		b.high = math.Nextafter(b.high, math.Inf(-1))
	} else if number, ok := strings.CutPrefix(b.text, ">="); ok {
		b.low, err = finite(number)
	} else if number, ok := strings.CutPrefix(b.text, ">"); ok {
		b.low, err = finite(number)
		b.low = math.Nextafter(b.low, math.Inf(1))
	} else {
		err = strconv.ErrSyntax
	}
	if err != nil || err2 != nil || b.low > b.high {
		return Bounds{}, fmt.Errorf(`%q are no bounds; write them as in "< 0.8", ">= 2" or "0.9 to 1.1"`, text)
	}
	return b, nil
}

func finite(s string) (float64, error) {
	v, err := strconv.ParseFloat(strings.TrimSpace(s), 64)
	if err == nil && (math.IsNaN(v) || math.IsInf(v, 0)) {
		err = strconv.ErrRange
	}
	return v, err
}

// UnmarshalYAML implements [yaml.NodeUnmarshaler].
func (b *Bounds) UnmarshalYAML(n ast.Node) error {
	v, err := ParseBounds(yamlfile.Text(n))
	if err != nil {
		return nodeError(n, "%v", err)
	}
	*b = v
	return nil
}

// Hold tells whether v keeps to them. NaN does not.
func (b Bounds) Hold(v float64) bool { return v >= b.low && v <= b.high }

// within reports whether all that keeps to b keeps to o.
func (b *Bounds) within(o *Bounds) bool { return b.low >= o.low && b.high <= o.high }

// String is as they were written.
func (b Bounds) String() string { return b.text }

// Margin are the bounds that a paper gives as numbers: the same at all points, or
// those of some points by their load or their name on the axis.
type Margin struct {
	all *Bounds
	at  map[string]Bounds
}

// UnmarshalYAML implements [yaml.NodeUnmarshaler].
func (m *Margin) UnmarshalYAML(n ast.Node) error {
	if !yamlfile.IsMapping(n) {
		m.all = &Bounds{}
		return m.all.UnmarshalYAML(n)
	}
	m.at = map[string]Bounds{}
	for _, p := range yamlfile.Pairs(n) {
		var b Bounds
		if err := b.UnmarshalYAML(p.Value); err != nil {
			return err
		}
		m.at[yamlfile.Text(p.Key)] = b
	}
	return nil
}

// Of returns the bounds at a point; nil: the paper gives no number for it.
func (m *Margin) Of(c Cell) *Bounds {
	switch {
	case m == nil:
		return nil
	case m.all != nil:
		return m.all
	}
	for _, name := range []string{c.Axis, fmt.Sprintf("%g", c.Load)} {
		if b, ok := m.at[name]; ok {
			return &b
		}
	}
	return nil
}

// within reports whether all of the margin's bounds lie within o.
func (m *Margin) within(o *Bounds) bool {
	if m.all != nil && !m.all.within(o) {
		return false
	}
	for _, b := range m.at {
		if !b.within(o) {
			return false
		}
	}
	return true
}
