package sim

import (
	"slices"
	"strings"
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
			c.errorf(at+f.key, "%s has no such thing: it is for %s", kind, strings.Join(f.types, ", "))
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
		{"hosts-per-leaf", t.HostsPerLeaf != 0, built},
		{"parallel", t.Parallel != 0, built},
		{"host-rate", t.HostRate != 0, built},
		{"rate", t.Rate != 0, built},
		{"host-delay", t.HostDelay != 0, built},
		{"delay", t.Delay != 0, built},
		{"buffer", t.Buffer != 0, built},
		{"alpha", t.Alpha != 0, built},
		{"port-buffer", t.PortBuffer != 0, built},
		{"ecn", t.ECN != nil, built},
		{"pfc", t.PFC, built},
		{"overrides", t.Overrides != nil, built},
	}
}

func (t *Transport) fields() []field {
	return []field{
		{"mtu", t.MTU != 0, []string{"tcp"}},
		{"min-rto", t.MinRTO != 0, []string{"tcp"}},
		{"window", t.Window != 0, []string{"tcp"}},
		{"burst", t.Burst != 0, []string{"tcp"}},
		{"recovery", t.Recovery != "", []string{"rdma"}},
		{"payload", t.Payload != 0, []string{"rdma"}},
	}
}

func (w *Workload) fields() []field {
	all := []string{"all"}
	return []field{
		{"from", w.From != nil && !slices.Equal(w.From, all), []string{Poisson, Bulk, Incast, AllToAll, UDP}},
		{"to", w.To != nil && !slices.Equal(w.To, all), []string{Poisson, Bulk, Incast, UDP}},
		{"pairs", w.Pairs != "", []string{Poisson, Incast}},
		{"sizes", w.Sizes != "", []string{Poisson}},
		{"scale", w.Scale != 0, []string{Poisson}},
		{"load", w.Load != 0, []string{Poisson}},
		{"of", w.Of != "", []string{Poisson}},
		{"connections", w.Connections != 0, []string{Poisson, Incast}},
		{"pool", w.Pool, []string{Poisson}},
		{"flows", w.Flows != 0, []string{Bulk, Stride, Permutation, UDP}},
		{"bytes", w.Bytes != 0, []string{Bulk, Incast, Stride, Permutation, AllToAll}},
		{"fan-in", w.FanIn != 0, []string{Incast}},
		{"stride", w.Stride != 0, []string{Stride}},
		{"rate", w.Rate != 0, []string{UDP}},
		{"size", w.Size != 0, []string{UDP}},
		{"repeat", w.Repeat != 0, []string{Incast}},
		{"gap", w.Gap != 0, []string{Incast}},
		{"file", w.File != "", []string{Trace}},
	}
}
