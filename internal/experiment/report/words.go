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

// words are what parts of metrics are called.
var words = map[string]string{
	"norm": "mean FCT ÷ idle network's", "mean_s": "mean FCT", "slowdown_mean": "mean FCT slowdown", "flows": "flows", "unfinished": "flows not finished",
	"goodput_bps": "goodput", "cpu_idle_percent": "CPU idle", "before_percent": "share before", "after_percent": "share after", "followed_s": "followed after",
	"reordering.percent": "reordered", "mean_distance": "distance of reordered packets, mean", "max_distance": "distance of reordered packets, greatest",
	"out_of_sequence_percent": "out of sequence", "retransmitted_percent": "retransmitted", "effective_percent": "effective throughput", "imbalance": "imbalance of uplinks", "queues": "queue", "percent": "share",
	"wall_s": "time it took", "hops_per_s": "speed", "mean": "mean", "max": "greatest", "packet_hops": "packet-hops", "events": "events",
}

// label is a metric in words.
func label(metric string) string {
	parts := strings.Split(metric, ".")
	last := parts[len(parts)-1]
	word, ok := words[last]
	if !ok {
		word = strings.ReplaceAll(last, "_", " ")
	}
	if len(parts) == 1 {
		return word
	}
	name := strings.Join(parts[1:len(parts)-1], ".")
	switch parts[0] {
	case "fct":
		name = strings.Join(parts[1:len(parts)-1], ".")
		if p, s, isQuantile := quantile(last); isQuantile {
			word = p + " FCT" + s
		}
		if name == "all" || name == "*" {
			return word
		}
		return word + ", " + name + " flows"
	case "queues", "imbalance":
		word = words[parts[0]] + ", " + word
		if name == "all" || name == "*" {
			return word
		}
		return word + ", " + name
	case "drops":
		if last == "*" {
			return "drops"
		}
	case "workloads":
		if w, class, ok := strings.Cut(name, ".fct."); ok {
			return label("fct."+class+"."+last) + ", " + w
		}
		if w, ok := strings.CutSuffix(name, ".reordering"); ok {
			name = w
			if special, ok := words["reordering."+last]; ok {
				word = special
			}
		}
		return word + ", " + name
	case "machine":
		return word
	case "uplinks", "phases", "reactions":
		return word + ", " + name
	}
	return strings.Join(parts, " ")
}

// quantile reads p99_s or slowdown_p99.
func quantile(field string) (p, what string, ok bool) {
	field, isSlowdown := strings.CutPrefix(field, "slowdown_")
	if isSlowdown {
		what = " slowdown"
	}
	p = strings.TrimSuffix(field, "_s")
	if len(p) < 2 || p[0] != 'p' || strings.Trim(p[1:], "0123456789") != "" {
		return "", "", false
	}
	if p == "p999" {
		p = "p99.9"
	}
	return p, what, true
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

// where is the size of results and, if it is the lab, where they were made.
func where(r *experiment.Results) string {
	if r.On == experiment.OnSim {
		return r.Size.Name
	}
	return r.Size.Name + ", " + r.On
}

// point is a cell's place in words; "" if there is only one.
func point(s *experiment.Size, load float64, axis string) string {
	parts := []string{}
	if s.Axis != nil && axis != "" {
		parts = append(parts, axis)
	}
	if load != 0 {
		parts = append(parts, fmt.Sprintf("%g %%", load))
	}
	return strings.Join(parts, ", ")
}
