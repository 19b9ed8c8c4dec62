package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/config/vocab"
	"github.com/loomfabric/loom/internal/yamlfile"
)

// NeedsRestart returns the keys, as in "uplinks[0].shaper.rate", in which two
// files differ and which a running daemon cannot take over. Both are *[Leaf] or
// both *[Spine], validated. A list that became longer or shorter is named as a
// whole.
func NeedsRestart(old, changed any) []string {
	if _, ok := old.(*Spine); ok {
		return Diff(old, changed) // a spine takes nothing over
	}
	reloadable := reloadable()
	return slices.DeleteFunc(Diff(old, changed), func(key string) bool {
		return slices.ContainsFunc(reloadable, func(of string) bool {
			below, found := strings.CutPrefix(key, of)
			return found && (below == "" || below[0] == '.' || below[0] == '[')
		})
	})
}

// reloadable returns the keys whose change needs no restart, with all that is
// below them: what policies alone are told, which a reload makes anew.
func reloadable() []string {
	keys := append([]string{"scheme", "classes"}, new(vocab.Keys).ExtraKeys()...)
	for _, s := range balance.Sections() {
		for _, key := range s.Reloadable {
			keys = append(keys, s.Name+"."+key)
		}
	}
	return keys
}

// Diff returns the keys in which two validated files differ.
func Diff(old, changed any) []string { return diff("", yamlfile.Map(old), yamlfile.Map(changed)) }

// diff lists the paths at which a and b differ. A mapping that is left out is empty.
func diff(path string, a, b any) (keys []string) {
	if reflect.DeepEqual(a, b) {
		return nil
	}
	x, aMaps := a.(yaml.MapSlice)
	y, bMaps := b.(yaml.MapSlice)
	if (aMaps || a == nil) && (bMaps || b == nil) && len(x)+len(y) > 0 {
		old, changed := x.ToMap(), y.ToMap()
		for i, item := range slices.Concat(x, y) {
			if _, both := old[item.Key]; i < len(x) || !both {
				keys = append(keys, diff(strings.TrimPrefix(path+"."+item.Key.(string), "."), old[item.Key], changed[item.Key])...)
			}
		}
		return keys
	}
	l, _ := a.([]any)
	m, _ := b.([]any)
	if len(l) == 0 || len(l) != len(m) {
		return []string{path}
	}
	for i := range l {
		keys = append(keys, diff(fmt.Sprintf("%s[%d]", path, i), l[i], m[i])...)
	}
	return keys
}
