package dataplane

import (
	"time"

	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/overlay"
)

// fabricStorm is how many times of what one leaf may have flooded all of them together
// may bring.
const fabricStorm = 4

const (
	sweepEvery   = mono.Time(10 * time.Millisecond)
	sweepBuckets = 64 // FDB buckets looked at for aged entries in one sweep
)

// recent is the last address that was learned, and the last that was found, in
// this round. The frames of a burst mostly have both in common; news from
// elsewhere come between rounds. A pair counts if its place is not DestNone: every
// value of a key, 0 too, is a frame's.
type recent struct {
	learned, found overlay.FDBKey
	at, to         overlay.Dest
}

// find looks a destination address up.
func (l *leafWorker) find(key overlay.FDBKey, now mono.Time) overlay.Dest {
	if key == l.recent.found && l.recent.to != overlay.DestNone {
		return l.recent.to
	}
	to := l.fdb.LookupKey(key, now)
	if to != overlay.DestNone {
		l.recent.found, l.recent.to = key, to
	}
	return to
}

// learn tells the FDB where a source address was seen, unless the kernel learns.
func (l *leafWorker) learn(key overlay.FDBKey, at overlay.Dest, now mono.Time) {
	if (key != l.recent.learned || at != l.recent.at) && !l.kernel {
		l.learnNews(key, at, now)
	}
}

func (l *leafWorker) learnNews(key overlay.FDBKey, at overlay.Dest, now mono.Time) {
	l.recent.learned, l.recent.at = key, at
	switch l.fdb.LearnKey(key, at, now) {
	case overlay.LearnedKnown:
		return
	case overlay.LearnedRefused:
		l.recent.at = overlay.DestNone
		return
	case overlay.LearnedRefreshed:
	case overlay.LearnedNew:
		l.stats.FDBLearned++
	case overlay.LearnedMoved:
		l.stats.FDBMoved++
		l.recent.to = overlay.DestNone // it may be the one
	case overlay.LearnedFull:
		l.stats.FDBFull++
		l.recent.at = overlay.DestNone // every frame counts
		return
	case overlay.LearnedHeld:
		l.stats.FDBHeld++
		l.recent.at = overlay.DestNone
		return
	case overlay.LearnedStatic:
		l.stats.FDBStatic++
		l.recent.at = overlay.DestNone
		return
	}
	if l.learned != nil {
		l.learned.send(l.id, &learned{key, at, l.view.seq})
	}
}

// age forgets old addresses, a few buckets at a time.
func (l *leafWorker) age(now mono.Time) {
	if now < l.sweep {
		return
	}
	l.sweep = now + sweepEvery
	l.notice(now)
	l.forget()
	l.stats.FDBAged += uint64(l.fdb.Sweep(now, sweepBuckets))
	l.held.Store(l.fdb.Held())
}

// learned is what a worker sends to the others about an address: receive-side
// scaling may bring the two directions of a conversation to different workers,
// and each has an FDB of its own. An event that gets lost is sent again with the
// next refresh, a quarter of the ageing time later at most.
type learned struct {
	key overlay.FDBKey
	at  overlay.Dest
	seq uint32 // of the sender's view
}

// receiveLearned learns what the other workers have told this one.
func (l *leafWorker) receiveLearned(now mono.Time) {
	l.learned.each(l.id, func(e *learned) {
		// Sent before the sender knew that the port had gone down: this
		// worker has forgotten the address for that very reason.
		if e.at.Remote() || int32(e.seq-l.flushed[e.at.Port()]) >= 0 {
			l.fdb.LearnKey(e.key, e.at, now)
		}
	})
}

// adoptFDB brings FDB, limits and counters in line with new tables.
func (l *leafWorker) adoptFDB(old, v *view) {
	t := v.tables
	l.stats.VNIs = grow(l.stats.VNIs, len(t.VNIs))
	l.stats.PeerSent = grow(l.stats.PeerSent, len(t.Peers))
	l.stats.PeerReceived = grow(l.stats.PeerReceived, len(t.Peers))
	for i := range t.VNIs {
		n := &t.VNIs[i]
		l.storms = grow(l.storms, i+1)
		l.fabricStorms = grow(l.fabricStorms, i+1)
		if old == nil || i >= len(old.tables.VNIs) || old.tables.VNIs[i].Storm != n.Storm {
			l.storms[i], l.fabricStorms[i] = newStorm(n.Storm, 1), newStorm(n.Storm, fabricStorm)
		}
		l.fdb.SetLimit(uint16(i), int(n.FDBLimit))
	}
	if old != nil {
		l.depart(old, v)
		for i := range old.ports {
			if old.ports[i].up && !v.ports[i].up && l.ports[i].kind == Access {
				l.fdb.FlushPort(uint16(i), l.now)
				l.flushed[i] = v.seq
			}
		}
	}
}
