package web

import (
	"context"
	"encoding/json"
	"sync"
	"time"
)

// ring keeps the messages of some time, up to some size. Readers have a place in it and
// no queue of their own: who reads slowly misses what is old, and holds nobody up.
type ring struct {
	keep  time.Duration
	bytes int // at most

	mu      sync.Mutex
	entries []entry // by seq
	size    int     // of entries, bytes
	seq     uint64  // of the newest
	layout  *layoutText
	more    chan struct{} // closed when there is more
}

// entry is a frame or an event, as it is sent.
type entry struct {
	seq    uint64
	at     time.Time
	layout *layoutText // that it goes by
	text   []byte
}

type layoutText struct{ text []byte }

func newRing(keep time.Duration, bytes int) *ring {
	return &ring{keep: keep, bytes: bytes, more: make(chan struct{})}
}

// add keeps the messages of a round.
func (r *ring) add(at time.Time, messages []any) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range messages {
		text, err := json.Marshal(m)
		if err != nil {
			return err
		}
		if _, ok := m.(*Layout); ok {
			r.layout = &layoutText{text}
			continue
		}
		r.seq++
		r.entries = append(r.entries, entry{r.seq, at, r.layout, text})
		r.size += len(text)
	}
	old := 0
	for old < len(r.entries) && (at.Sub(r.entries[old].at) > r.keep || r.size > r.bytes) {
		r.size -= len(r.entries[old].text)
		old++
	}
	if old > 0 {
		// Moved, so that the array does not keep what is forgotten.
		n := copy(r.entries, r.entries[old:])
		clear(r.entries[n:])
		r.entries = r.entries[:n]
	}
	close(r.more)
	r.more = make(chan struct{})
	return nil
}

// batch is how many entries a reader gets at a time.
const batch = 64

// after returns entries that follow one, a few at a time. It waits until there is one
// or ctx ends; then there is none.
func (r *ring) after(ctx context.Context, seq uint64, wait bool) []entry {
	for {
		r.mu.Lock()
		if seq > r.seq {
			seq = 0 // of a loomweb that ran before
		}
		found, more := r.find(seq), r.more
		r.mu.Unlock()
		if len(found) > 0 || !wait {
			return found
		}
		select {
		case <-ctx.Done():
			return nil
		case <-more:
		}
	}
}

// find returns a copy of the entries after one. They have numbers without gaps.
func (r *ring) find(seq uint64) []entry {
	if len(r.entries) == 0 {
		return nil
	}
	from := 0
	if first := r.entries[0].seq; seq >= first {
		from = int(seq - first + 1)
	}
	if from >= len(r.entries) {
		return nil
	}
	return append([]entry(nil), r.entries[from:min(from+batch, len(r.entries))]...)
}

// state says how much is kept.
func (r *ring) state() (entries, bytes int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.entries), r.size
}
