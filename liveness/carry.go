package liveness

import (
	"fmt"

	"github.com/loomfabric/loom/internal/snapshot"
)

// SaveRound writes the number of the leaf's present round.
func (t *Table) SaveRound(w *snapshot.Writer) { w.U32(t.round.Load()) }

// LoadRound reads what SaveRound wrote. Rounds never go back: peers would take the next
// ones for old.
func (t *Table) LoadRound(r *snapshot.Reader) { t.round.Store(max(t.round.Load(), r.U32())) }

// Save writes all that is known of a peer for another process, which has the same clock
// and the same uplinks.
func (t *Table) Save(w *snapshot.Writer, p uint16) {
	s := &t.peers[p]
	w.U32(s.boot.Load())
	w.U32(s.gone.Load())
	w.U32(s.every.Load())
	w.U64(s.newest.Load())
	w.U32(s.present.Load())
	w.U64(s.nonce.Load())
	w.U64(s.report.Load())
	w.U64(uint64(s.at.Load()))
	w.U32(t.dead[p].Load())
	for i := int(p) * MaxTags; i < (int(p)+1)*MaxTags; i++ {
		from, to := &t.from[i], &t.to[i]
		w.U64(from.run.Load())
		w.U32(from.large.Load())
		w.U64(from.counts.Load())
		w.U64(from.stamp.Load())
		w.U64(uint64(to.roundTrip.Load()))
		w.U32(to.loss.Load())
		w.U32(to.given.Load())
	}
}

// Load reads what Save wrote.
func (t *Table) Load(r *snapshot.Reader, p uint16) {
	s := &t.peers[p]
	s.boot.Store(r.U32())
	s.gone.Store(r.U32())
	s.every.Store(r.U32())
	s.newest.Store(r.U64())
	s.present.Store(r.U32())
	s.nonce.Store(r.U64())
	s.report.Store(r.U64())
	s.at.Store(int64(r.U64()))
	if dead := r.U32(); t.dead[p].Swap(dead) != dead {
		t.changes.Add(1)
	}
	for i := int(p) * MaxTags; i < (int(p)+1)*MaxTags; i++ {
		from, to := &t.from[i], &t.to[i]
		from.run.Store(r.U64())
		from.large.Store(r.U32())
		from.counts.Store(r.U64())
		from.stamp.Store(r.U64())
		to.roundTrip.Store(max(int64(r.U64()), 0))
		to.loss.Store(r.U32())
		to.given.Store(r.U32())
	}
	t.reports.Add(1)
}

// Save writes a worker's counts of a peer. The first worker's include those of who counts
// beside the workers, and who begins anew in the other process.
func (c *Traffic) Save(w *snapshot.Writer, p uint16) {
	for tag := range uint8(MaxTags) {
		i := int(p)*MaxTags + int(tag)
		sent, came, hot := c.sent[i], c.came[i], c.hot[i]
		if c.table.beside != nil && c.worker == 0 {
			n, h := c.table.beside(p, tag)
			came, hot, sent = came+n, hot+h, sent+c.table.gone(p, tag)
		}
		w.U32(sent)
		w.U32(came)
		w.U32(hot)
	}
}

// Load reads what Save wrote.
func (c *Traffic) Load(r *snapshot.Reader, p uint16) {
	for i := int(p) * MaxTags; i < (int(p)+1)*MaxTags; i++ {
		c.sent[i], c.came[i], c.hot[i] = r.U32(), r.U32(), r.U32()
	}
	c.dirty, c.at = true, 0
}

// Save writes what was decided about a peer's paths. What a window has counted is not in
// it: a new one begins.
func (j *Judge) Save(w *snapshot.Writer, p uint16) {
	s := &j.peers[p]
	w.U32(s.boot)
	w.U32(s.round)
	w.U32(s.large)
	w.U16(s.present)
	w.U64(s.report.word())
	w.U64(s.said.word())
	for i := range j.rows(p) {
		x := &j.rows(p)[i]
		w.U8(uint8(x.state))
		w.U8(x.narrow)
		w.U32(x.since)
		w.U32(x.proof)
		w.U32(x.trusted)
		w.U32(x.came)
		w.U32(x.alive)
	}
}

// Load reads what Save wrote.
func (j *Judge) Load(r *snapshot.Reader, p uint16) {
	s := judgedPeer{boot: r.U32(), round: r.U32(), large: r.U32(), present: r.U16(), report: reportOf(r.U64()), said: reportOf(r.U64())}
	s.window = s.round
	j.peers[p] = s
	rows := j.rows(p)
	for i := range rows {
		x := judged{state: State(r.U8()), narrow: r.U8(), since: r.U32(), proof: r.U32(), trusted: r.U32(), came: r.U32(), alive: r.U32()}
		if int(x.state) >= len(states) {
			r.Fail(fmt.Errorf("a path is in state %d, and there are %d", x.state, len(states)))
			return
		}
		x.proof = min(x.proof, maxProof)
		rows[i] = x
	}
}
