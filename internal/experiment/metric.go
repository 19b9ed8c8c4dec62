package experiment

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/loomfabric/loom/internal/measure"
)

// A metric is a path into a result's JSON, in which the items of a list go by
// their name: fct.all.norm, queues.S1->L1.0.p99, drops.queue-full. The sum of a
// map of counters is drops.*; fct.*.norm stands for one metric of each class.

// star is the name that stands for all.
const star = "*"

var distribution = reflect.TypeFor[measure.Distribution]()

// lookup finds a metric's value. ok is false if the result does not have it; zero
// says that it is a counter that nothing was counted under.
func lookup(r *measure.Result, metric string) (v float64, ok, zero bool) {
	found, zero := find(reflect.ValueOf(r), metric)
	if !found.IsValid() {
		return 0, false, zero
	}
	v, ok = number(found)
	return v, ok, false
}

// Distribution finds one: imbalance.all, queues.S1->L1.0; nil if the result has
// none of that name.
func Distribution(r *measure.Result, metric string) *measure.Distribution {
	found, _ := find(reflect.ValueOf(r), metric)
	if !found.IsValid() || found.Type() != distribution {
		return nil
	}
	d := found.Interface().(measure.Distribution)
	return &d
}

// find walks down; invalid if there is nothing, and absent if that is because a
// counter is not in its map.
func find(v reflect.Value, path string) (found reflect.Value, absent bool) {
	if v.Kind() == reflect.Pointer {
		if v = v.Elem(); !v.IsValid() {
			return v, false
		}
	}
	if path == "" {
		return v, false
	}
	switch v.Kind() {
	case reflect.Struct:
		name, rest, _ := strings.Cut(path, ".")
		if f, ok := fieldOf(v.Type(), name); ok {
			if field := v.FieldByIndex(f.Index); measured(f, field) {
				return find(field, rest)
			}
		}
	case reflect.Slice:
		best, rest := -1, ""
		for i, name := range itemNames(v) {
			if tail, ok := strings.CutPrefix(path, name); ok && (tail == "" || tail[0] == '.') && (best < 0 || len(tail) < len(rest)) {
				best, rest = i, tail
			}
		}
		if best >= 0 {
			return find(v.Index(best), strings.TrimPrefix(rest, "."))
		}
	case reflect.Map:
		if path == star {
			return sum(v), false
		}
		found := v.MapIndex(reflect.ValueOf(path))
		return found, !found.IsValid()
	}
	return reflect.Value{}, false
}

// sum adds up a map of counters.
func sum(m reflect.Value) reflect.Value {
	var total uint64
	for it := m.MapRange(); it.Next(); {
		total += it.Value().Uint()
	}
	return reflect.ValueOf(total)
}

func number(v reflect.Value) (float64, bool) {
	switch {
	case v.CanFloat():
		return v.Float(), true
	case v.CanInt():
		return float64(v.Int()), true
	case v.CanUint():
		return float64(v.Uint()), true
	}
	return 0, false
}

// fieldOf finds a struct's field by its name in JSON.
func fieldOf(t reflect.Type, name string) (reflect.StructField, bool) {
	for i := range t.NumField() {
		if f := t.Field(i); jsonName(f) == name && name != "" {
			return f, true
		}
	}
	return reflect.StructField{}, false
}

// measured tells whether a field is there: what the JSON form leaves out is not.
func measured(f reflect.StructField, v reflect.Value) bool {
	return !strings.HasSuffix(f.Tag.Get("json"), ",omitempty") || !v.IsZero()
}

func jsonName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name
}

// nameField is the field that names a list's items: the first, if it is a string.
func nameField(t reflect.Type) bool {
	return t.Kind() == reflect.Struct && t.NumField() > 0 && t.Field(0).Type.Kind() == reflect.String
}

func itemNames(list reflect.Value) []string {
	if !nameField(list.Type().Elem()) {
		return nil
	}
	names := make([]string, list.Len())
	for i := range names {
		names[i] = list.Index(i).Field(0).String()
	}
	return names
}

// CheckMetric says what is wrong with a path that is to be a number or, if
// isDistribution, a distribution; nil if nothing is. Whether runs have the names in
// it only they can tell.
func CheckMetric(metric string, isDistribution bool) error {
	t, err := typeOf(reflect.TypeFor[measure.Result](), metric)
	if err != nil {
		return fmt.Errorf("%q: %w", metric, err)
	}
	isNumber := t.Kind() != reflect.String && t.Kind() != reflect.Struct && t.Kind() != reflect.Slice && t.Kind() != reflect.Map
	switch {
	case isDistribution && t != distribution:
		return fmt.Errorf("%q is not a distribution: write for instance imbalance.all", metric)
	case !isDistribution && !isNumber:
		return fmt.Errorf("%q is not a number: go on to one, as in fct.all.norm", metric)
	}
	return nil
}

func typeOf(t reflect.Type, path string) (reflect.Type, error) {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if path == "" {
		return t, nil
	}
	switch t.Kind() {
	case reflect.Struct:
		name, rest, _ := strings.Cut(path, ".")
		f, ok := fieldOf(t, name)
		if !ok {
			return nil, fmt.Errorf("there is no %q, only %s", name, strings.Join(fieldNames(t), ", "))
		}
		return typeOf(f.Type, rest)
	case reflect.Slice:
		if !nameField(t.Elem()) {
			return nil, fmt.Errorf("%q: a list without names", path)
		}
		// Where the name ends is open: it may have dots.
		for at := 0; at < len(path); at++ {
			if path[at] == '.' && at > 0 {
				if found, err := typeOf(t.Elem(), path[at+1:]); err == nil {
					return found, nil
				}
			}
		}
		if last := strings.LastIndexByte(path, '.'); last > 0 {
			if _, err := typeOf(t.Elem(), path[last+1:]); t.Elem() != distribution {
				return nil, err
			}
		}
		return t.Elem(), nil
	case reflect.Map:
		return t.Elem(), nil
	}
	return nil, fmt.Errorf("nothing is below it, so no %q", path)
}

func fieldNames(t reflect.Type) (names []string) {
	for i := range t.NumField() {
		names = append(names, jsonName(t.Field(i)))
	}
	return names
}

// items are the names that the * of a metric stands for in a result, and the
// metric of each.
func items(r *measure.Result, metric string) (names, metrics []string) {
	before, after, ok := strings.Cut(metric, "."+star)
	if !ok {
		return nil, nil
	}
	v, _ := find(reflect.ValueOf(r), before)
	if !v.IsValid() {
		return nil, nil
	}
	switch v.Kind() {
	case reflect.Slice:
		names = itemNames(v)
	case reflect.Map:
		for _, k := range v.MapKeys() {
			names = append(names, k.String())
		}
		slices.Sort(names)
	}
	for _, name := range names {
		metrics = append(metrics, before+"."+name+after)
	}
	return names, metrics
}

// Number is a metric and its value.
type Number struct {
	Metric string
	Value  float64
}

// Numbers are all of a result's, by the fields of [measure.Result]: those of one are
// together, in its order. Curves are left out.
func Numbers(r *measure.Result) [][]Number {
	v := reflect.ValueOf(r).Elem()
	out := make([][]Number, v.NumField())
	for i := range out {
		flatten(v.Field(i), jsonName(v.Type().Field(i)), &out[i])
	}
	return out
}

func flatten(v reflect.Value, path string, out *[]Number) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			flatten(v.Elem(), path, out)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); measured(f, v.Field(i)) {
				flatten(v.Field(i), path+"."+jsonName(f), out)
			}
		}
	case reflect.Slice:
		for i, name := range itemNames(v) {
			flatten(v.Index(i), path+"."+name, out)
		}
	case reflect.Map:
		keys := v.MapKeys()
		slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
		for _, k := range keys {
			flatten(v.MapIndex(k), path+"."+k.String(), out)
		}
	default:
		if x, ok := number(v); ok {
			*out = append(*out, Number{path, x})
		}
	}
}

// Unit is that of a metric's values: "s", "bit/s", "B", "%", "ns", "hops/s", or ""
// if they are counts or ratios.
func Unit(metric string) string {
	parts := strings.Split(metric, ".")
	if len(parts) > 1 && (parts[0] == "queues" || parts[0] == "conweave" && parts[1] == "bytes") && parts[len(parts)-1] != "n" {
		return "B"
	}
	last := parts[len(parts)-1]
	if len(parts) > 2 && strings.HasSuffix(parts[1], "_ns") && last != "n" {
		return "ns"
	}
	for _, u := range []struct{ suffix, unit string }{
		{"hops_per_s", "hops/s"}, {"_bps", "bit/s"}, {"_ns", "ns"}, {"_s", "s"}, {"bytes", "B"}, {"percent", "%"},
	} {
		if strings.HasSuffix(last, u.suffix) {
			return u.unit
		}
	}
	if len(parts) > 2 && parts[1] == "control_bytes" {
		return "B"
	}
	return ""
}
