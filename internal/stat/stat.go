// Package stat knows the types that count. Such a type, in any package, is a struct
// of numbers, spans of time, histograms, and structs and arrays of these. The tags of
// its fields are the one table of their names, meanings and units, which the metrics,
// the admin API, loomctl and the simulator's results read ([TableOf]); [Add] adds such
// structs up.
package stat

import (
	"fmt"
	"reflect"
	"strings"
)

// Amount is a number of frames and the sum of their lengths.
type Amount struct {
	Frames uint64 `help:"Frames %s." unit:"frames"`
	Bytes  uint64 `help:"Bytes of frames %s." unit:"bytes"`
}

// Add counts one frame of n bytes.
func (a *Amount) Add(n uint32) {
	a.Frames++
	a.Bytes += uint64(n)
}

// Add adds what src counted to dst; of fields with the option max the greater value
// stays. Both point to structs of one type; anything else is a programming error and
// panics. It is not for the path of a packet.
func Add(dst, src any) {
	d, s := reflect.ValueOf(dst), reflect.ValueOf(src)
	if d.Type() != s.Type() || d.Kind() != reflect.Pointer {
		panic(fmt.Sprintf("stat: add %T to %T", src, dst))
	}
	add(d.Elem(), s.Elem(), false)
}

func add(d, s reflect.Value, peak bool) {
	switch {
	case d.Kind() == reflect.Struct:
		for i := range d.NumField() {
			if f := d.Type().Field(i); f.IsExported() {
				_, options, _ := strings.Cut(f.Tag.Get(tagName), ",")
				add(d.Field(i), s.Field(i), hasOption(options, optionMax))
			}
		}
	case d.Kind() == reflect.Array:
		for i := range d.Len() {
			add(d.Index(i), s.Index(i), peak)
		}
	case d.CanUint():
		d.SetUint(sum(d.Uint(), s.Uint(), peak))
	case d.CanInt():
		d.SetInt(sum(d.Int(), s.Int(), peak))
	case d.CanFloat():
		d.SetFloat(sum(d.Float(), s.Float(), peak))
	default:
		panic(fmt.Sprintf("stat: %v cannot be added up", d.Type()))
	}
}

func sum[T uint64 | int64 | float64](a, b T, peak bool) T {
	if peak {
		return max(a, b)
	}
	return a + b
}

// Clone returns a pointer to a copy of what src, a pointer to a struct of counters,
// points to.
func Clone(src any) any {
	c := reflect.New(reflect.TypeOf(src).Elem())
	c.Elem().Set(reflect.ValueOf(src).Elem())
	return c.Interface()
}
