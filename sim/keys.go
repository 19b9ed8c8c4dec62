package sim

import (
	"reflect"
	"slices"

	"github.com/loomfabric/loom/config/vocab"
	"github.com/loomfabric/loom/internal/yamlfile"
)

// field is a key that not every type of its section has: whether it was given,
// and to which types it belongs.
type field struct {
	key   string
	given bool
	types []string
}

// belong reports keys that a section of the given type does not have. Silence
// would let an experiment measure something else than its author thinks.
func (c *completer) belong(at, kind string, fields []field) {
	for _, f := range fields {
		if f.given && !slices.Contains(f.types, kind) {
			c.errorf(at+f.key, "%s has no %s; remove it: it is for %s", kind, f.key, yamlfile.OrList(f.types))
		}
	}
}

func (t *Topology) fields() []field {
	built := []string{"leaf-spine", "fat-tree", "three-layer", "vl2"}
	counted := []string{"leaf-spine", "three-layer", "vl2"}
	return []field{
		{"file", t.File != "", []string{"file"}},
		{"load", t.Load != 0, []string{"file"}},
		{"leaves", t.Leaves != 0, counted},
		{"spines", t.Spines != 0, counted},
		{"cores", t.Cores != 0, []string{"three-layer", "vl2"}},
		{"k", t.K != 0, []string{"fat-tree"}},
		{"links", t.Links != (vocab.Links{}), built},
		{"hosts", !reflect.ValueOf(t.Hosts).IsZero(), built},
		{"buffer", t.Buffer != 0, built},
		{"alpha", t.Alpha != 0, built},
		{"pfc", t.PFC, built},
		{"overrides", t.Overrides != nil, built},
	}
}

func (t *Transport) fields() []field {
	return []field{
		{"mtu", t.MTU != 0, []string{"tcp"}},
		{"min_rto", t.MinRTO != 0, []string{"tcp"}},
		{"window", t.Window != 0, []string{"tcp"}},
		{"burst", t.Burst != 0, []string{"tcp"}},
		{"recovery", t.Recovery != "", []string{"rdma"}},
		{"payload", t.Payload != 0, []string{"rdma"}},
	}
}
