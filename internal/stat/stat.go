// Package stat adds up counters. Types that count, in any package, are structs of
// uint64s, ints, time spans, and of structs and arrays of these; how a field is
// added up, named and explained stands in its tag, once.
package stat

import (
	"fmt"
	"reflect"
	"strings"
)

// The tag of a field is `stat:"name,option"`. Option max says that the greater of
// two values counts, not their sum: the peaks of two workers need not have come at
// one time.
const (
	tag       = "stat"
	optionMax = "max"
)

// Add adds what src counted to dst. Both point to structs of one type; anything
// else is a programming error and panics. It is not for the path of a packet.
func Add(dst, src any) {
	d, s := reflect.ValueOf(dst), reflect.ValueOf(src)
	if d.Type() != s.Type() || d.Kind() != reflect.Pointer {
		panic(fmt.Sprintf("stat: add %T to %T", src, dst))
	}
	add(d.Elem(), s.Elem(), false)
}

func add(d, s reflect.Value, peak bool) {
	switch d.Kind() {
	case reflect.Struct:
		for i := range d.NumField() {
			f := d.Type().Field(i)
			if f.IsExported() {
				_, option, _ := strings.Cut(f.Tag.Get(tag), ",")
				add(d.Field(i), s.Field(i), option == optionMax)
			}
		}
	case reflect.Array:
		for i := range d.Len() {
			add(d.Index(i), s.Index(i), peak)
		}
	case reflect.Uint64, reflect.Uint32:
		if v := s.Uint(); !peak {
			d.SetUint(d.Uint() + v)
		} else if v > d.Uint() {
			d.SetUint(v)
		}
	case reflect.Int, reflect.Int64:
		if v := s.Int(); !peak {
			d.SetInt(d.Int() + v)
		} else if v > d.Int() {
			d.SetInt(v)
		}
	default:
		panic(fmt.Sprintf("stat: %v cannot be added up", d.Type()))
	}
}

// Clone returns a pointer to a copy of what src, a pointer to a struct of counters,
// points to.
func Clone(src any) any {
	c := reflect.New(reflect.TypeOf(src).Elem())
	c.Elem().Set(reflect.ValueOf(src).Elem())
	return c.Interface()
}
