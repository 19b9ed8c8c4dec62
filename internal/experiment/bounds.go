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
