package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// reloadable are the keys whose change needs no restart, with all that is below
// them.
var reloadable = []string{
	"scheme", "weights", "drill", "flowlets", "classes",
	"conweave.reply", "conweave.path_busy", "conweave.samples", "conweave.selectors", "conweave.connections",
}

// NeedsRestart returns the keys, as in "uplinks[0].shaper.rate", in which two
// files differ and which a running daemon cannot take over. Both are *[Leaf] or
// both *[Spine], validated. A list that became longer or shorter is named as a
// whole.
func NeedsRestart(old, changed any) []string {
	keys := diff("", reflect.ValueOf(old).Elem(), reflect.ValueOf(changed).Elem())
	return slices.DeleteFunc(keys, func(key string) bool {
		return slices.ContainsFunc(reloadable, func(of string) bool {
			below, found := strings.CutPrefix(key, of)
			return found && (below == "" || below[0] == '.' || below[0] == '[')
		})
	})
}

// diff lists the paths at which a and b, of one type, differ.
func diff(path string, a, b reflect.Value) (keys []string) {
	if reflect.DeepEqual(a.Interface(), b.Interface()) {
		return nil
	}
	switch {
	case a.Type().Implements(textMarshaler):
		return []string{path}
	case a.Kind() == reflect.Struct:
		for i := range a.NumField() {
			name, opts, _ := strings.Cut(a.Type().Field(i).Tag.Get("yaml"), ",")
			p := strings.TrimPrefix(path+"."+name, ".")
			if opts == "inline" {
				p = path
			}
			keys = append(keys, diff(p, a.Field(i), b.Field(i))...)
		}
		return keys
	case a.Kind() == reflect.Slice && a.Len() == b.Len():
		for i := range a.Len() {
			keys = append(keys, diff(fmt.Sprintf("%s[%d]", path, i), a.Index(i), b.Index(i))...)
		}
	}
	if len(keys) == 0 {
		keys = []string{path} // a scalar, another length, or nil beside an empty list
	}
	return keys
}
