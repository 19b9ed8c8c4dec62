package reorder

import (
	"reflect"
	"strings"
	"testing"
	"time"
)

// fillCounters gives every counter of a struct a value of its own, from next on.
func fillCounters(s any, next uint64) {
	v := reflect.ValueOf(s).Elem()
	for i := range v.NumField() {
		switch f := v.Field(i); f.Kind() {
		case reflect.Uint64:
			f.SetUint(next)
		case reflect.Int:
			f.SetInt(int64(next))
		case reflect.Array:
			for j := range f.Len() {
				f.Index(j).SetUint(next)
				next++
			}
		default:
			f.Addr().Interface().(*Histogram).Add(time.Duration(next) * time.Microsecond)
		}
		next++
	}
}

// checkSum holds got against a and b: a counter is their sum, a peak the greater
// of them.
func checkSum(t *testing.T, got, a, b any) {
	t.Helper()
	vg, va, vb := reflect.ValueOf(got).Elem(), reflect.ValueOf(a).Elem(), reflect.ValueOf(b).Elem()
	number := func(v reflect.Value) uint64 {
		if v.Kind() == reflect.Int {
			return uint64(v.Int())
		}
		return v.Uint()
	}
	for i := range vg.NumField() {
		name := vg.Type().Field(i).Name
		switch g, x, y := vg.Field(i), va.Field(i), vb.Field(i); g.Kind() {
		case reflect.Uint64, reflect.Int:
			want := number(x) + number(y)
			if strings.HasSuffix(name, "Peak") {
				want = max(number(x), number(y))
			}
			if number(g) != want {
				t.Errorf("%s is %d, want %d from %d and %d", name, number(g), want, number(x), number(y))
			}
		case reflect.Array:
			for j := range g.Len() {
				if g.Index(j).Uint() != x.Index(j).Uint()+y.Index(j).Uint() {
					t.Errorf("%s[%d] is not a sum", name, j)
				}
			}
		default:
			want, other := x.Interface().(Histogram), y.Interface().(Histogram)
			want.Merge(&other)
			if g.Interface() != want {
				t.Errorf("%s was not merged", name)
			}
		}
	}
}

// A counter that is added to a struct, and not to its Add, would be that of one
// worker only.
func TestStatsAddUpWhole(t *testing.T) {
	var a, b Stats
	fillCounters(&a, 1)
	fillCounters(&b, 1000)
	sum := a
	sum.Add(&b)
	checkSum(t, &sum, &a, &b)
	sum = b
	sum.Add(&a)
	checkSum(t, &sum, &a, &b)

	var u, v PortUse
	fillCounters(&u, 1)
	fillCounters(&v, 1000)
	use := u
	use.Add(&v)
	checkSum(t, &use, &u, &v)
}
