package congestion

import (
	"sync/atomic"
	"time"

	"github.com/loomfabric/loom/internal/mono"
)

// ToLeaf is the Congestion-To-Leaf Table of CONGA §3.3: for each destination
// leaf and LBTag, the congestion of the paths there that start on the uplink
// of that tag, as the leaf reported it.
//
// A metric stands for the ageing time after its last update, and then loses one
// quantum for each ageing time that has passed: 7 is 6 after 10 ms without news,
// 5 after 20 ms, and 0 after 70 ms. The paper asks for a gradual fall (§3.3) and
// leaves the step open. One quantum is the smallest step there is, so paths that
// fell silent together keep their order for as long as possible and are probed
// again least congested first, not all at once; and the time it takes is
// proportional to how bad the path was.
//
// It is shared by the workers of a node: every entry is one atomic word, the
// last writer wins. To spare the other workers' caches an update that says
// nothing new is stored only when the entry is older than 1/16 of the ageing
// time; ageing may begin that much early.
type ToLeaf struct {
	rows    [][MaxTags]atomic.Uint64
	ageing  time.Duration
	refresh time.Duration
	top     uint8
}

// NewToLeaf returns a table for leaves 0 to leaves-1 of which nothing is known.
// p must be valid.
func NewToLeaf(leaves int, p *Params) *ToLeaf {
	return &ToLeaf{
		rows:    make([][MaxTags]atomic.Uint64, leaves),
		ageing:  p.Ageing,
		refresh: p.Ageing / 16,
		top:     p.TopMetric(),
	}
}

// Update notes feedback from a leaf: the metric of the paths that start on the
// uplink of that tag. It reports false, and does nothing, if there is no such
// leaf, tag or metric.
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

// Metrics is [ToLeaf.Metric] of all tags of a leaf, into m.
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

// Entry is for those who look: the metric as of now and the time since its
// last update, to 1/16 of the ageing time; ok is false if there was none yet.
func (t *ToLeaf) Entry(leaf uint16, tag uint8, now mono.Time) (metric uint8, age time.Duration, ok bool) {
	if int(leaf) >= len(t.rows) || tag >= MaxTags {
		return 0, 0, false
	}
	w := word(t.rows[leaf][tag].Load())
	return t.aged(w, now), w.age(now), w.known()
}

// Forget drops what is known of a leaf, as when its place goes to another one.
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
