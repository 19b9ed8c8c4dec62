package flowtable

import (
	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/internal/snapshot"
)

// entryLen is how long an entry without its value is in a snapshot, bytes.
const entryLen = 4 + 2 + 8 + 8

// Save writes the flows that are not aged for another process, which has the same clock
// and the same hash. value writes what the user knows of each. Pinned flows are left out:
// what refers to them does not go along.
func (t *Table[V]) Save(now mono.Time, w *snapshot.Writer, value func(*snapshot.Writer, *V)) {
	n := uint32(0)
	for e := range t.All(now, 0, t.Sets()) {
		if !e.Pinned() {
			n++
		}
	}
	w.U32(n)
	for e := range t.All(now, 0, t.Sets()) {
		if e.Pinned() {
			continue
		}
		w.U32(e.hash)
		w.U16(e.Leaf())
		w.U64(uint64(e.Last))
		w.U64(uint64(e.Time))
		value(w, &e.V)
	}
}

// Load reads what Save wrote into a table that may have another size. leaves translates
// the numbers of leaves; false: the leaf is no more. Flows for which there is no room are
// left out.
func (t *Table[V]) Load(r *snapshot.Reader, leaves func(uint16) (uint16, bool), value func(*snapshot.Reader) V) {
	for range r.Count(entryLen) {
		hash, leaf := r.U32(), r.U16()
		last, own := mono.Time(r.U64()), mono.Time(r.U64())
		v := value(r)
		to, ok := leaves(leaf)
		if r.Err() != nil || !ok {
			continue
		}
		if e := t.Insert(last, hash, to); e != nil {
			e.Time, e.V = own, v
		}
	}
}

// Save writes the flows that are live for another process, which has the same clock and
// makes the same tags.
func (t *Words) Save(now mono.Time, w *snapshot.Writer) {
	at := TickOf(now)
	start := w.Open()
	for i := range t.sets {
		set := &t.sets[i]
		for k := range set.tag {
			tag, word := set.tag[k].Load(), set.word[k].Load()
			if tag > tagBusy && t.live(at, word) {
				w.U64(tag)
				w.U64(word)
			}
		}
	}
	w.Close(start)
}

// Load reads what Save wrote into a table that may have another size. Flows for which
// there is no room are left out.
func (t *Words) Load(r *snapshot.Reader) {
	for flows := snapshot.NewReader(r.Blob()); flows.Len() >= 16; {
		tag, word := Tag(flows.U64()), flows.U64()
		set := &t.sets[tag&t.mask]
		for k := range set.tag {
			if set.tag[k].Load() == tagFree {
				set.word[k].Store(word)
				set.tag[k].Store(tag)
				break
			}
		}
	}
}
