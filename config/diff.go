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
func Diff(old, changed any) []string {
	a, err := yamlfile.Map(old)
	b, err2 := yamlfile.Map(changed)
	if err != nil || err2 != nil {
		return []string{"the file"} // it has been read, so it can be written
	}
	return diff("", a, b)
}

// diff lists the paths at which a and b differ.
func diff(path string, a, b any) (keys []string) {
	if reflect.DeepEqual(a, b) {
		return nil
	}
	switch x := a.(type) {
	case yaml.MapSlice:
		y, ok := b.(yaml.MapSlice)
		if !ok {
			break
		}
		for _, key := range keysOf(x, y) {
			keys = append(keys, diff(strings.TrimPrefix(path+"."+key, "."), valueOf(x, key), valueOf(y, key))...)
		}
		return keys
	case []any:
		y, ok := b.([]any)
		if !ok || len(x) != len(y) {
			break
		}
		for i := range x {
			keys = append(keys, diff(fmt.Sprintf("%s[%d]", path, i), x[i], y[i])...)
		}
		return keys
	case nil:
		if y, ok := b.(yaml.MapSlice); ok && len(y) > 0 {
			return diff(path, yaml.MapSlice{}, y)
		}
	}
	if x, ok := a.(yaml.MapSlice); ok && b == nil && len(x) > 0 {
		return diff(path, x, yaml.MapSlice{})
	}
	return []string{path}
}

func keysOf(maps ...yaml.MapSlice) (keys []string) {
	for _, m := range maps {
		for _, item := range m {
			if key := item.Key.(string); !slices.Contains(keys, key) {
				keys = append(keys, key)
			}
		}
	}
	return keys
}

func valueOf(m yaml.MapSlice, key string) any {
	for _, item := range m {
		if item.Key == key {
			return item.Value
		}
	}
	return nil
}
