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
	text           string
	low, high      float64
	lowIn, highIn  bool // the bound itself is allowed
	hasLow, hasTop bool
}

// ParseBounds reads bounds.
func ParseBounds(text string) (Bounds, error) {
	b := Bounds{text: strings.TrimSpace(text)}
	bad := fmt.Errorf(`%q are no bounds; write them as in "< 0.8", ">= 2" or "0.9 to 1.1"`, text)
	if low, high, ok := strings.Cut(b.text, " to "); ok {
		var err, err2 error
		b.low, err = finite(low)
		b.high, err2 = finite(high)
		b.hasLow, b.hasTop, b.lowIn, b.highIn = true, true, true, true
		if err != nil || err2 != nil || b.low > b.high {
			return Bounds{}, bad
		}
		return b, nil
	}
	if len(b.text) < 2 || (b.text[0] != '<' && b.text[0] != '>') {
		return Bounds{}, bad
	}
	number, in := strings.CutPrefix(b.text[1:], "=")
	v, err := finite(number)
	if err != nil {
		return Bounds{}, bad
	}
	if b.text[0] == '<' {
		b.high, b.hasTop, b.highIn = v, true, in
	} else {
		b.low, b.hasLow, b.lowIn = v, true, in
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
func (b Bounds) Hold(v float64) bool {
	low := !b.hasLow || v > b.low || b.lowIn && v == b.low
	top := !b.hasTop || v < b.high || b.highIn && v == b.high
	return low && top && !math.IsNaN(v)
}

// String is as they were written.
func (b Bounds) String() string { return b.text }
