// Package report shows what experiments found: figures, tables, CSV, one HTML page
// and the sections of docs/results.md.
package report

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/loomfabric/loom/internal/experiment"
	"github.com/loomfabric/loom/internal/spread"
)

// scale is a unit to show values in: shown = value × factor.
type scale struct {
	factor float64
	unit   string
}

// scaleFor chooses the unit in which the greatest value reads well.
func scaleFor(metric string, greatest float64) scale {
	unit := experiment.Unit(metric)
	var steps []scale
	switch unit {
	case "s", "ns":
		if unit == "ns" {
			greatest *= 1e-9
		}
		steps = []scale{{1, "s"}, {1e3, "ms"}, {1e6, "µs"}, {1e9, "ns"}}
	case "bit/s":
		steps = []scale{{1e-9, "Gbit/s"}, {1e-6, "Mbit/s"}, {1e-3, "kbit/s"}, {1, "bit/s"}}
	case "B":
		steps = []scale{{1e-9, "GB"}, {1e-6, "MB"}, {1e-3, "KB"}, {1, "B"}}
	case "hops/s":
		steps = []scale{{1e-6, "M hops/s"}, {1, "hops/s"}}
	default:
		return scale{1, unit}
	}
	s := steps[len(steps)-1]
	for _, step := range steps {
		if math.Abs(greatest)*step.factor >= 1 {
			s = step
			break
		}
	}
	if unit == "ns" {
		s.factor *= 1e-9
	}
	return s
}

// withUnit is a label with its unit behind it, if it does not say it already.
func withUnit(label, unit string) string {
	if unit == "" || strings.HasSuffix(label, unit) {
		return label
	}
	return label + " (" + unit + ")"
}

// short writes a number with three digits, or all before the point.
func short(v float64) string {
	switch a := math.Abs(v); {
	case a >= 99.95 || a == 0:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case a >= 9.995:
		return strconv.FormatFloat(v, 'f', 1, 64)
	case a >= 0.9995:
		return strconv.FormatFloat(v, 'f', 2, 64)
	case a >= 0.1:
		return strconv.FormatFloat(v, 'f', 3, 64)
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}

// spreadText is mean ±half of its 95 % interval (least–greatest), scaled.
func spreadText(s spread.Spread, sc scale) string {
	if s.N == 0 {
		return "–"
	}
	text := short(s.Mean * sc.factor)
	if s.N > 1 {
		text += fmt.Sprintf(" ±%s (%s–%s)", short(s.CI95*sc.factor), short(s.Min*sc.factor), short(s.Max*sc.factor))
	}
	return text
}
