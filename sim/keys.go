package sim

import (
	"reflect"
	"slices"

	"github.com/loomfabric/loom/internal/yamlfile"
)

// The types that keys belong to which not every type of their section has.
var (
	built   = []string{"leaf-spine", "fat-tree", "three-layer", "vl2", "tree"}
	counted = []string{"leaf-spine", "three-layer", "vl2", "tree"}
	overTCP = []string{"tcp", "mptcp"}

	topologyKeys = map[string][]string{
		"file": {"file"}, "load": {"file"},
		"leaves": counted, "spines": counted, "cores": {"three-layer", "vl2", "tree"}, "k": {"fat-tree"},
		"links": built, "hosts": built, "buffer": built, "alpha": built, "pfc": built, "pfc_alpha": built, "overrides": built, "down": built, "plain": built,
	}
	transportKeys = map[string][]string{
		"mtu": overTCP, "min_rto": overTCP, "window": overTCP, "burst": overTCP, "subflows": {"mptcp"},
		"recovery": {"rdma"}, "payload": {"rdma"},
	}
)

// belong reports keys that a section of the given type does not have. Silence
// would let an experiment measure something else than its author thinks.
func (c *completer) belong(at, kind string, section any, types map[string][]string) {
	v := reflect.ValueOf(section).Elem()
	for _, f := range yamlfile.Fields(v.Type()) {
		if of := types[f.Key]; of != nil && !v.FieldByIndex(f.Index).IsZero() && !slices.Contains(of, kind) {
			c.errorf(at+f.Key, "%s has no %s; remove it: it is for %s", kind, f.Key, yamlfile.OrList(of))
		}
	}
}
