package congestion

import (
	"math/bits"
	"sync/atomic"
	"time"

	"github.com/loomfabric/loom/internal/mono"
)

// FromLeaf is the Congestion-From-Leaf Table of CONGA §3.3: for each source
// leaf and LBTag, the congestion (CE) that its last packet met on the way here,
// until a packet in the reverse direction takes it back.
//
// What is fed back is chosen round-robin over the tags, those first whose
// metric has changed since they were fed back (§3.3, step 4). A metric that was
// not confirmed for the ageing time is no longer fed back: repeating it would
// keep alive at the source what nobody measures any more. The source's [ToLeaf]
// then ages it, and so what is recorded after such a silence counts as changed
// even if it is the same as before.
//
// It is shared by the workers of a node: entries are atomic words of which the
// last writer wins; each worker has a [FeedbackCursor] of its own. To spare the
// other workers' caches, a record that says nothing new is stored only when the
// entry is older than 1/16 of the ageing time.
type FromLeaf struct {
	rows    []fromRow
	ageing  time.Duration
	refresh time.Duration
	top     uint8
}

// fromRow is what is known of one leaf. The two sets tell Next where to look,
// so that it does not read sixteen words for each packet. They share no cache
// line with the words.
type fromRow struct {
	words [MaxTags]atomic.Uint64
	sets  atomic.Uint32 // changed(16) . live(16), a bit a tag
	_     [60]byte
}

const setChanged = 16 // shift

// FeedbackCursor is a worker's place in the round over each leaf's tags. It is
// owned by one worker; not safe for concurrent use.
type FeedbackCursor struct {
	last    []uint8 // by leaf: tag fed back last
	retired uint64  // tags taken out of the round through this cursor
}

// Retired returns how many metrics were found stale when their turn came and
// taken out of the round: not fed back, nor looked at again until the leaf is
// heard with that tag. Each is counted once, by the worker that retired it.
func (c *FeedbackCursor) Retired() uint64 { return c.retired }

// NewFeedbackCursor returns a cursor for leaves 0 to leaves-1.
func NewFeedbackCursor(leaves int) *FeedbackCursor {
	c := &FeedbackCursor{last: make([]uint8, leaves)}
	for i := range c.last {
		c.last[i] = MaxTags - 1
	}
	return c
}

// NewFromLeaf returns a table for leaves 0 to leaves-1 of which nothing is
// known. p must be valid.
func NewFromLeaf(leaves int, p *Params) *FromLeaf {
	return &FromLeaf{
		rows:    make([]fromRow, leaves),
		ageing:  p.Ageing,
		refresh: p.Ageing / 16,
		top:     p.TopMetric(),
	}
}

// Record notes the CE of a packet that came from a leaf with the given tag. It
// reports false, and does nothing, if there is no such leaf, tag or metric.
func (t *FromLeaf) Record(leaf uint16, tag, ce uint8, now mono.Time) bool {
	if int(leaf) >= len(t.rows) || tag >= MaxTags || ce > t.top {
		return false
	}
	r := &t.rows[leaf]
	e := &r.words[tag]
	if old := word(e.Load()); old.known() && old.metric() == ce && old.age(now) < t.refresh {
		return true
	}
	// Exchanged, not stored: of two workers that record different metrics at
	// once, the second one sees the change.
	old := word(e.Swap(uint64(makeWord(ce, now))))
	set := uint32(1) << tag
	if !old.known() || old.metric() != ce || old.age(now) >= t.ageing {
		set |= 1 << (tag + setChanged)
	}
	if r.sets.Load()&set != set {
		r.sets.Or(set) // after the word: who sees the bit sees the metric
	}
	return true
}

// Next chooses the feedback for a packet to a leaf; ok is false if there is
// nothing to tell. Leaf and cursor must be of the table's size or below.
func (t *FromLeaf) Next(c *FeedbackCursor, leaf uint16, now mono.Time) (tag, metric uint8, ok bool) {
	if int(leaf) >= len(t.rows) || int(leaf) >= len(c.last) {
		return 0, 0, false
	}
	r := &t.rows[leaf]
	for {
		sets := r.sets.Load()
		from := uint16(sets >> setChanged)
		if from == 0 {
			from = uint16(sets)
		}
		if from == 0 {
			return 0, 0, false
		}
		tag = nextTag(from, c.last[leaf])
		if bit := uint32(1) << (tag + setChanged); sets&bit != 0 {
			r.sets.And(^bit) // before the word: a later change sets it again
		}
		w := word(r.words[tag].Load())
		if w.age(now) < t.ageing {
			c.last[leaf] = tag
			return tag, w.metric(), true
		}
		if t.retire(r, tag, now) {
			c.retired++
		}
	}
}

// retire takes a stale tag out of the round and reports whether it was this
// call that did. The loop of Next ends because each turn clears a bit; a worker
// that records the tag at this moment either finds the bit cleared and sets it,
// or is seen by the second look.
func (t *FromLeaf) retire(r *fromRow, tag uint8, now mono.Time) bool {
	bit := uint32(1) << tag
	old := r.sets.And(^(bit | bit<<setChanged))
	if word(r.words[tag].Load()).age(now) < t.ageing {
		r.sets.Or(bit)
		return false
	}
	return old&bit != 0
}

// nextTag returns the first member of set after last, around the end; set must
// not be empty.
func nextTag(set uint16, last uint8) uint8 {
	turn := int(last) + 1
	return uint8(bits.TrailingZeros16(bits.RotateLeft16(set, -turn))+turn) % MaxTags
}

// Entry is for those who look: the metric recorded last and the time since, to
// 1/16 of the ageing time; ok is false if there was none yet.
func (t *FromLeaf) Entry(leaf uint16, tag uint8, now mono.Time) (metric uint8, age time.Duration, ok bool) {
	if int(leaf) >= len(t.rows) || tag >= MaxTags {
		return 0, 0, false
	}
	w := word(t.rows[leaf].words[tag].Load())
	return w.metric(), w.age(now), w.known()
}

// Forget drops what is known of a leaf, as when its place goes to another one.
// What a worker records at the same moment may stay.
func (t *FromLeaf) Forget(leaf uint16) {
	if int(leaf) >= len(t.rows) {
		return
	}
	r := &t.rows[leaf]
	r.sets.Store(0)
	for tag := range r.words {
		r.words[tag].Store(0)
	}
}

// Leaves returns for how many leaves the table was made.
func (t *FromLeaf) Leaves() int { return len(t.rows) }
