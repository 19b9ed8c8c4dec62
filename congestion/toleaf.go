package congestion

import (
	"sync/atomic"
	"time"

	"github.com/loomfabric/loom/internal/mono"
)

// ToLeaf is the Congestion-To-Leaf Table of CONGA §3.3. For each destination leaf
// and LBTag it holds the congestion of the paths that start on the uplink of that
// tag, as the leaf reported it.
//
// A metric stands for the ageing time after its last update. Then it loses one
// quantum for each ageing time that passes: with 10 ms, 7 is 6 after 10 ms without
// an update, 5 after 20 ms, and 0 after 70 ms. The paper asks for a gradual fall
// (§3.3) and leaves the step open. One quantum is the smallest step. Paths that
// fell silent together keep their order for as long as possible, and traffic
// returns to the least congested first, not to all at once.
//
// The workers of a node share the table. Every entry is one atomic word, and the
// last writer wins. To spare the other workers' caches, an unchanged metric is
// stored only when the entry is older than 1/16 of the ageing time; ageing may
// begin that much early.
type ToLeaf struct {
	rows    [][MaxTags]atomic.Uint64
	ageing  time.Duration
	refresh time.Duration
	top     uint8
}

// NewToLeaf returns an empty table for leaves 0 to leaves-1. p must be valid.
func NewToLeaf(leaves int, p *Params) *ToLeaf {
	return &ToLeaf{
		rows:    make([][MaxTags]atomic.Uint64, leaves),
		ageing:  p.Ageing,
		refresh: p.Ageing / 16,
		top:     p.TopMetric(),
	}
}

// Update notes feedback from a leaf: the metric of the paths that start on the
// uplink of that tag. It returns false, and does nothing, if there is no such leaf,
// tag or metric.
func (t *ToLeaf) Update(leaf uint16, tag, metric uint8, now mono.Time) bool {
	if int(leaf) >= len(t.rows) || tag >= MaxTags || metric > t.top {
		return false
	}
	e := &t.rows[leaf][tag]
	old := word(e.Load())
	if !old.known() || old.metric() != metric || old.age(now) >= t.refresh {
		e.Store(uint64(makeWord(metric, now)))
	}
	return true
}

// Metrics writes the aged metrics of all tags of a leaf to m. An unknown metric is 0.
func (t *ToLeaf) Metrics(leaf uint16, now mono.Time, m *[MaxTags]uint8) {
	if int(leaf) >= len(t.rows) {
		*m = [MaxTags]uint8{}
		return
	}
	row := &t.rows[leaf]
	for tag := range row {
		m[tag] = t.aged(word(row[tag].Load()), now)
	}
}

// Entry serves inspection. It returns the aged metric and the time since its last
// update, to 1/16 of the ageing time; ok is false if there was none yet.
func (t *ToLeaf) Entry(leaf uint16, tag uint8, now mono.Time) (metric uint8, age time.Duration, ok bool) {
	if int(leaf) >= len(t.rows) || tag >= MaxTags {
		return 0, 0, false
	}
	w := word(t.rows[leaf][tag].Load())
	return t.aged(w, now), w.age(now), w.known()
}

// ForgetTag clears what leaves have said of an own uplink. It is called when another
// uplink gets its tag.
func (t *ToLeaf) ForgetTag(tag uint8) {
	for leaf := range t.rows {
		t.rows[leaf][tag&(MaxTags-1)].Store(0)
	}
}

// Forget clears the state of a leaf. It is called when another leaf gets its index.
func (t *ToLeaf) Forget(leaf uint16) {
	if int(leaf) >= len(t.rows) {
		return
	}
	for tag := range t.rows[leaf] {
		t.rows[leaf][tag].Store(0)
	}
}

func (t *ToLeaf) aged(w word, now mono.Time) uint8 {
	m := w.metric()
	if m == 0 {
		return 0
	}
	age := w.age(now)
	switch {
	case age < t.ageing:
		return m
	case age >= t.ageing*time.Duration(m): // long ago: no division
		return 0
	}
	return m - uint8(age/t.ageing)
}
