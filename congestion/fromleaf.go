package congestion

import (
	"math/bits"
	"sync/atomic"
	"time"

	"github.com/loomfabric/loom/internal/mono"
)

// FromLeaf is the Congestion-From-Leaf Table of CONGA §3.3. For each source leaf
// and LBTag it holds the congestion (CE) of the last packet from there, until a
// packet in the reverse direction feeds it back.
//
// Feedback goes round-robin over the tags, and favours those whose metric has changed
// (§3.3, step 4). After [changedInRow] changed ones the round goes on by one tag, so
// that each tag gets its turn however often others change: a link that stays congested
// would else age to idle at the source. A metric that was not confirmed for the ageing time is not fed
// back: repeating it would keep a stale metric alive at the source. The source's
// [ToLeaf] ages it meanwhile, and so the first record after such a silence counts
// as changed even if its metric is the same.
//
// The workers of a node share the table. Entries are atomic words, and the last
// writer wins; each worker has a [FeedbackCursor] of its own. To spare the other
// workers' caches, an unchanged metric is stored only when the entry is older than
// 1/16 of the ageing time.
type FromLeaf struct {
	rows    []fromRow
	ageing  time.Duration
	refresh time.Duration
	top     uint8
}

// fromRow is the state of one leaf. The two sets tell Next where to look, so that
// it does not read sixteen words for each packet. They share no cache line with
// the words.
type fromRow struct {
	words [MaxTags]atomic.Uint64
	sets  atomic.Uint32 // changed(16) . live(16), a bit a tag
	_     [60]byte
}

const setChanged = 16 // shift

// changedInRow is how many changed metrics are fed back before the round goes on. A tag
// waits for at most 2·16·(changedInRow+1) packets of a worker.
const changedInRow = 3

// FeedbackCursor is a worker's position in the round over each leaf's tags. It is
// owned by one worker; it is not safe for concurrent use.
type FeedbackCursor struct {
	turns []turn // by leaf
	// retired is how many stale metrics were taken out of the round. A metric joins the
	// round again when a packet with its tag arrives. The worker that retires a metric
	// counts it.
	retired uint64
}

// turn is where a worker stands in the round over one leaf's tags.
type turn struct {
	fed   uint16 // tags fed back in this round, a bit each
	last  uint8  // tag fed back last
	inRow uint8  // changed metrics fed back since the round went on
}

// of returns the tags that are next: changed ones, or those whose turn in the round is
// still to come. Both sets are empty only if there is no feedback.
func (t *turn) of(changed, live uint16) (from uint16, favoured bool) {
	if changed != 0 && t.inRow < changedInRow {
		return changed, true
	}
	if live&^t.fed == 0 {
		t.fed = 0
	}
	return live &^ t.fed, false
}

// take notes that a tag was fed back.
func (t *turn) take(tag uint8, favoured bool) {
	t.last = tag
	t.fed |= 1 << tag
	t.inRow++
	if !favoured {
		t.inRow = 0
	}
}

// NewFeedbackCursor returns a cursor for leaves 0 to leaves-1.
func NewFeedbackCursor(leaves int) *FeedbackCursor {
	c := &FeedbackCursor{turns: make([]turn, leaves)}
	for i := range c.turns {
		c.turns[i].last = MaxTags - 1
	}
	return c
}

// NewFromLeaf returns an empty table for leaves 0 to leaves-1. p must be valid.
func NewFromLeaf(leaves int, p *Params) *FromLeaf {
	return &FromLeaf{
		rows:    make([]fromRow, leaves),
		ageing:  p.Ageing,
		refresh: p.Ageing / 16,
		top:     p.TopMetric(),
	}
}

// Record notes the CE of a packet from a leaf with the given tag. It returns false,
// and does nothing, if there is no such leaf, tag or metric.
func (t *FromLeaf) Record(leaf uint16, tag, ce uint8, now mono.Time) bool {
	if int(leaf) >= len(t.rows) || tag >= MaxTags || ce > t.top {
		return false
	}
	r := &t.rows[leaf]
	e := &r.words[tag]
	if old := word(e.Load()); old.known() && old.metric() == ce && old.age(now) < t.refresh {
		return true
	}
	// Swap makes the second of two workers that record different metrics at once
	// see the change.
	old := word(e.Swap(uint64(makeWord(ce, now))))
	set := uint32(1) << tag
	if !old.known() || old.metric() != ce || old.age(now) >= t.ageing {
		set |= 1 << (tag + setChanged)
	}
	if r.sets.Load()&set != set {
		r.sets.Or(set) // after the word: a reader of the bit finds the metric
	}
	return true
}

// Next chooses the feedback for a packet to a leaf. ok is false if there is none,
// or if table or cursor have no such leaf.
func (t *FromLeaf) Next(c *FeedbackCursor, leaf uint16, now mono.Time) (tag, metric uint8, ok bool) {
	if int(leaf) >= len(t.rows) || int(leaf) >= len(c.turns) {
		return 0, 0, false
	}
	r, at := &t.rows[leaf], &c.turns[leaf]
	for {
		sets := r.sets.Load()
		from, favoured := at.of(uint16(sets>>setChanged), uint16(sets))
		if from == 0 {
			return 0, 0, false
		}
		tag = nextTag(from, at.last)
		if bit := uint32(1) << (tag + setChanged); sets&bit != 0 {
			r.sets.And(^bit) // before the word: a later change sets it again
		}
		w := word(r.words[tag].Load())
		if w.age(now) < t.ageing {
			at.take(tag, favoured)
			return tag, w.metric(), true
		}
		if t.retire(r, tag, now) {
			c.retired++
		}
	}
}

// retire takes a stale tag out of the round and reports whether this call did it.
// Each turn of Next's loop clears a bit, so that the loop ends. A worker that
// records the tag at the same time either finds the bit cleared and sets it, or the
// second check finds its metric.
func (t *FromLeaf) retire(r *fromRow, tag uint8, now mono.Time) bool {
	bit := uint32(1) << tag
	old := r.sets.And(^(bit | bit<<setChanged))
	if word(r.words[tag].Load()).age(now) < t.ageing {
		r.sets.Or(bit)
		return false
	}
	return old&bit != 0
}

// nextTag returns the first member of set after last, modulo [MaxTags]. set must not
// be empty.
func nextTag(set uint16, last uint8) uint8 {
	turn := int(last) + 1
	return uint8(bits.TrailingZeros16(bits.RotateLeft16(set, -turn))+turn) % MaxTags
}

// Entry serves inspection. It returns the last metric and its age, to 1/16 of the
// ageing time; ok is false if there was none yet.
func (t *FromLeaf) Entry(leaf uint16, tag uint8, now mono.Time) (metric uint8, age time.Duration, ok bool) {
	if int(leaf) >= len(t.rows) || tag >= MaxTags {
		return 0, 0, false
	}
	w := word(t.rows[leaf].words[tag].Load())
	return w.metric(), w.age(now), w.known()
}

// Forget clears the state of a leaf. It is called when another leaf gets its index.
// A record that another worker makes at the same time may stay.
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
