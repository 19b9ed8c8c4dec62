package report

import (
	"encoding/csv"
	"io"
	"slices"
	"strconv"

	"github.com/loomfabric/loom/internal/experiment"
)

// csvHead are the columns that every file has, first and in this order. After them
// come the numbers, each under its metric's path and in the order of measure.Result's
// fields; what some runs lack is empty.
var csvHead = []string{"experiment", "size", "id", "scheme", "load_percent", "axis", "seed", "version", "hash", "end"}

// CSV writes one row for each stored run of all results.
func CSV(out io.Writer, all []*experiment.Results) error {
	columns := csvColumns(all)
	w := csv.NewWriter(out)
	if err := w.Write(append(slices.Clone(csvHead), columns...)); err != nil {
		return err
	}
	for _, r := range all {
		for _, rec := range r.Records {
			if rec == nil {
				continue
			}
			row := []string{rec.Experiment, rec.Size, rec.ID, rec.Scheme, number(rec.Load), rec.Axis,
				strconv.FormatUint(rec.Seed, 10), rec.Version, rec.Hash, rec.Result.End}
			values := map[string]string{}
			for _, n := range experiment.Numbers(rec.Result) {
				values[n.Metric] = number(n.Value)
			}
			for _, c := range columns {
				row = append(row, values[c])
			}
			if err := w.Write(row); err != nil {
				return err
			}
		}
	}
	w.Flush()
	return w.Error()
}

// csvColumns are the metrics of all runs: field by field, so that what some runs
// have more stands with its kind. The runs' own columns have load and seed already.
func csvColumns(all []*experiment.Results) (columns []string) {
	field := map[string]int{"load": 0, "seed": 0}
	for _, r := range all {
		for _, rec := range r.Records {
			if rec == nil {
				continue
			}
			for _, n := range experiment.Numbers(rec.Result) {
				if _, seen := field[n.Metric]; !seen {
					field[n.Metric] = n.Field
					columns = append(columns, n.Metric)
				}
			}
		}
	}
	slices.SortStableFunc(columns, func(a, b string) int { return field[a] - field[b] })
	return columns
}

func number(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }
