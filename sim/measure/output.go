package measure

import (
	"encoding/csv"
	"fmt"
	"io"
	"math"
	"reflect"
	"strconv"
	"strings"
)

// Number is a figure that may be missing: NaN and infinities are null in JSON
// and empty in CSV.
type Number float64

// MarshalJSON writes the shortest text that reads back as the same number.
func (n Number) MarshalJSON() ([]byte, error) {
	if !n.Known() {
		return []byte("null"), nil
	}
	return strconv.AppendFloat(nil, float64(n), 'g', -1, 64), nil
}

// UnmarshalJSON reads a number or null.
func (n *Number) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		*n = Number(math.NaN())
		return nil
	}
	v, err := strconv.ParseFloat(string(b), 64)
	if err != nil {
		return fmt.Errorf("a figure must be a number or null: %w", err)
	}
	*n = Number(v)
	return nil
}

// Known reports whether there is such a figure.
func (n Number) Known() bool { return !math.IsNaN(float64(n)) && !math.IsInf(float64(n), 0) }

// Columns returns the names of a summary's fields, in their order: those of its
// JSON form, an inner struct's behind its own name and a dot.
func Columns(v any) []string {
	var names []string
	walk(reflect.ValueOf(v), "", func(name string, _ reflect.Value) { names = append(names, name) })
	return names
}

// Row returns the values of a summary's fields as text, in the same order.
func Row(v any) []string {
	var row []string
	walk(reflect.ValueOf(v), "", func(_ string, f reflect.Value) { row = append(row, text(f)) })
	return row
}

func walk(v reflect.Value, prefix string, yield func(name string, f reflect.Value)) {
	t := v.Type()
	for i := range t.NumField() {
		field := t.Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case field.Type.Kind() == reflect.Struct && field.Anonymous && name == "":
			walk(v.Field(i), prefix, yield)
		case !field.IsExported() || name == "-":
		case field.Type.Kind() == reflect.Struct:
			walk(v.Field(i), prefix+name+".", yield)
		default:
			if name == "" {
				name = field.Name
			}
			yield(prefix+name, v.Field(i))
		}
	}
}

func text(f reflect.Value) string {
	switch f.Kind() {
	case reflect.String:
		return f.String()
	case reflect.Bool:
		return strconv.FormatBool(f.Bool())
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return strconv.FormatInt(f.Int(), 10)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return strconv.FormatUint(f.Uint(), 10)
	case reflect.Float32, reflect.Float64:
		if !Number(f.Float()).Known() {
			return ""
		}
		return strconv.FormatFloat(f.Float(), 'g', -1, 64)
	}
	panic(fmt.Sprintf("measure: a column of type %v has no text", f.Type()))
}

// WriteCSV writes summaries of one type, a line each, under a header.
func WriteCSV[T any](w io.Writer, rows []T) error {
	out := csv.NewWriter(w)
	var zero T
	if err := out.Write(Columns(zero)); err != nil {
		return fmt.Errorf("writing a CSV: %w", err)
	}
	for _, r := range rows {
		if err := out.Write(Row(r)); err != nil {
			return fmt.Errorf("writing a CSV: %w", err)
		}
	}
	out.Flush()
	if err := out.Error(); err != nil {
		return fmt.Errorf("writing a CSV: %w", err)
	}
	return nil
}

// ValueSummary is [Values] in numbers, in the unit of what was added.
type ValueSummary struct {
	Count uint64 `json:"count"`
	Mean  Number `json:"mean"`
	Stdev Number `json:"stdev"`
	Min   Number `json:"min"`
	P50   Number `json:"p50"`
	P90   Number `json:"p90"`
	P95   Number `json:"p95"`
	P99   Number `json:"p99"`
	P999  Number `json:"p999"`
	Max   Number `json:"max"`
}

// Summary returns the numbers.
func (s *Values) Summary() ValueSummary {
	q := func(p float64) Number { return Number(s.Quantile(p)) }
	return ValueSummary{
		s.Count(), Number(s.Mean()), Number(s.Stdev()), Number(s.Min()),
		q(0.5), q(0.9), q(0.95), q(0.99), q(0.999), Number(s.Max()),
	}
}
