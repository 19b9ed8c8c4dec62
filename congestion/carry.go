package congestion

import (
	"fmt"

	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/internal/snapshot"
)

// Save writes what is known of a leaf's paths for another process, which has the same
// clock.
func (t *ToLeaf) Save(w *snapshot.Writer, leaf uint16) {
	for tag := range t.rows[leaf] {
		w.U64(t.rows[leaf][tag].Load())
	}
}

// Load reads what Save wrote. Metrics that the table cannot have are left out.
func (t *ToLeaf) Load(r *snapshot.Reader, leaf uint16) {
	for tag := range t.rows[leaf] {
		if e := word(r.U64()); e.known() && e.metric() <= t.top {
			t.rows[leaf][tag].Store(uint64(e))
		}
	}
}

// Save writes what is to be fed back to a leaf for another process, which has the same
// clock.
func (t *FromLeaf) Save(w *snapshot.Writer, leaf uint16) {
	row := &t.rows[leaf]
	for tag := range row.words {
		w.U64(row.words[tag].Load())
	}
	w.U32(row.sets.Load())
}

// Load reads what Save wrote. Metrics that the table cannot have are left out.
func (t *FromLeaf) Load(r *snapshot.Reader, leaf uint16) {
	row := &t.rows[leaf]
	known := uint32(0)
	for tag := range row.words {
		if e := word(r.U64()); e.known() && e.metric() <= t.top {
			row.words[tag].Store(uint64(e))
			known |= 1<<tag | 1<<(tag+setChanged)
		}
	}
	row.sets.Store(r.U32() & known)
}

// Save writes the flowlets that are active at now for another process, which has the
// same clock.
func (f *Flowlets) Save(w *snapshot.Writer, now mono.Time) {
	stamp, n := f.stamp(now), uint32(0)
	for _, e := range f.entries {
		if e&flowletValid != 0 && !f.ended(e, stamp) {
			n++
		}
	}
	w.U32(uint32(len(f.entries)))
	w.U64(f.gap)
	w.U32(n)
	for i, e := range f.entries {
		if e&flowletValid != 0 && !f.ended(e, stamp) {
			w.U32(uint32(i))
			w.U64(e)
		}
	}
}

// Load reads what Save wrote. A table of another size, or with another detector, has
// other entries for the same flows: then nothing is loaded, and r has an error.
func (f *Flowlets) Load(r *snapshot.Reader) {
	if entries, gap := r.U32(), r.U64(); r.Err() == nil && (int(entries) != len(f.entries) || gap != f.gap) {
		r.Fail(fmt.Errorf("flowlets of a table of %d entries with age periods of %d ns, and this one has %d, and %d ns", entries, gap, len(f.entries), f.gap))
	}
	for range r.Count(12) {
		i, e := r.U32(), r.U64()
		if r.Err() == nil && int(i) < len(f.entries) && e&flowletValid != 0 {
			f.entries[i] = e &^ ((1<<flowletStampShift - 1) &^ (flowletValid | flowletUplink))
		}
	}
}
