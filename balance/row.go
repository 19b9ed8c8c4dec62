package balance

import (
	"math/bits"
	"math/rand/v2"
	"time"

	"github.com/loomfabric/loom/congestion"
	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/overlay"
	"github.com/loomfabric/loom/reorder"
)

// Row is what a scheme would do next with the flows to one leaf, as a table: whoever
// forwards packets without the scheme's code reads it for each flow, or for each flowlet
// that begins, and the scheme makes it anew as often as what it goes by changes. Without a
// path N is 0.
//
// A number gives a slot as [Paths.Share] gives a path, and the slot has the path. The
// number is the flow's hash, mixed with Seed, or a random one (Drawn).
type Row struct {
	N      uint8           // slots, at most MaxPaths
	Path   [MaxPaths]uint8 // by slot: indexes the leaf's Paths
	Drawn  bool            // the number is random, and what it decides holds for a flowlet
	Keep   uint16          // uplinks, as bits, on which a flow stays that took one of them last
	Seed   uint64
	Uneven bool   // Shares and Places count; else all slots have the same part, in their order
	Shares Shares // which slot a number belongs to
	Places Places
}

// Tabular is a Policy whose decisions a table can take.
type Tabular interface {
	Policy
	// Row sets r to what the policy would do at now with flows to a leaf. Whoever wants
	// several rows of one time has looked at the links before ([Links]).
	Row(now mono.Time, v *View, leaf uint16, r *Row)
}

// all sets r to a choice among all paths to a leaf by their weights.
func (r *Row) all(paths *Paths) {
	*r = Row{N: paths.N, Uneven: paths.uneven, Shares: paths.Shares, Places: paths.Places}
	for i := range r.Path {
		r.Path[i] = uint8(i)
	}
}

// some sets r to an even choice among the paths that start on uplinks, given as bits.
func (r *Row) some(paths *Paths, uplinks uint16) {
	*r = Row{}
	for ; uplinks != 0; uplinks &= uplinks - 1 {
		r.Path[r.N%MaxPaths] = uint8(paths.Index[bits.TrailingZeros16(uplinks)%MaxPaths])
		r.N++
	}
}

// Of returns the path of a number that is spread evenly over 32 bits. It is undefined if
// there is none.
func (r *Row) Of(number uint32) uint8 {
	slot := uint8(uint64(number) * uint64(r.N) >> 32)
	if r.Uneven {
		slot = share(number, r.N, &r.Shares, &r.Places)
	}
	return r.Path[slot%MaxPaths]
}

// RowTable is what [Row.Of] goes by, for those who do the same elsewhere: shares of places, of
// which those that are not vacant have a path.
type RowTable struct {
	N      uint8 // places
	Shares Shares
	PlacesTable
}

// Table returns what Of goes by.
func (r *Row) Table() RowTable {
	t := RowTable{N: r.N, Shares: MakeShares(int(r.N), nil)}
	if r.Uneven {
		t.Shares, t.PlacesTable = r.Shares, r.Places.Table()
		if r.Places.Vacant() {
			t.N = r.Places.n
		}
	} else {
		t.PlacesTable = (&Places{}).Table()
	}
	for i, slot := range t.Choice {
		t.Choice[i] = r.Path[slot%MaxPaths]
	}
	return t
}

// tabled has the rows of a policy, which are made now and then, begin its flowlets.
type tabled struct {
	Tabular
	flowlets *flowlets
	rows     []Row // by leaf
	every    mono.Time
	due      mono.Time
	rng      *rand.PCG
}

// Table returns a policy that begins flowlets by the rows of p, which it makes again every
// so often: what becomes of a scheme where a table stands for it. The simulator shows what
// that costs, and whoever forwards by tables is held against it. A policy without flowlets
// is returned as it is, since its rows say the same whenever they are made. ok is false if
// p is not [Tabular].
func Table(p Policy, o *Options, every time.Duration) (policy Policy, ok bool) {
	t, ok := p.(Tabular)
	if !ok {
		return p, false
	}
	f, ok := p.(interface{ keeps() *flowlets })
	if !ok {
		return p, true
	}
	return &tabled{Tabular: t, flowlets: f.keeps(), rows: make([]Row, o.Leaves), every: mono.Time(every), rng: newRNG(o)}, true
}

// keeps returns the flowlets of a policy, for who begins them in its place.
func (f *flowlets) keeps() *flowlets { return f }

// Flowlets returns the table.
func (t *tabled) Flowlets() *congestion.Flowlets { return t.flowlets.table }

// Retime changes the gap.
func (t *tabled) Retime(now mono.Time, times *reorder.Times) error {
	return t.flowlets.Retime(now, times)
}

// Deadline returns when the rows are to be made again.
func (t *tabled) Deadline() mono.Time { return t.due }

// Tick makes the rows of all leaves.
func (t *tabled) Tick(now mono.Time, v *View, out []overlay.Message) []overlay.Message {
	v.look(now)
	for leaf := range min(len(v.Paths), len(t.rows)) {
		t.Row(now, v, uint16(leaf), &t.rows[leaf])
	}
	t.due = now + t.every
	return out
}

// Choose follows flowlets, and has the rows begin others.
func (t *tabled) Choose(now mono.Time, v *View, pkts []Packet) {
	f := t.flowlets
	for i, last := f.follow(now, v, pkts, 0); i < len(pkts); i, last = f.follow(now, v, pkts, i+1) {
		p := &pkts[i]
		paths := &v.Paths[p.Leaf]
		f.start(now, paths, p, paths.Uplink[t.row(now, v, p.Leaf).begin(paths, last, t.rng)%MaxPaths])
	}
}

// begin returns the path of a flowlet of a flow that took an uplink last. There is one.
func (r *Row) begin(paths *Paths, last uint8, rng *rand.PCG) uint8 {
	if last < MaxPaths && r.Keep>>last&1 != 0 && paths.Index[last] >= 0 {
		return uint8(paths.Index[last])
	}
	if r.N == 1 {
		return r.Path[0]
	}
	return r.Of(uint32(rng.Uint64() >> 32))
}

// row returns a leaf's row. One whose paths are no more is made at once: whoever changes
// paths writes the rows with them.
func (t *tabled) row(now mono.Time, v *View, leaf uint16) *Row {
	r, n := &t.rows[leaf], v.Paths[leaf].N
	stale := r.N == 0 && n > 0
	for _, path := range r.Path[:r.N] {
		stale = stale || path >= n
	}
	if stale {
		v.look(now)
		t.Row(now, v, leaf, r)
	}
	return r
}
