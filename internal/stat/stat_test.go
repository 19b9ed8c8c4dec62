package stat_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/congestion"
	"github.com/loomfabric/loom/internal/stat"
	"github.com/loomfabric/loom/leaf"
	"github.com/loomfabric/loom/reorder"
)

type inner struct {
	A, B uint64
	Peak int `stat:"peak,max"`
}

type sample struct {
	Count     uint64 `stat:"count"`
	Small     uint32
	Queue     int
	Time      time.Duration
	Longest   time.Duration `stat:",max"`
	Most      uint64        `stat:"most,max"`
	By        [3]uint64
	Parts     [2]inner
	MostOf    [2]uint64 `stat:",max"`
	Inner     inner
	Share     float64
	Fullest   float64 `stat:"-,max"`
	invisible int
}

func TestAdd(t *testing.T) {
	a := sample{
		Count: 1, Small: 2, Queue: -3, Time: 4, Longest: 5, Most: 60, By: [3]uint64{1, 2, 3}, MostOf: [2]uint64{9, 1},
		Parts: [2]inner{{1, 2, 3}, {4, 5, 6}}, Inner: inner{7, 8, -9}, Share: 0.5, Fullest: 0.75, invisible: 1,
	}
	b := sample{
		Count: 10, Small: 20, Queue: 30, Time: 40, Longest: 50, Most: 6, By: [3]uint64{10, 20, 30}, MostOf: [2]uint64{1, 9},
		Parts: [2]inner{{10, 20, 30}, {40, 50, 1}}, Inner: inner{70, 80, -90}, Share: 0.25, Fullest: 0.5, invisible: 10,
	}
	want := sample{
		Count: 11, Small: 22, Queue: 27, Time: 44, Longest: 50, Most: 60, By: [3]uint64{11, 22, 33}, MostOf: [2]uint64{9, 9},
		Parts: [2]inner{{11, 22, 30}, {44, 55, 6}}, Inner: inner{77, 88, -9}, Share: 0.75, Fullest: 0.75, invisible: 1,
	}
	was := b
	stat.Add(&a, &b)
	if a != want {
		t.Errorf("sum %+v\nwant %+v", a, want)
	}
	if b != was {
		t.Errorf("what was added became %+v", b)
	}
	stat.Add(&b, &b)
	if b.Count != 20 || b.Longest != 50 {
		t.Errorf("added to itself: %+v", b)
	}
}

func TestClone(t *testing.T) {
	a := sample{Count: 7, Parts: [2]inner{{A: 1}}, invisible: 3}
	c, ok := stat.Clone(&a).(*sample)
	if !ok || *c != a {
		t.Fatalf("a copy of %+v is %+v", a, c)
	}
	c.Count, c.Parts[0].A = 8, 9
	if a.Count != 7 || a.Parts[0].A != 1 {
		t.Errorf("the copy shares %+v", a)
	}
}

// What cannot be added up is found at once, not when a sum looks odd.
func TestAddPanics(t *testing.T) {
	type list struct{ L []uint64 }
	type text struct{ Name string }
	type flag struct{ On bool }
	type pointer struct{ P *uint64 }
	type other struct{ Count uint64 }
	for name, tt := range map[string]struct{ dst, src any }{
		"a slice": {&list{}, &list{}}, "a string": {&text{}, &text{}}, "a bool": {&flag{}, &flag{}},
		"a pointer": {&pointer{}, &pointer{}}, "two types": {&sample{}, &other{}}, "values": {sample{}, sample{}},
		"a value into a pointer": {&sample{}, sample{}},
	} {
		func() {
			defer func() {
				if r := recover(); r == nil || !strings.HasPrefix(fmt.Sprint(r), "stat: ") {
					t.Errorf("%s: %v", name, r)
				}
			}()
			stat.Add(tt.dst, tt.src)
		}()
	}
}

// fill gives every counter a value of its own, from next on.
func fill(v reflect.Value, next *uint64) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i), next)
		}
	case reflect.Array:
		for i := range v.Len() {
			fill(v.Index(i), next)
		}
	case reflect.Int, reflect.Int64:
		v.SetInt(int64(*next))
		*next++
	default:
		v.SetUint(*next)
		*next++
	}
}

// checkSum holds got against a and b, counter by counter: one whose name says that it
// is the most there ever was is the greater of the two, any other their sum.
func checkSum(t *testing.T, path string, got, a, b reflect.Value) {
	t.Helper()
	number := func(v reflect.Value) int64 {
		if v.CanInt() {
			return v.Int()
		}
		return int64(v.Uint())
	}
	switch got.Kind() {
	case reflect.Struct:
		for i := range got.NumField() {
			checkSum(t, path+"."+got.Type().Field(i).Name, got.Field(i), a.Field(i), b.Field(i))
		}
	case reflect.Array:
		for i := range got.Len() {
			checkSum(t, fmt.Sprintf("%s[%d]", path, i), got.Index(i), a.Index(i), b.Index(i))
		}
	default:
		want := number(a) + number(b)
		if strings.HasSuffix(path, "Peak") || strings.HasSuffix(path, ".Max") {
			want = max(number(a), number(b))
		}
		if number(got) != want {
			t.Errorf("%s is %d, want %d from %d and %d", path, number(got), want, number(a), number(b))
		}
	}
}

// All types that the core counts in add up whole: a counter that was left out would
// be that of one worker only.
func TestCoreAddsUpWhole(t *testing.T) {
	for _, s := range []any{
		&congestion.FlowletStats{}, &congestion.ExchangeStats{}, &reorder.Histogram{}, &reorder.Stats{}, &reorder.PortUse{},
		&balance.ConWeaveStats{}, &balance.PrestoStats{}, &balance.PrestoReceiverStats{}, &balance.PLBStats{}, &balance.FlowcutStats{}, &balance.FlowcutReceiverStats{},
		&leaf.Stats{}, &leaf.Unsent{}, &leaf.Amount{},
	} {
		a, b := stat.Clone(s), stat.Clone(s)
		next := uint64(1)
		fill(reflect.ValueOf(a).Elem(), &next)
		next = 1000
		fill(reflect.ValueOf(b).Elem(), &next)
		for _, pair := range [][2]any{{a, b}, {b, a}} {
			sum := stat.Clone(pair[0])
			stat.Add(sum, pair[1])
			checkSum(t, fmt.Sprintf("%T", s), reflect.ValueOf(sum).Elem(), reflect.ValueOf(a).Elem(), reflect.ValueOf(b).Elem())
		}
	}
}

// The histogram's own way to add up, which is for the path of packets, is the same.
func TestHistogramMergeIsAdd(t *testing.T) {
	var a, b reorder.Histogram
	for i := range 50 {
		a.Add(time.Duration(i*i) * time.Microsecond)
		b.Add(time.Duration(i) * time.Millisecond)
	}
	merged, added := a, a
	merged.Merge(&b)
	stat.Add(&added, &b)
	if merged != added {
		t.Errorf("merged %+v\nadded %+v", merged, added)
	}
}
