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

// Changes returns the keys, as in "uplinks[0].shaper.rate", in which two files differ:
// those that a running daemon takes over when it reads its file again, and those that need
// a restart. Both files are *[Leaf] or both *[Spine], validated. A list that became longer
// or shorter is named as a whole.
func Changes(old, changed any) (live, restart []string) {
	keys := spineLive
	if _, ok := old.(*Leaf); ok {
		keys = leafLive()
	}
	for _, key := range Diff(old, changed) {
		if slices.ContainsFunc(keys, func(of string) bool {
			below, found := strings.CutPrefix(key, of)
			return found && (below == "" || below[0] == '.' || below[0] == '[')
		}) {
			live = append(live, key)
		} else {
			restart = append(restart, key)
		}
	}
	return live, restart
}

// spineLive are the keys of a spine's file whose change needs no restart, with all that is
// below them.
var spineLive = []string{"ports", "vteps", "log.level"}

// leafLive returns the same for a leaf's file: what tables and ports are made of, and what
// policies alone are told, which a reload makes anew.
func leafLive() []string {
	keys := append([]string{"peers", "vnis", "access", "uplinks", "log.level", "scheme", "shadow", "classes"}, new(vocab.Keys).ExtraKeys()...)
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
