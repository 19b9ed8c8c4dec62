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

// scales are the units to show those of metrics in, greater ones first.
var scales = map[string][]scale{
	"s":      {{1, "s"}, {1e3, "ms"}, {1e6, "µs"}, {1e9, "ns"}},
	"ns":     {{1e-9, "s"}, {1e-6, "ms"}, {1e-3, "µs"}, {1, "ns"}},
	"bit/s":  {{1e-9, "Gbit/s"}, {1e-6, "Mbit/s"}, {1e-3, "kbit/s"}, {1, "bit/s"}},
	"B":      {{1e-9, "GB"}, {1e-6, "MB"}, {1e-3, "KB"}, {1, "B"}},
	"hops/s": {{1e-6, "M hops/s"}, {1, "hops/s"}},
}

// scaleFor chooses the unit in which the greatest value reads well.
func scaleFor(metric string, greatest float64) scale {
	best := scale{1, experiment.Unit(metric)}
	for _, best = range scales[best.unit] {
		if math.Abs(greatest)*best.factor >= 1 {
			break
		}
	}
	return best
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
