package experiment

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/loomfabric/loom/internal/measure"
	"github.com/loomfabric/loom/internal/yamlfile"
)

// A metric is a path into a result's JSON, in which the items of a list go by
// their name: fct.all.norm, queues.S1->L1.0.p99, drops.queue-full. The sum of a
// map of counters is drops.*; fct.*.norm stands for one metric of each class.

// star is the name that stands for all.
const star = "*"

var distribution = reflect.TypeFor[measure.Distribution]()

// place is where a walk through a result is.
type place struct {
	path  string
	words string   // without names
	names []string // the formats of names in the path
	unit  string   // "": see its name; "-": none
	field *reflect.StructField
	top   int // position of the field of [measure.Result]
}

// walk visits the numbers and the distributions in v. What a result's JSON form
// leaves out is not there. A map of counters has their sum under [star].
func walk(v reflect.Value, at place, visit func(place, reflect.Value)) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			walk(v.Elem(), at, visit)
		}
	case reflect.Struct:
		if v.Type() == distribution {
			visit(at, v)
		}
		for i := range v.NumField() {
			f := v.Type().Field(i)
			name, option, _ := strings.Cut(f.Tag.Get("json"), ",")
			if option == "" || !v.Field(i).IsZero() {
				walk(v.Field(i), at.in(name, &f), visit)
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			if name := v.Index(i).Field(0); name.Kind() == reflect.String {
				walk(v.Index(i), at.item(name.String(), ", %s"), visit)
			}
		}
	case reflect.Map:
		counters, sum := v.Interface().(map[string]uint64), uint64(0)
		for _, name := range slices.Sorted(maps.Keys(counters)) {
			sum += counters[name]
			visit(at.item(name, " %s"), reflect.ValueOf(counters[name]))
		}
		visit(at.item(star, " %s"), reflect.ValueOf(sum))
	default:
		if _, ok := number(v); ok {
			visit(at, v)
		}
	}
}

// in returns the place of a struct's field.
func (p place) in(name string, f *reflect.StructField) place {
	if p.field == nil {
		p.top = f.Index[0]
	}
	p.path, p.field = strings.TrimPrefix(p.path+"."+name, "."), f
	p.unit = cmp.Or(f.Tag.Get("unit"), p.unit)
	switch words := f.Tag.Get("words"); words {
	case "":
		p.words += strings.ReplaceAll(name, "_", " ") + " "
	case "-":
	default:
		p.words += words
	}
	return p
}

// item returns the place of what has a name in a list or a map.
func (p place) item(name, format string) place {
	p.path += "." + name
	p.names = append(slices.Clip(p.names), cmp.Or(p.field.Tag.Get("names"), format))
	return p
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

// Number is a metric and its value.
type Number struct {
	Metric string
	Value  float64
	Field  int // of [measure.Result]
}

// Numbers are all of a result's in the order of its fields. Sums and curves are left
// out.
func Numbers(r *measure.Result) (out []Number) {
	walk(reflect.ValueOf(r), place{}, func(at place, v reflect.Value) {
		if x, ok := number(v); ok && !strings.HasSuffix(at.path, "."+star) {
			out = append(out, Number{at.path, x, at.top})
		}
	})
	return out
}

// kind is a kind of metrics: those of one path but for the names in it.
type kind struct {
	place
	match        *regexp.Regexp // finds the names
	distribution bool
}

// kinds are all that there are, those with longer paths first: a name may have dots,
// and what a longer path takes for keys is none of it.
var kinds = sync.OnceValue(func() (out []kind) {
	full := reflect.New(reflect.TypeFor[measure.Result]()).Elem()
	fill(full)
	walk(full, place{}, func(at place, v reflect.Value) {
		out = append(out, kind{at, starred(at.path), v.Type() == distribution})
	})
	slices.SortStableFunc(out, func(a, b kind) int { return len(b.path) - len(a.path) })
	return out
})

// fill puts something everywhere, and gives all that has a name the name [star].
func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i))
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0))
	case reflect.String:
		v.SetString(star)
	case reflect.Float64, reflect.Int, reflect.Uint64:
		v.Set(reflect.ValueOf(1).Convert(v.Type()))
	}
}

// starred returns the expression that matches metrics with names for the stars.
func starred(metric string) *regexp.Regexp {
	return regexp.MustCompile("^" + strings.ReplaceAll(regexp.QuoteMeta(metric), `\.\*`, `\.(.+)`) + "$")
}

// kindOf finds a metric's kind and the names in its path.
func kindOf(metric string) (k *kind, names []string) {
	for i := range kinds() {
		k := &kinds()[i]
		if found := k.match.FindStringSubmatch(metric); found != nil {
			return k, found[1:]
		}
	}
	return nil, nil
}

// CheckMetric says what is wrong with a path that is to be a number or, if
// isDistribution, a distribution; nil if nothing is. Whether runs have the names in
// it only they can tell.
func CheckMetric(metric string, isDistribution bool) error {
	if k, _ := kindOf(metric); k != nil && k.distribution == isDistribution {
		return nil
	}
	what := "number"
	if isDistribution {
		what = "distribution"
	}
	for known := metric; known != ""; known = known[:max(strings.LastIndexByte(known, '.'), 0)] {
		if path, keys := below(known, isDistribution); keys != nil {
			return fmt.Errorf("there is no %s %q: after %s comes %s", what, metric, path, yamlfile.OrList(keys))
		}
	}
	_, keys := below("", isDistribution)
	return fmt.Errorf("there is no %s %q: it begins with %s", what, metric, yamlfile.OrList(keys))
}

// below returns the keys that can follow a part of a path, and that part with stars
// for names.
func below(part string, isDistribution bool) (path string, keys []string) {
	for _, k := range kinds() {
		all := strings.Split(k.path, ".")
		for i, key := range all {
			if up := strings.Join(all[:i], "."); k.distribution == isDistribution && starred(up).MatchString(part) {
				path, keys = up, append(keys, strings.Replace(key, star, "a name", 1))
			}
		}
	}
	slices.Sort(keys)
	return path, slices.Compact(keys)
}

// Label is a metric in words: "mean FCT, small flows".
func Label(metric string) string {
	k, names := kindOf(metric)
	if k == nil {
		return metric
	}
	label := strings.TrimRight(k.words, ", ")
	for i, name := range slices.Backward(names) {
		if name != star && name != "all" {
			label += fmt.Sprintf(k.names[i], name)
		}
	}
	return label
}

// items are the names that the * of a metric stands for in a record, and the
// metric of each.
func (rec *Record) items(metric string) (names, metrics []string) {
	match := starred(metric)
	for _, n := range Numbers(rec.Result) {
		if found := match.FindStringSubmatch(n.Metric); len(found) == 2 {
			names, metrics = append(names, found[1]), append(metrics, n.Metric)
		}
	}
	return names, metrics
}

// number finds a metric's value. counter reports whether it is a counter that the
// record has not got, but could have.
func (rec *Record) number(metric string) (v float64, ok, counter bool) {
	if rec.numbers == nil {
		rec.numbers = map[string]float64{}
		walk(reflect.ValueOf(rec.Result), place{}, func(at place, v reflect.Value) {
			if x, ok := number(v); ok {
				rec.numbers[at.path] = x
			}
		})
	}
	if v, ok := rec.numbers[metric]; ok {
		return v, true, false
	}
	for i, c := range metric {
		if c == '.' && !counter {
			_, counter = rec.numbers[metric[:i+1]+star]
		}
	}
	return 0, false, counter
}

// distribution finds a metric that is one; nil if the record has none of its name.
func (rec *Record) distribution(metric string) (d *measure.Distribution) {
	walk(reflect.ValueOf(rec.Result), place{}, func(at place, v reflect.Value) {
		if found, ok := v.Interface().(measure.Distribution); ok && at.path == metric {
			d = &found
		}
	})
	return d
}

// Unit is that of a metric's values: "s", "bit/s", "B", "%", "ns", "hops/s", or ""
// if they are counts or ratios. What has no unit of its own says it in its name.
func Unit(metric string) string {
	if k, _ := kindOf(metric); k != nil && k.unit != "" {
		return strings.Trim(k.unit, "-")
	}
	for _, u := range []struct{ suffix, unit string }{
		{"hops_per_s", "hops/s"}, {"_bps", "bit/s"}, {"_ns", "ns"}, {"_s", "s"}, {"bytes", "B"}, {"percent", "%"},
	} {
		if strings.HasSuffix(metric, u.suffix) {
			return u.unit
		}
	}
	return ""
}
