package report

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/loomfabric/loom/internal/experiment"
)

// Table is one metric, a row a point; or, if there is one point only, that one, a
// row a metric. Schemes are its columns.
type Table struct {
	Label   string // the metric with its unit, or the point
	Schemes []string
	Rows    []Row
}

// Row is one point of load and axis, or one metric.
type Row struct {
	Label string
	Cells []string // mean (least–greatest) ×ratio to the reference
}

// Tables are the experiment's, as stored; the metrics of its plots if it names none. What no run
// has a value for is left out.
func (s section) Tables() (out []Table) {
	columns := s.Exp().Table
	if len(columns) == 0 {
		for _, p := range s.Exp().Plots {
			if p.X != experiment.XCDF && p.X != experiment.XItems {
				columns = append(columns, experiment.Column{Metric: p.Y})
			}
		}
	}
	points := s.Size.Cells()
	for _, c := range columns {
		if !strings.Contains(c.Metric, ".*.") {
			out = s.addTable(out, c)
			continue
		}
		_, metrics := s.Items(c.Metric, points[0])
		for _, m := range metrics {
			out = s.addTable(out, experiment.Column{Metric: m, Plain: c.Plain})
		}
	}
	if len(points) > 1 || len(out) == 0 {
		return out
	}
	all := Table{Label: points[0].Place(), Schemes: s.Size.Schemes}
	for _, t := range out {
		all.Rows = append(all.Rows, Row{t.Label, t.Rows[0].Cells})
	}
	return []Table{all}
}

// addTable adds the table of one metric, if any run has it.
func (s section) addTable(tables []Table, c experiment.Column) []Table {
	greatest, found := 0.0, false
	for _, cell := range s.Size.Cells() {
		for _, cell.Scheme = range s.Size.Schemes {
			v := s.Spread(c.Metric, cell)
			greatest, found = max(greatest, v.Mean), found || v.N > 0
		}
	}
	if !found {
		return tables
	}
	sc := scaleFor(c.Metric, greatest)
	t := Table{Label: withUnit(cmp.Or(c.Label, experiment.Label(c.Metric)), sc.unit), Schemes: s.Size.Schemes}
	for _, cell := range s.Size.Cells() {
		row := Row{Label: cell.Place()}
		for _, cell.Scheme = range s.Size.Schemes {
			row.Cells = append(row.Cells, s.cell(c, cell, sc))
		}
		t.Rows = append(t.Rows, row)
	}
	return append(tables, t)
}

// cell is the text of one cell.
func (s section) cell(c experiment.Column, cell experiment.Cell, sc scale) string {
	v := s.Spread(c.Metric, cell)
	text := spreadText(v, sc)
	if v.N > 0 && v.N < len(s.Size.Seeds) {
		text += fmt.Sprintf(" [%d of %d seeds]", v.N, len(s.Size.Seeds))
	}
	reference := s.Exp().Reference
	if c.Plain || cell.Scheme == reference {
		return text
	}
	if ratio := s.Relative(c.Metric, cell, reference); ratio.N > 0 {
		text += " ×" + short(ratio.Mean)
	}
	return text
}
