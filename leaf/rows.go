package leaf

import (
	"cmp"
	"fmt"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/internal/mono"
)

// Rows makes tables of what a leaf's schemes would do next, for who forwards tenants' packets
// without them. It has policies of its own, which see what those of a worker see, and choose
// nothing. It is not safe for concurrent use.
type Rows struct {
	quarantine
	shared  *Shared
	view    balance.View
	classes []balance.Tabular // nil: no table can stand for its scheme

	local [balance.MaxPaths]uint8
	queue [balance.MaxPaths]uint32
	times [balance.MaxPaths]uint32
	room  [balance.MaxPaths]uint32
}

// NewRows returns tables of the classes of a configuration.
func NewRows(cfg Config, shared *Shared) (*Rows, error) {
	r := &Rows{shared: shared}
	r.view = balance.View{Local: &r.local, Queue: &r.queue, ByteTime: &r.times, Room: &r.room, Remote: shared.To, Capable: shared.Capable, Trips: shared.Paths}
	for i, c := range cfg.Classes {
		s, err := balance.Named(cmp.Or(c.Scheme, "ecmp"))
		if err != nil {
			return nil, err
		}
		if !tabled(s) {
			r.classes = append(r.classes, nil)
			continue
		}
		o := cfg.options(s, c.Options)
		o.Memory = make([]uint64, 1) // it keeps no flowlets
		if err := s.Complete(&o); err != nil {
			return nil, fmt.Errorf("traffic class %d: scheme %s: %w", i, s.Name, err)
		}
		t, _ := s.New(&o).(balance.Tabular)
		r.classes = append(r.classes, t)
	}
	return r, nil
}

// tabled reports whether a scheme's packets need nothing but a path, so that a table can stand
// for it if its policy is [balance.Tabular].
func tabled(s *balance.Scheme) bool { return CanShadow(s) && !s.Queues && !s.Hosts }

// Local is where the driver puts the metrics of the leaf's own links, by LBTag.
func (r *Rows) Local() *[balance.MaxPaths]uint8 { return &r.local }

// SetPaths says which paths lead to each leaf. The slice stays the driver's, as with
// [Leaf.SetPaths].
func (r *Rows) SetPaths(paths []balance.Paths) { r.view.Paths = r.show(r.shared.Paths, paths) }

// Behind reports whether something else has become known of paths: SetPaths is to be called
// again.
func (r *Rows) Behind() bool { return r.behind(r.shared.Paths) }

// Tabled reports whether a table can stand for the scheme of a class, and whether it is asked
// about flowlets, and not about flows.
func (r *Rows) Tabled(class int) (tabled, flowlets bool) {
	_, flowlets = r.classes[class].(balance.FlowletPolicy)
	return r.classes[class] != nil, flowlets
}

// Row makes the row of a class for a leaf below the number of those that SetPaths was told of.
// ok is false if there is none. Its paths are the driver's; by uplink, path has the first of
// them that a flow may stay on, -1 where there is none.
func (r *Rows) Row(now mono.Time, class int, leaf uint16, row *balance.Row) (path [balance.MaxPaths]int8, ok bool) {
	p := r.classes[class]
	if p == nil {
		return path, false
	}
	p.Row(now, &r.view, leaf, row)
	path = r.view.Paths[leaf].Index
	if !r.on {
		return path, true
	}
	index := &r.index[leaf]
	for i := range row.Path {
		row.Path[i] = index[row.Path[i]%balance.MaxPaths]
	}
	for u, i := range path {
		if i >= 0 {
			path[u] = int8(index[i%balance.MaxPaths])
		}
	}
	return path, true
}
