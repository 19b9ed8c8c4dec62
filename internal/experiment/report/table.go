package report

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/loomfabric/loom/internal/experiment"
	"github.com/loomfabric/loom/internal/spread"
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
func Tables(r *experiment.Results) (out []Table) {
	columns := r.Size.Experiment.Table
	if len(columns) == 0 {
		for _, p := range r.Size.Experiment.Plots {
			if p.X != experiment.XCDF && p.X != experiment.XItems {
				columns = append(columns, experiment.Column{Metric: p.Y})
			}
		}
	}
	for _, c := range columns {
		if !strings.Contains(c.Metric, ".*.") {
			out = append(out, table(r, c)...)
			continue
		}
		_, metrics := r.Items(c.Metric, r.Size.LoadPoints()[0], r.Size.Points()[0])
		for _, m := range metrics {
			out = append(out, table(r, experiment.Column{Metric: m, Plain: c.Plain})...)
		}
	}
	if len(r.Size.LoadPoints())*len(r.Size.Points()) == 1 {
		return oneTable(out)
	}
	return out
}

// oneTable brings tables of a row each together.
func oneTable(tables []Table) []Table {
	if len(tables) == 0 {
		return nil
	}
	all := Table{Label: tables[0].Rows[0].Label, Schemes: tables[0].Schemes}
	for _, t := range tables {
		all.Rows = append(all.Rows, Row{t.Label, t.Rows[0].Cells})
	}
	return []Table{all}
}

// table is of one metric; none if no run has it.
func table(r *experiment.Results, c experiment.Column) []Table {
	size := r.Size
	t := Table{Label: c.Label, Schemes: size.Schemes}
	if t.Label == "" {
		t.Label = label(c.Metric)
	}
	greatest, values := 0.0, map[experiment.Cell]spread.Spread{}
	for _, axis := range size.Points() {
		for _, load := range size.LoadPoints() {
			for _, scheme := range size.Schemes {
				cell := experiment.Cell{Scheme: scheme, Load: load, Axis: axis}
				if v := r.Spread(c.Metric, cell); v.N > 0 {
					values[cell] = v
					greatest = max(greatest, v.Mean)
				}
			}
		}
	}
	if len(values) == 0 {
		return nil
	}
	sc := scaleFor(c.Metric, greatest)
	t.Label = withUnit(t.Label, sc.unit)
	for _, axis := range size.Points() {
		for _, load := range size.LoadPoints() {
			row := Row{Label: point(size, load, axis)}
			for _, scheme := range size.Schemes {
				cell := experiment.Cell{Scheme: scheme, Load: load, Axis: axis}
				row.Cells = append(row.Cells, cellText(r, c, cell, values[cell], sc))
			}
			t.Rows = append(t.Rows, row)
		}
	}
	return []Table{t}
}

func cellText(r *experiment.Results, c experiment.Column, cell experiment.Cell, v spread.Spread, sc scale) string {
	text := spreadText(v, sc)
	if v.N > 0 && v.N < len(r.Size.Seeds) {
		text += fmt.Sprintf(" [%d of %d seeds]", v.N, len(r.Size.Seeds))
	}
	reference := r.Size.Experiment.Reference
	if c.Plain || cell.Scheme == reference {
		return text
	}
	if ratio := r.Relative(c.Metric, cell, reference); ratio.N > 0 {
		text += " ×" + short(ratio.Mean)
	}
	return text
}

// Text writes tables, expectations and warnings for a terminal.
func Text(w io.Writer, r *experiment.Results) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, legend(r))
	for _, t := range Tables(r) {
		fmt.Fprintf(tw, "\n%s\t%s\n", t.Label, strings.Join(t.Schemes, "\t"))
		for _, row := range t.Rows {
			fmt.Fprintf(tw, "  %s\t%s\n", row.Label, strings.Join(row.Cells, "\t"))
		}
	}
	if outcomes := r.Outcomes(); len(outcomes) > 0 {
		fmt.Fprintln(tw)
		for i := range outcomes {
			fmt.Fprintln(tw, outcomeText(&outcomes[i]))
		}
	}
	for _, warning := range Warnings(r) {
		fmt.Fprintln(tw, "note:", warning)
	}
	return tw.Flush()
}

// legend says what the cells are.
func legend(r *experiment.Results) string {
	text := fmt.Sprintf("%s, size %s: mean", r.Size.Experiment.Name, where(r))
	if n := len(r.Size.Seeds); n > 1 {
		text = fmt.Sprintf("%s ±95 %% interval (least–greatest) of %d seeds", text, n)
	}
	if len(r.Size.Schemes) > 1 {
		text += ", ×ratio to " + r.Size.Experiment.Reference + " seed by seed"
	}
	return text
}

// outcomeText is an expectation and what became of it, in one line.
func outcomeText(o *experiment.Outcome) string {
	verdict := "does not hold"
	switch {
	case o.Spread.N == 0:
		verdict = "cannot be told"
	case o.Holds:
		verdict = "holds"
	}
	return fmt.Sprintf("%s: %s: %s", verdict, o.Claim(), found(o))
}

// found is what an expectation's value came to.
func found(o *experiment.Outcome) string {
	if o.Spread.N == 0 {
		return "no run has it"
	}
	if o.Expectation.Versus != "" {
		return spreadText(o.Spread, scale{1, ""})
	}
	return spreadText(o.Spread, scale{1, ""}) + unitSuffix(o.Expectation.Metric)
}

func unitSuffix(metric string) string {
	if u := experiment.Unit(metric); u != "" {
		return " " + u
	}
	return ""
}

// Warnings are what a reader of the numbers has to know besides: what is missing,
// and runs that did not end as they should.
func Warnings(r *experiment.Results) (out []string) {
	if n := len(r.Records) - r.Stored(); n > 0 {
		out = append(out, fmt.Sprintf("%d of %d runs are not stored", n, len(r.Records)))
	}
	if r.Stale > 0 {
		out = append(out, fmt.Sprintf("%d stored runs are of another model, for the experiment was changed since: they are not shown", r.Stale))
	}
	if len(r.Versions) > 1 {
		out = append(out, "the runs were made by different versions of the program: "+strings.Join(r.Versions, ", "))
	}
	size := r.Size
	for _, axis := range size.Points() {
		for _, load := range size.LoadPoints() {
			for _, scheme := range size.Schemes {
				where := strings.TrimSuffix(scheme+" at "+point(size, load, axis), " at ")
				flows, unfinished, stuck := 0, 0, 0
				for _, res := range r.Results(experiment.Cell{Scheme: scheme, Load: load, Axis: axis}) {
					flows, unfinished = flows+res.Flows, unfinished+res.Unfinished
					if res.End == "stuck" {
						stuck++
					}
					if c := res.Conservation; c.Made != c.Delivered+c.Dropped+c.InFlight {
						out = append(out, fmt.Sprintf("%s, seed %d: packets are lost or made without account (%+v)", where, res.Seed, c))
					}
				}
				if unfinished > 0 {
					out = append(out, fmt.Sprintf("%s: %d of %d flows did not finish, and count with their age", where, unfinished, flows))
				}
				if stuck > 0 {
					out = append(out, fmt.Sprintf("%s: %d runs got stuck, nothing moving although something waited", where, stuck))
				}
			}
		}
	}
	return out
}
