package leaf

import (
	"math/bits"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/liveness"
)

// quarantine keeps the paths that do not deliver from the schemes: these are shown what
// is left, and what they choose is translated.
type quarantine struct {
	seen   uint32 // changes of the table that are in force
	on     bool   // a path is kept from schemes
	usable []balance.Paths
	index  [][balance.MaxPaths]uint8 // by leaf and path shown: path of the driver
}

// SetPaths says which paths lead to each leaf. The slice stays the driver's, who calls
// SetPaths again after it has changed it.
func (l *Leaf[T]) SetPaths(paths []balance.Paths) {
	l.paths = paths
	l.isolate()
}

// follow puts in force what has become known of paths.
func (l *Leaf[T]) follow() {
	if l.behind(l.shared.Paths) {
		l.isolate()
	}
}

// isolate brings what schemes are shown in line with paths and with what is known of
// them.
func (l *Leaf[T]) isolate() {
	l.view.Paths, l.routed = l.show(l.shared.Paths, l.paths), false
}

// behind reports whether something else is known of paths than what is in force.
func (q *quarantine) behind(t *liveness.Table) bool { return t.Changes() != q.seen }

// show puts in force what is known of paths by leaf, and returns those that schemes are shown.
func (q *quarantine) show(t *liveness.Table, paths []balance.Paths) []balance.Paths {
	if len(q.usable) < len(paths) {
		q.usable, q.index = make([]balance.Paths, len(paths)), make([][balance.MaxPaths]uint8, len(paths))
	}
	q.seen, q.on = t.Changes(), false
	for i := range paths {
		if t.Dead(uint16(i)) != 0 {
			q.on = true
			break
		}
	}
	if !q.on {
		return paths
	}
	for i := range paths {
		q.usable[i] = keep(&paths[i], t.Dead(uint16(i)), &q.index[i])
	}
	return q.usable[:len(paths)]
}

// keep returns the paths whose tags are not dead, or all of them if there are none, and
// fills in which ones they were. Flows on paths that are kept stay on them.
func keep(paths *balance.Paths, dead uint16, index *[balance.MaxPaths]uint8) balance.Paths {
	n, gone := 0, uint16(0)
	for i, u := range paths.Uplink[:paths.N] {
		if dead>>u&1 != 0 {
			gone |= 1 << i
			continue
		}
		index[n] = uint8(i)
		n++
	}
	if n == 0 {
		for i := range index {
			index[i] = uint8(i)
		}
		return *paths
	}
	return paths.Without(gone)
}

// translate makes paths that were chosen among those shown the driver's.
func (q *quarantine) translate(pkts []balance.Packet, copies bool) {
	for i := range pkts {
		p := &pkts[i]
		index := &q.index[p.Leaf]
		p.Path = index[p.Path&(balance.MaxPaths-1)]
		if copies {
			var all uint16
			for m := p.Copies; m != 0; m &= m - 1 {
				all |= 1 << index[bits.TrailingZeros16(m)]
			}
			p.Copies = all
		}
	}
}
