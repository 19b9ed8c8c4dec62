package balance

import (
	"reflect"
	"testing"
	"time"

	"github.com/loomfabric/loom/reorder"
)

// fill gives every counter below v a value of its own, from next on.
func fill(v reflect.Value, next *uint64) {
	switch {
	case v.Type() == reflect.TypeFor[reorder.Histogram]():
		v.Addr().Interface().(*reorder.Histogram).Add(time.Duration(*next) * time.Microsecond)
		*next++
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i), next)
		}
	default:
		v.SetUint(*next)
		*next++
	}
}

// check holds got against the sum of a and b, counter by counter.
func check(t *testing.T, path string, got, a, b reflect.Value) {
	t.Helper()
	switch {
	case got.Type() == reflect.TypeFor[reorder.Histogram]():
		want := a.Interface().(reorder.Histogram)
		other := b.Interface().(reorder.Histogram)
		want.Merge(&other)
		if got.Interface() != want {
			t.Errorf("%s was not merged", path)
		}
	case got.Kind() == reflect.Struct:
		for i := range got.NumField() {
			check(t, path+"."+got.Type().Field(i).Name, got.Field(i), a.Field(i), b.Field(i))
		}
	case got.Uint() != a.Uint()+b.Uint():
		t.Errorf("%s is %d, want %d + %d", path, got.Uint(), a.Uint(), b.Uint())
	}
}

// A counter that is added to Stats, and not to Add, would be that of one worker
// only.
func TestStatsAddUpWhole(t *testing.T) {
	var a, b Stats
	next := uint64(1)
	fill(reflect.ValueOf(&a).Elem(), &next)
	next = 1000
	fill(reflect.ValueOf(&b).Elem(), &next)
	sum := a
	sum.Add(&b)
	check(t, "Stats", reflect.ValueOf(&sum).Elem(), reflect.ValueOf(a), reflect.ValueOf(b))
}
