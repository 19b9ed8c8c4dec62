package stat

import (
	"fmt"
	"iter"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"
)

// The tags of a field. All of them may be left out.
//
//   - `stat:"name"`: the name in JSON and in results; else the field's name with
//     underscores. `stat:"flushes{cause=expiry}"` makes the field one of a family that
//     a label tells apart. The fields of a struct inside have its name before theirs.
//   - `stat:"name,gauge"`: the value can fall. `,max`: it is a peak, so of two workers'
//     values the greater counts. `,counter`: times in it add up. `,seen`: it is shown once it is not 0. `,inline`: a
//     struct inside gives its fields no name. `stat:"-"`: the field is not in the table.
//   - `help:"..."`: one sentence. In a family it stands at the first field. %s is where
//     the help of the struct around belongs.
//   - `about:"..."`: one sentence about the label's value.
//   - `unit:"frames"`, bytes or seconds, which ends the metric's name.
//   - `metric:"name"`: the metric's name, where it is not the field's.
//     `metric:"loom_name"` is complete but for unit and _total. `metric:"-"`: it is in
//     answers and results, and no metric.
//
// The tag of a blank field names the struct itself, and begins the names of its
// metrics: a blank field with `stat:"reorder"` makes them loom_reorder_*.
const (
	tagName = "stat"

	optionGauge   = "gauge"
	optionMax     = "max"
	optionCounter = "counter"
	optionSeen    = "seen"
	optionInline  = "inline"
)

// Prefix begins the names of all metrics.
const Prefix = "loom_"

// Kind says how a field changes.
type Kind uint8

// The kinds.
const (
	Counter Kind = iota // only grows
	Gauge
	Times // a histogram of spans of time
	Depth // a histogram of sizes, see [Sizes]
)

// Histogram is what a field of kind [Times] points to.
type Histogram interface {
	Quantile(q float64) time.Duration
}

// Indexed is an array whose places have names. Index returns the label that tells
// them apart, and the name of the i-th; "" if it is not in the table.
type Indexed interface {
	Index(i int) (label, value string)
}

// Field is a row of a table.
type Field struct {
	Name         string // the same for all fields of a family
	Label, Value string // of a field of a family
	Metric       string // complete; "": there is none
	Help         string
	About        string // what Value means
	Unit         string
	Kind         Kind
	Seen         bool // shown once it is not 0
	adds         bool // a time that only grows
	unmetered    bool
	path         []int
}

// Table is what the tags of a type say, in the order of its fields.
type Table struct {
	Name   string
	Fields []Field
}

type tableKey struct {
	t    reflect.Type
	name string
}

var tables sync.Map // of *Table by tableKey

// TableOf returns the table of the struct that v points to. name is the table's if
// the type does not say one. A type that makes no table is a programming error and
// panics.
func TableOf(v any, name string) *Table {
	k := tableKey{reflect.TypeOf(v).Elem(), name}
	if t, ok := tables.Load(k); ok {
		return t.(*Table)
	}
	b := builder{Table{Name: name}}
	if own := ownName(k.t); own != "" {
		b.Name = own
	}
	b.structure(k.t, place{table: b.Name})
	t, _ := tables.LoadOrStore(k, &b.Table)
	return t.(*Table)
}

// builder makes a table by walking through a type.
type builder struct{ Table }

// place is where the builder is.
type place struct {
	Field
	table, metric string
	path          []int
}

func (b *builder) structure(t reflect.Type, at place) {
	for i := range t.NumField() {
		f := t.Field(i)
		if name, _, _ := strings.Cut(f.Tag.Get(tagName), ","); !f.IsExported() || name == "-" {
			continue
		}
		b.value(f.Type, at.inside(&f, i))
	}
}

// inside returns the place of a field of the struct at p.
func (p place) inside(f *reflect.StructField, i int) place {
	p.path = append(slices.Clip(p.path), i)
	name, options, _ := strings.Cut(f.Tag.Get(tagName), ",")
	name, label, _ := strings.Cut(name, "{")
	if name == "" && !f.Anonymous && !hasOption(options, optionInline) {
		name = snake(f.Name)
	}
	metric := f.Tag.Get("metric")
	p.unmetered = p.unmetered || metric == "-"
	if metric == "" || metric == "-" {
		metric = name
	}
	p.Name = join(p.Name, name)
	if p.metric = join(p.metric, metric); strings.HasPrefix(metric, Prefix) {
		p.metric = metric
	}
	if label != "" {
		p.Label, p.Value, _ = strings.Cut(strings.TrimSuffix(label, "}"), "=")
	}
	if help := f.Tag.Get("help"); help != "" {
		p.Help = strings.ReplaceAll(help, "%s", p.Help)
	}
	if about := f.Tag.Get("about"); about != "" {
		p.About = about
	}
	if unit := f.Tag.Get("unit"); unit != "" {
		p.Unit = unit
	}
	if hasOption(options, optionGauge) || hasOption(options, optionMax) {
		p.Kind = Gauge
	}
	p.Seen = p.Seen || hasOption(options, optionSeen)
	p.adds = p.adds || hasOption(options, optionCounter)
	return p
}

var (
	durationType = reflect.TypeFor[time.Duration]()
	timeType     = reflect.TypeFor[time.Time]()
	sizesType    = reflect.TypeFor[Sizes]()
)

// value enters what is at a place of a type: a row, or several. Types that do not
// count, such as names and lists, have none.
func (b *builder) value(t reflect.Type, at place) {
	switch {
	case reflect.PointerTo(t).Implements(reflect.TypeFor[Histogram]()):
		at.Kind = Times
		b.row(at)
	case t == sizesType:
		at.Kind = Depth
		b.row(at)
	case t == durationType || t == timeType:
		if at.Unit = "seconds"; !at.adds {
			at.Kind = Gauge
		}
		b.row(at)
	case t.Kind() == reflect.Struct:
		if own := ownName(t); own != "" {
			at.table, at.Name, at.metric = own, "", ""
		}
		b.structure(t, at)
	case t.Kind() == reflect.Array:
		b.array(t, at)
	case t.Kind() == reflect.Bool || t.Kind() == reflect.Uint8 || t.Kind() == reflect.Float64:
		at.Kind = Gauge
		b.row(at)
	case reflect.Zero(t).CanInt() || reflect.Zero(t).CanUint():
		b.row(at)
	}
}

func (b *builder) array(t reflect.Type, at place) {
	names, ok := reflect.Zero(t).Interface().(Indexed)
	if !ok {
		panic(fmt.Sprintf("stat: %s: the places of %v have no names: give it a method Index", at.Name, t))
	}
	path := slices.Clip(at.path)
	for i := range t.Len() {
		if at.Label, at.Value = names.Index(i); at.Value != "" {
			at.path = append(path, i)
			b.value(t.Elem(), at)
		}
	}
}

func (b *builder) row(at place) {
	f := at.Field
	f.path = at.path
	f.Metric = at.metric
	if !strings.HasPrefix(f.Metric, Prefix) {
		f.Metric = Prefix + join(at.table, f.Metric)
	}
	switch f.Kind {
	case Times:
		f.Unit = "seconds"
		f.Metric += "_seconds"
	default:
		if f.Unit != "" && !strings.Contains(f.Metric+"_", "_"+f.Unit+"_") {
			f.Metric += "_" + f.Unit
		}
	}
	if f.Kind == Counter {
		f.Metric += "_total"
	}
	if f.unmetered {
		f.Metric = ""
	}
	for i := range b.Fields {
		o := &b.Fields[i]
		if o.Name == f.Name && o.Value == f.Value {
			panic(fmt.Sprintf("stat: table %s has %s twice", b.Name, f.Key()))
		}
		if o.Metric == f.Metric && f.Metric != "" && f.Help == "" {
			f.Help = o.Help
		}
	}
	b.Fields = append(b.Fields, f)
}

// Key is the name of the row in a flat list: "flushes_expiry".
func (f *Field) Key() string { return join(f.Name, strings.ToLower(f.Value)) }

// of returns the field of the struct that v points to.
func (f *Field) of(v any) reflect.Value {
	x := reflect.ValueOf(v).Elem()
	for _, i := range f.path {
		if x.Kind() == reflect.Array {
			x = x.Index(i)
		} else {
			x = x.Field(i)
		}
	}
	return x
}

// Count returns the value of the field in the struct that v points to; 0 if it is
// no whole number.
func (f *Field) Count(v any) uint64 {
	switch x := f.of(v); {
	case x.CanUint():
		return x.Uint()
	case x.CanInt():
		return uint64(max(x.Int(), 0))
	}
	return 0
}

// Number returns the value of the field in the struct that v points to: of times in
// seconds, of points in time since 1970, of bools 1 for true.
func (f *Field) Number(v any) float64 {
	x := f.of(v)
	switch t := x.Interface().(type) {
	case time.Duration:
		return t.Seconds()
	case time.Time:
		if t.IsZero() {
			return 0
		}
		return float64(t.UnixNano()) / 1e9
	case bool:
		if t {
			return 1
		}
		return 0
	}
	if x.CanFloat() {
		return x.Float()
	}
	return float64(f.Count(v))
}

// Pointer returns a pointer to the field in the struct that v points to.
func (f *Field) Pointer(v any) any { return f.of(v).Addr().Interface() }

// Counters lists the whole numbers in the struct that v points to, by [Field.Key].
func Counters(v any) iter.Seq2[string, uint64] {
	return func(yield func(string, uint64) bool) {
		t := TableOf(v, "")
		for i := range t.Fields {
			f := &t.Fields[i]
			if x := f.of(v); (x.CanUint() || x.CanInt()) && !yield(f.Key(), f.Count(v)) {
				return
			}
		}
	}
}

// ownName returns what the blank field of a struct says.
func ownName(t reflect.Type) string {
	if t.Kind() == reflect.Struct && t.NumField() > 0 && t.Field(0).Name == "_" {
		return t.Field(0).Tag.Get(tagName)
	}
	return ""
}

func hasOption(options, option string) bool {
	return slices.Contains(strings.Split(options, ","), option)
}

func join(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + "_" + b
}

// snake writes LateReplies as late_replies and FDBMoved as fdb_moved.
func snake(name string) string {
	var b strings.Builder
	r := []rune(name)
	for i, c := range r {
		if unicode.IsUpper(c) && i > 0 && (unicode.IsLower(r[i-1]) || i+1 < len(r) && unicode.IsLower(r[i+1])) {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(c))
	}
	return b.String()
}
